"""Events: what each step of a session does, in words that recur where states do not.

A response calls tools. Of each call is known which tool it is, whether the environment refused it,
how many calls were refused before, and how usual it is: how many of the other attempts at the task
made the same call, and how many of those that won. This is the fixed vocabulary that credit uses
(``Calls`` and ``Usual``); ``events`` names events, and with ``wide`` also the order of tools and
the values of arguments.

Calls are the same if their tool and their arguments are, up to the order of keys, white space, how
the arguments are quoted, and generated ids. Where no action of a table calls a tool, the first word
of an action counts as the tool and the rest as its argument. Every distinct action is read once.

Page: docs/estimators/events.md. Test: tests/groups/test_events.py.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ascribe.groups.actions import tag_body
from ascribe.groups.canonical import ID
from ascribe.groups.responses import Call, written_calls
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Brief, Floats, Ints, Objects
from ascribe.steps.check import arrange
from ascribe.steps.strict_json import loads
from ascribe.steps.table import Coded, StepTable, once

ERROR = re.compile(
    r"(?:\w+: )?\W{0,3}(?:\w{0,40}(?:error|exception)\b|traceback|fatal\b|failed\b|invalid\b"
    r"|no such\b|not found\b|cannot\b|could not\b|unknown\b|command not found"
    r"|[^\n]{0,80}(?:exit (?:code|status):? [1-9]|returncode[\">: ]{1,4}[1-9]|command not found))",
    re.IGNORECASE,
)
"""How an observation begins that reports an error; the first word may be who reports it."""
SIGNS = (
    *("error", "exception", "traceback", "fatal", "failed", "invalid", "no such", "not found"),
    *("cannot", "could not", "unknown", "exit ", "returncode"),
)
"""One of these is near the beginning of all that ``ERROR`` matches; a search takes less time."""
NEAR = 250
RESULT = "\n\ntool: "
"""What begins a later result of a tool in an observation."""
TOLD = ("user: ", "system: ", "developer: ", "demonstration: ")
"""What begins an observation that is no result."""
MOST_VERBS, COMMANDS = 100, 0.95
"""Actions without calls are commands if there are at most so many first words, or if so many that
recur begin at least this share of the actions: a few slips of a model make no prose."""
SPEAKER = re.compile(r"\S*:(?:\s|$)|\s|(?:assistant|agent|ai):", re.IGNORECASE)
"""What a text begins with that says who speaks, and is no command."""
MOST_ERRORS = 8
"""Errors of a session are counted up to this number."""
SHORT = 20
"""Arguments of so many characters are too short for a generated id."""
PERHAPS = re.compile(r"[-_0](?:[0-9a-z]{12}|x)", re.IGNORECASE)
"""What every generated id holds; a search for it takes less time."""
FAILED = "a refused call"
"""The event of a session's first error."""
MOST_EVENTS = 4000
"""Named events: those that most sessions have."""


@dataclass(frozen=True, eq=False, repr=False)
class Calls(Brief):
    """The calls of a table, in canonical order: those of a response one after the other.

    Attributes:
        place: the place of each call (see ``ascribe.steps.check.arrange``).
        session: the label of its trajectory.
        tool: the number of its tool in ``tools``.
        call: the number of the call in ``calls``: tool and arguments.
        refused: whether the environment refused it.
        again: whether the session has made the same call before, and it was not refused.
        tools: names of tools.
        calls: the distinct calls.
        sessions: number of sessions, with or without calls.
    """

    place: Ints
    session: Ints
    tool: Ints
    call: Ints
    refused: Bools
    again: Bools
    tools: Objects
    calls: tuple[Call, ...]
    sessions: int

    @property
    def new(self) -> Bools:
        """Calls that were not refused, and that the session had not made before."""
        return ~(self.refused | self.again)

    @cached_property
    def errors(self) -> Ints:
        """How many calls of the session were refused up to each call, at most ``MOST_ERRORS``."""
        total = np.cumsum(self.refused)
        first = np.searchsorted(self.session, self.session)
        errors: Ints = np.minimum(total - np.append(0, total)[first], MOST_ERRORS)
        return errors


class Written(NamedTuple):
    """The calls of some tasks as they are written: what other tasks write decides on the ids.

    Attributes:
        place: the place of each call.
        session: the label of its trajectory.
        tool: the number of its tool in ``tools``.
        call: the number of the call in ``calls``.
        refused: whether the environment refused it.
        tools: names of tools.
        calls: the distinct calls; None where other tasks cannot change it.
        ids: what looks like a generated id, and whether several trajectories write it.
        sessions: number of sessions.
        kind: 0 for tool calls, 1 if tools are the first words of actions.
    """

    place: Ints
    session: Ints
    tool: Ints
    call: Ints
    refused: Bools
    tools: Objects
    calls: Sequence[Call | None]
    ids: dict[str, bool]
    sessions: int
    kind: int


@once
def read_calls(table: StepTable) -> Calls:
    """The calls of a table.

    Raises:
        TableError: if the rows of the table cannot be put in order.
    """
    written = read_written(table)
    if written.kind == 1 and not are_commands(np.bincount(written.tool).tolist()):
        none, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        tools = np.array([], dtype=object)
        written = Written(none, none, none, none, no, tools, [], {}, written.sessions, 1)
    return settled(written, {each for each, several in written.ids.items() if several})


def read_written(table: StepTable) -> Written:
    """The calls of a table as they are written."""
    steps = arrange(table)
    texts: Objects = table.action.values
    present = np.bincount(steps.action[steps.action >= 0], minlength=texts.size) > 0
    made = [written_calls(t) if used else () for t, used in zip(texts, present, strict=True)]
    kind = 0 if any(made) else 1
    if kind == 1:
        made = [_command(t) if used else () for t, used in zip(texts, present, strict=True)]
    count = np.array([*map(len, made), 0], dtype=np.int64)  # the last one: a missing action
    called = [call for of_text in made for call in of_text]
    tools = Coded.encode([call.name for call in called])
    distinct = {call: number for number, call in enumerate(dict.fromkeys(called))}
    number = np.array([distinct[call] for call in called], dtype=np.int64)

    size = count[steps.action]
    place = np.repeat(np.arange(steps.rows.size), size)
    within = np.arange(place.size) - np.repeat(np.cumsum(size) - size, size)
    at = (np.cumsum(count) - count)[steps.action[place]] + within
    session, call = steps.trajectory[place], number[at]
    first, last = np.full(len(distinct), steps.trajectory_count), np.full(len(distinct), -1)
    np.minimum.at(first, call, session)
    np.maximum.at(last, call, session)
    ends: dict[str, tuple[int, int]] = {}
    for each, low, high in zip(distinct, first.tolist(), last.tolist(), strict=True):
        for found in generated(each):
            before = ends.get(found, (low, high))
            ends[found] = min(before[0], low), max(before[1], high)
    ids = {each: low < high for each, (low, high) in ends.items()}
    refused = _refused(table, size, place, within)
    numbers = (place, session, tools.codes[at], call, refused)
    return Written(*numbers, tools.values, [*distinct], ids, steps.trajectory_count, kind)


def settled(written: Written, kept: Collection[str]) -> Calls:
    """The calls, with ``#`` for each generated id but those that are kept."""
    calls = [
        Call(call.name, ID.sub(lambda at: at[0] if at[0] in kept else "#", call.arguments))
        if call is not None and generated(call)
        else call
        for call in written.calls
    ]
    known: dict[Call, int] = {}
    number = [k if each is None else known.setdefault(each, k) for k, each in enumerate(calls)]
    used, code = np.unique(np.array(number, dtype=np.int64), return_inverse=True)
    call, session = code[written.call], written.session
    made_by, pairs = segments.pairs(np.where(written.refused, -1, session), call, used.size)
    again = ~written.refused
    again[segments.first_rows(made_by, pairs)] = False
    unknown = Call("", "")
    distinct = tuple([calls[k] or unknown for k in used.tolist()])
    flags = (written.refused, again, written.tools, distinct, written.sessions)
    return Calls(written.place, session, written.tool, call, *flags)


def generated(call: Call) -> list[str]:
    """What looks like a generated id in the arguments of a call."""
    text = call.arguments
    return ID.findall(text) if len(text) > SHORT and PERHAPS.search(text) else []


def _command(text: str) -> tuple[Call, ...]:
    """The first word and the rest of a text; none if it begins with the name of a speaker."""
    verb, _, rest = (tag_body(text) or "").partition(" ")
    return (Call(verb.lower(), rest),) if verb and not SPEAKER.match(verb) else ()


def are_commands(uses: Collection[int]) -> bool:
    """Whether actions are commands, by how many of them begin with each first word."""
    recurring = sorted(each for each in uses if each > 1)[-MOST_VERBS:]
    return len(uses) <= MOST_VERBS or sum(recurring) >= COMMANDS * sum(uses)


def _refused(table: StepTable, size: Ints, place: Ints, within: Ints) -> Bools:
    """Whether the environment refused each call, from its place and its number among those there.

    It did not understand the response, or what the same agent is shown next reports an error: of
    several calls in the result of this one if each has a result, and anywhere otherwise.
    """
    steps = arrange(table)
    going_on = np.append(steps.trajectory[1:] == steps.trajectory[:-1], False)
    if table.agent is not None:
        agent = table.agent.codes[steps.rows]
        going_on &= np.append(agent[1:] == agent[:-1], False)
    at = np.flatnonzero((size > 0) & going_on)
    states, code = np.unique(steps.state[at + 1], return_inverse=True)
    texts = (table.state.values[state] if state >= 0 else "" for state in states.tolist())
    errors = [*map(reported, texts), []]  # the last one: nothing is shown
    shown = np.full(steps.rows.size, len(errors) - 1)
    shown[at] = code
    results, own = np.array([*map(len, errors)]), shown[place]
    flags = np.array([False, *(each for found in errors for each in found)])
    of_call = flags[
        np.where(within < results[own], np.cumsum(results)[own] - results[own] + within + 1, 0)
    ]
    single = results[own] == size[place]
    refused: Bools = np.where(single, of_call, np.array([*map(any, errors)])[own])
    return refused | ~steps.valid[place]


def reported(text: str) -> list[bool]:
    """Whether each result of a tool in an observation reports an error, or all of another one."""
    found, at = [], 0 if not text.startswith(TOLD) else text.find(RESULT) + 2
    while at != 1:
        start = text[at : at + NEAR].lower()
        found.append(any(map(start.__contains__, SIGNS)) and bool(ERROR.match(text, at)))
        at = text.find(RESULT, at) + 2
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Usual(Brief):
    """How usual calls are among other attempts at the task.

    What the attempts of a fold won is hidden from its sessions, and from those of the fold that is
    held out: in a task with one win, the winner is the one that sees no other, so a session's own
    outcome would show.

    Attributes:
        calls: the calls.
        task: label of the task of each session; -1 takes no part.
        won: outcome of each session, from 0 to 1.
        fold: fold of each session.
        folds: number of folds.
    """

    calls: Calls
    task: Ints
    won: Floats
    fold: Ints
    folds: int

    @classmethod
    def without_outcomes(cls, calls: Calls, task: Ints) -> "Usual":
        """How usual calls are, whatever the attempts won."""
        return cls(calls, task, np.zeros(task.size), np.zeros_like(task), 1)

    @cached_property
    def _made(self) -> tuple[Ints, Ints, Floats]:
        """Of each call the label in its task, and how many attempts made it and won, by fold."""
        calls, new = self.calls, self.calls.new
        most = int(calls.call.max(initial=-1)) + 1
        label, count = segments.pairs(self.task[calls.session], calls.call, most)
        makers = np.where(new, label, -1)
        cell = np.where(makers < 0, -1, makers * self.folds + self.fold[calls.session])
        won = segments.total(self.won[calls.session], cell, count * self.folds)
        return label, segments.size(makers, count), won.reshape(count, self.folds)

    @cached_property
    def _tasks(self) -> tuple[Ints, Floats]:
        """How many attempts each task has, and how many of them won, by fold."""
        count = int(self.task.max(initial=-1)) + 1
        cell = np.where(self.task < 0, -1, self.task * self.folds + self.fold)
        won = segments.total(self.won, cell, count * self.folds)
        return segments.size(self.task, count), won.reshape(count, self.folds)

    @cached_property
    def others(self) -> Ints:
        """How many other attempts there are at the task of each call."""
        attempts: Ints = np.append(self._tasks[0], 1)[self.task[self.calls.session]]
        return attempts - 1

    @cached_property
    def share(self) -> Floats:
        """The share of them that made the call; 0 if there are none."""
        label, makers, _ = self._made
        made = np.maximum(np.append(makers, 0)[label] - ~self.calls.refused, 0)
        share: Floats = made / np.maximum(self.others, 1)
        return share

    @cached_property
    def _wins(self) -> tuple["_Wins", "_Wins", "_Wins"]:
        """Wins at the task of each session, at that of each call, and of those that made it."""
        label, _, won = self._made
        task, fold = self.task[self.calls.session], self.fold[self.calls.session]
        of_tasks = self._tasks[1]
        return (
            _Wins.of(of_tasks, self.task, self.fold),
            _Wins.of(of_tasks, task, fold),
            _Wins.of(won, label, fold),
        )

    def winners(self, held_out: int) -> tuple[Floats, Floats]:
        """Wins among the visible other attempts, and those that made the call, for each call."""
        return self._wins[1].without(held_out), self._wins[2].without(held_out)

    def wins_of_others(self, held_out: int) -> Floats:
        """Wins among the visible other attempts at the task of each session."""
        return self._wins[0].without(held_out)

    def unusual(self, held_out: int = -1) -> Floats:
        """``1 - (w + s) / (W + 1)`` of each call.

        s is the share of other attempts that made it, W the number that won, w that of those that
        won and made it. NaN where the task has no other attempt.
        """
        wins, with_call = self.winners(held_out)
        value = 1.0 - (with_call + self.share) / (wins + 1.0)
        return np.where((self.others > 0) & self.calls.new, value, np.nan)


class _Wins(NamedTuple):
    """Wins of each fold among what has a label, and what each with a label and a fold sees."""

    by_fold: Floats
    label: Ints
    fold: Ints
    seen: Floats

    @classmethod
    def of(cls, by_fold: Floats, label: Ints, fold: Ints) -> "_Wins":
        """Wins by label and fold; each sees those of other folds."""
        padded = np.vstack([by_fold, np.zeros((1, by_fold.shape[1]))])
        return cls(padded, label, fold, padded.sum(axis=1)[label] - padded[label, fold])

    def without(self, held_out: int) -> Floats:
        """What each sees without a fold; with all, if it is -1."""
        seen = self.seen
        if held_out >= 0:
            seen = seen - np.where(self.fold == held_out, 0.0, self.by_fold[self.label, held_out])
        visible: Floats = np.maximum(seen, 0.0)
        return visible


def digests(table: StepTable) -> npt.NDArray[np.uint64]:
    """A number for what each session did; names and places take no part."""
    steps = arrange(table)
    sums = [crc32(text.encode(errors="replace")) for text in table.action.values]
    word = np.array([*sums, 1], dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
    mixed = (word[steps.action] | np.uint64(1)) * (2 * steps.step.astype(np.uint64) + 1)
    mixed ^= mixed >> np.uint64(29)
    return np.add.reduceat(mixed * np.uint64(0x9E3779B97F4A7C15), steps.starts)


def by_content(digest: npt.NDArray[np.uint64], task: Ints) -> Ints:
    """The sessions task by task, in an order that no name decides."""
    count = int(task.max(initial=0)) + 1
    of_task = np.zeros(count + 1, dtype=np.uint64)
    np.add.at(of_task, task, digest)
    return np.lexsort((digest, task, of_task[task]))


def folds_of(digest: npt.NDArray[np.uint64], task: Ints, folds: int) -> Ints:
    """A fold for each session; those of one task are in different ones, as far as they go.

    What a session did decides, never its name or its place: equal sessions share a fold.
    """
    order = by_content(digest, task)
    first = np.append(True, task[order][1:] != task[order][:-1])
    new = first | np.append(True, digest[order][1:] != digest[order][:-1])
    # One after the other, and on through the tasks: those of one attempt are spread, too.
    fold = np.empty(task.size, dtype=np.int64)
    fold[order] = (np.cumsum(new) - 1) % folds
    return fold


@dataclass(frozen=True, eq=False, repr=False)
class Events(Brief):
    """Named events: the place at which a session first has each.

    Attributes:
        place: the place of each event, in rising order.
        session: the label of its trajectory.
        event: its number in ``names``.
        names: what each event is called.
    """

    place: Ints
    session: Ints
    event: Ints
    names: Objects


def events(
    table: StepTable, calls: Calls | None = None, *, wide: bool = False, least: int = 2
) -> Events:
    """The named events of the sessions of a table, each where the session first has it.

    An event is kept if at least so many sessions have it, and of more than ``MOST_EVENTS`` those
    that most have; what a session earned never matters.

    Args:
        table: the steps.
        calls: its calls, if they were read before.
        wide: also the order of tools, repeated calls, endings, and values of arguments.
        least: number of sessions.
    """
    calls = read_calls(table) if calls is None else calls
    session, tools = calls.session, calls.tools
    if not session.size:
        none = np.zeros(0, dtype=np.int64)
        return Events(none, none, none, np.array([], dtype=object))
    usual = Usual.without_outcomes(calls, arrange(table).group_of_trajectory)
    alone, more = calls.new & (usual.others > 0) & (usual.share == 0), range(1, MOST_ERRORS)
    kinds: list[tuple[Bools, Ints, list[str]]] = [
        (~calls.refused, calls.tool, [f"calling `{tool}`" for tool in tools]),
        (calls.refused, calls.tool, [f"`{tool}` refused" for tool in tools]),
        (calls.refused, calls.errors - 1, [FAILED, *(f"{n + 1} refused calls" for n in more)]),
        (alone, calls.tool, [f"a call of `{tool}` that no other attempt made" for tool in tools]),
    ]
    if wide:
        same = np.append(False, session[1:] == session[:-1])
        before = np.roll(calls.tool, 1)
        last = np.append(session[1:] != session[:-1], True)
        follows, names = _coded_pairs(before, calls.tool, tools)
        kinds += [
            (calls.again, calls.tool, [f"the same call of `{tool}` again" for tool in tools]),
            (same & (before != calls.tool), follows, names),
            (last, calls.tool, [f"`{tool}` as the last call" for tool in tools]),
        ]
    place, number, words = [], [], list[str]()
    for mask, code, named in kinds:
        at = np.flatnonzero(mask)
        place.append(at)
        number.append(code[at] + len(words))
        words += named
    if wide:
        value_at, value, named = _values(calls)
        place.append(value_at)
        number.append(value + len(words))
        words += named
    at, event = np.concatenate(place), np.concatenate(number)
    order = np.argsort(at, kind="stable")
    at, event = at[order], event[order]
    once, count = segments.pairs(session[at], event, len(words))
    first = segments.first_rows(once, count)
    support = np.bincount(event[first], minlength=len(words))
    ranked = np.argsort(-support, kind="stable")[:MOST_EVENTS]
    kept = np.sort(ranked[support[ranked] >= least])
    rename = np.full(len(words), -1)
    rename[kept] = np.arange(kept.size)
    first = first[rename[event[first]] >= 0]
    first = first[np.argsort(first)]
    at, event = at[first], rename[event[first]]
    return Events(
        calls.place[at], session[at], event, np.array([words[k] for k in kept], dtype=object)
    )


def _coded_pairs(before: Ints, after: Ints, tools: Objects) -> tuple[Ints, list[str]]:
    """A code for each pair of tools that follow each other, and its words."""
    pairs, code = np.unique(before * tools.size + after, return_inverse=True)
    named = zip(tools[pairs % tools.size], tools[pairs // tools.size], strict=True)
    words = [f"`{tool}` right after `{earlier}`" for tool, earlier in named]
    return code.astype(np.int64), words


def _values(calls: Calls) -> tuple[Ints, Ints, list[str]]:
    """Short values of arguments: the calls that have them, their codes and words."""
    words: dict[str, int] = {}
    of_call: list[list[int]] = []
    for call in calls.calls:
        numbers = []
        try:
            arguments = loads(call.arguments)
        except ValueError:
            arguments = None
        for key, value in arguments.items() if isinstance(arguments, dict) else ():
            if isinstance(value, list):
                word = f"`{call.name}` with {len(value)} {key}"
            elif isinstance(value, str | int | float) and len(str(value)) < 25:
                word = f"`{call.name}({key}={value})`"
            else:
                continue
            numbers.append(words.setdefault(word, len(words)))
        of_call.append(numbers)
    size = np.array([*map(len, of_call)], dtype=np.int64)
    flat = np.array([number for numbers in of_call for number in numbers], dtype=np.int64)
    start = np.cumsum(size) - size
    at = np.repeat(np.arange(calls.call.size), size[calls.call])
    end = np.cumsum(size[calls.call])
    within = np.arange(at.size) - np.repeat(end - size[calls.call], size[calls.call])
    return at, flat[start[calls.call[at]] + within], list(words)
