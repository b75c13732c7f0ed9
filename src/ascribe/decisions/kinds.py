"""Kinds of decisions, pooled over states and tasks: a tool, a repeated call, giving up, and so on.

Whether a session *ever* called a tool depends on how long it lasted, and failing sessions last
longer; so sessions are not compared by that. A session is compared at its first opportunity: the
first step at which, in the same task and situation, some sessions decided this way and others did
not. The situation is the state, if another session of the task came to it. Where that tells
nothing, it is the number of the step with the tool called before; after the first step, what the
sessions have seen may differ then, so nothing is claimed from that.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ascribe.decisions.attempts import Attempts
from ascribe.decisions.contrasts import LEVEL, both_sides
from ascribe.decisions.decision import ELSE, Decision, compare
from ascribe.decisions.sides import Sides, compared
from ascribe.estimators.diagnostics import TEXT
from ascribe.groups.events import ERROR
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.problems import one_line

MOST_TOOLS = 12
"""Tools that are compared, and that may follow each other: the most frequent ones."""


class Kind(NamedTuple):
    """Something that a session may do at a step.

    Attributes:
        kind: what it is called.
        did: what those who did it are said to have done.
        else_: what the others did; empty if their tools say it.
        possible: places at which it could be done.
        done: places at which it was done.
        given: label of what else must be equal for a comparison, because it is part of what is
            compared: whether a call is a repetition also depends on the calls before it.
    """

    kind: str
    did: str
    else_: str
    possible: Bools
    done: Bools
    given: Ints | None = None


def kinds(attempts: Attempts, rng: np.random.Generator) -> list[Decision]:
    """Every kind of decision that sessions of one task took differently, without its rate."""
    situation, met = _situations(attempts)
    found, seen = [], set()
    for kind in _kinds(attempts):
        label = situation
        if kind.given is not None:
            label = segments.pairs(situation, kind.given, int(kind.given.max()) + 1)[0]
        for possible in (kind.possible & met, kind.possible):
            places, sides = _opportunities(attempts, kind, possible & ~attempts.silent, label)
            side = sides.side
            # The same sessions on the same sides: one of two tools, one that always follows another
            same = (places.tobytes(), (side == side[:1]).tobytes())
            outcome = attempts.outcome[attempts.steps.trajectory[places]]
            if same in seen:
                break
            if not places.size or sides.smallest_p(outcome) > LEVEL:
                continue
            seen.add(same)
            found.append(
                compare(
                    attempts,
                    kind.kind,
                    places,
                    sides,
                    names=(kind.did, kind.else_ or _others(attempts, places[~side])),
                    rng=rng,
                    apart=not met[places].all(),
                )
            )
            break
    return found


def _opportunities(
    attempts: Attempts, kind: Kind, possible: Bools, label: Ints
) -> tuple[Ints, Sides]:
    """The place at which each session decided, how it did, and what it is compared within."""
    places = np.flatnonzero(possible)
    open_, _ = both_sides(kind.done[places], label[places])
    places = _first_of_session(attempts, places[open_])
    stratum = segments.by_appearance(label[places], int(label.max()) + 1)[0]
    version = attempts.version
    if version is not None:
        version = version[attempts.steps.trajectory[places]]
    sides = compared(kind.done[places], stratum, version)
    return places[sides.inside], sides


def _others(attempts: Attempts, places: Ints) -> str:
    """What sessions did that did not call the tool in question: the other tool, if it is one."""
    tools = np.unique(attempts.tool[places])
    return ELSE if tools.size > 1 else _calling(attempts, tools[0])


def _calling(attempts: Attempts, number: int) -> str:
    """What a step with this tool, or command, is said to have done."""
    tool = attempts.tools[number]
    name = f"`{one_line(tool, 40)}`"
    return "no call" if tool == TEXT else f"calling {name}" if attempts.calls else name


def _situations(attempts: Attempts) -> tuple[Ints, Bools]:
    """What each step may be compared within, and whether sessions have seen the same there."""
    steps, tools = attempts.steps, attempts.tools.size
    count = int(attempts.state.max(initial=-1)) + 1
    visited = attempts.state[attempts.first_visits()]
    visitors = np.append(segments.size(visited, count), 0)[attempts.state]
    before = _shifted(attempts, attempts.tool, tools)
    number = np.arange(steps.rows.size) - steps.starts[steps.trajectory]
    place = number * (tools + 1) + before
    shared = np.where(visitors > 1, attempts.state, count + place)
    _, label = np.unique(shared, return_inverse=True)
    situation, _ = segments.pairs(
        attempts.stratum[steps.trajectory], label.astype(np.int64), int(label.max()) + 1
    )
    return situation, (visitors > 1) | (number == 0)


def _first_of_session(attempts: Attempts, places: Ints) -> Ints:
    session = attempts.steps.trajectory[places]
    first: Bools = np.diff(session, prepend=-1) != 0
    return places[first]


def _shifted(attempts: Attempts, values: Ints, first: int) -> Ints:
    """The value of the step before; ``first`` if a session, or another agent, begins."""
    before = np.roll(values, 1)
    before[attempts.steps.starts] = first
    if attempts.table.agent is not None:
        agent = attempts.table.agent.codes[attempts.steps.rows]
        before[agent != np.roll(agent, 1)] = first
    return before


def _kinds(attempts: Attempts) -> Iterator[Kind]:
    steps, tool, names = attempts.steps, attempts.tool, attempts.tools
    every = np.ones(steps.rows.size, dtype=np.bool_)
    calls = tool != int(np.flatnonzero(names == TEXT)[0])
    order = np.argsort(-np.bincount(tool, minlength=names.size), kind="stable")
    common = [int(number) for number in order[:MOST_TOOLS] if (tool == number).any()]
    shown = {number: _calling(attempts, number) for number in common}
    before = _shifted(attempts, tool, names.size)
    # A call that the session has made before, with the same arguments.
    actions = int(steps.action.max(initial=0)) + 1
    decided, count = segments.pairs(steps.trajectory, steps.action, actions)
    again = np.ones(steps.rows.size, dtype=np.bool_)
    again[segments.first_rows(decided, count)] = False
    later = np.arange(steps.rows.size) > steps.starts[steps.trajectory]
    if calls.any():
        possible = later & calls
        made = _made_before(attempts, ~again)
        yield Kind(
            "repeated call", "repeating an earlier call", "a new call", possible, again, made
        )
    failed = _after_errors(attempts)
    same = tool == before
    yield Kind(
        "call after an error",
        "the same tool again after an error",
        ELSE,
        failed,
        same,
        before,
    )
    last = np.append(steps.trajectory[1:] != steps.trajectory[:-1], True)
    if calls.any():
        gave_up = last & ~calls & ~steps.truncated
        yield Kind("giving up", "ending right after an error", "going on", failed, gave_up)
    length = segments.size(steps.trajectory, steps.trajectory_count)
    median = _medians(length, attempts.stratum)
    yield Kind(
        "length",
        "sessions longer than the median",
        "those up to the median",
        _at(steps.starts, every.size),
        (length > median[attempts.stratum])[steps.trajectory],
    )
    yield Kind("invalid call", "an invalid action", "a valid one", every, ~steps.valid)
    yield Kind("summary", "a summary of the context here", "none here", every, attempts.rewritten)
    for number in common:
        yield Kind("tool", shown[number], "", every, tool == number)
    for earlier in common:
        after = before == earlier
        for number in common:
            did = f"{shown[number]} right after `{one_line(names[earlier], 40)}`"
            if earlier != number and names[earlier] != TEXT:
                yield Kind("tool after tool", did, "", after, tool == number)


def _made_before(attempts: Attempts, new: Bools) -> Ints:
    """A label of the calls that the session has made before each step, in any order."""
    steps = attempts.steps
    numbers = np.random.default_rng(0).integers(1 << 62, size=int(steps.action.max(initial=0)) + 1)
    sums = np.cumsum(np.where(new, numbers[steps.action], 0))  # may wrap, which does no harm
    before = np.append(0, sums[:-1])
    _, label = np.unique(before - before[steps.starts][steps.trajectory], return_inverse=True)
    return label.astype(np.int64)


def _at(places: Ints, size: int) -> Bools:
    mask = np.zeros(size, dtype=np.bool_)
    mask[places] = True
    return mask


def _medians(length: Ints, stratum: Ints) -> Ints:
    order = np.lexsort((length, stratum))
    size = np.bincount(stratum)
    medians: Ints = length[order][np.cumsum(size) - size + (size - 1) // 2]
    return medians


def _after_errors(attempts: Attempts) -> Bools:
    """Steps before which something failed: an invalid action, or a result that reports an error."""
    steps, states = attempts.steps, attempts.table.state
    reports = np.array([bool(ERROR.match(text)) for text in states.values] + [False])
    invalid = np.append(False, ~steps.valid[:-1])
    failed: Bools = reports[states.codes[steps.rows]] | invalid
    failed[steps.starts] = False
    return failed
