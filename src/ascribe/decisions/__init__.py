"""Decisions: which action in which state decided the outcome, and how sure that is."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ascribe.decisions.attempts import (
    Attempts,
    attempts,
    without,
)
from ascribe.decisions.attempts import (
    Outcome as Outcome,
)
from ascribe.decisions.attempts import (
    Scope as Scope,
)
from ascribe.decisions.contrasts import LEVEL, sessions_needed
from ascribe.decisions.decision import EVENT, FORK, Decision, Side, amount, certainty, rated
from ascribe.decisions.findings import findings
from ascribe.decisions.forks import forks
from ascribe.estimators import RECIPES
from ascribe.groups.keys import keyed, propose, tools_before
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Brief, Ints, Objects
from ascribe.steps.check import starts_of
from ascribe.steps.errors import InputError
from ascribe.steps.files import Rollouts
from ascribe.steps.hints import option
from ascribe.steps.problems import ProblemKind, Severity, TableError, counted, one_line
from ascribe.steps.select import select
from ascribe.steps.table import StepTable

__all__ = ["Decision", "Decisions", "Side", "find_decisions"]

By = Literal["text", "key", "cluster"]
"""What one state is."""

ONE_EACH = (
    "Every task has a single attempt, so no two attempts at one task can be compared. What is "
    "shown compares sessions of different tasks: a difference may come from the tasks, so none is "
    "called certain. To be sure, let the agent try some tasks several times."
)
NONE_ALIKE = (
    "No task has several attempts that begin alike. What is shown compares attempts that were "
    "asked different things: a difference may come from that, so none is called certain."
)
MOST_VERSIONS, MOST_NAMED = 12, 8
"""Versions that a note lists, those with the most sessions, and tasks."""


@dataclass(frozen=True, eq=False, repr=False)
class Decisions(Brief):
    """The decisions of a table.

    Attributes:
        decisions: forks and findings, the most certain first.
        sessions: how many sessions were compared.
        tasks: how many tasks they attempted.
        success: mean over tasks of the share of attempts that won.
        binary: whether every return is 0 or 1.
        untested: how many forks have too few sessions for a test, those that are not listed too.
        notes: what cannot be said, and why.
        unlike: tasks whose attempts may not be compared with each other.
        missing: tasks of which nothing counts, such as those without any reward.

    Example:
        >>> from ascribe.decisions import find_decisions
        >>> found = find_decisions(table)
        >>> found.sessions, found.tasks, len(found.certain)
        (3, 1, 0)
        >>> found.advice
        'Sample more attempts of this task: so few cannot tell.'
    """

    decisions: tuple[Decision, ...]
    sessions: int
    tasks: int
    success: float
    binary: bool
    untested: int
    notes: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def forks(self) -> tuple[Decision, ...]:
        """Decisions in one state."""
        return tuple(each for each in self.decisions if each.kind == FORK)

    @property
    def findings(self) -> tuple[Decision, ...]:
        """Events that separate won from lost attempts, over states and tasks."""
        return tuple(each for each in self.decisions if each.kind != FORK)

    @property
    def certain(self) -> tuple[Decision, ...]:
        """Those that are certain."""
        return tuple(each for each in self.decisions if each.certain)

    @property
    def sentence(self) -> str:
        """The most important finding, in one or two sentences."""
        if self.certain:
            first = self.certain[0]
            return f"{_capital(first.text)}: {first.how_sure}."
        if not self.decisions:
            return (
                "Nothing can be compared: no two attempts at one task, of one version if there are "
                "several, did different things in the same situation and earned different rewards."
            )
        first = self.decisions[0]
        return f"No decision is certain yet. The likeliest is {first.text}: {first.how_sure}."

    @property
    def advice(self) -> str:
        """What to do next; empty if nothing is known to help."""
        if self.certain:
            better, worse = self.certain[0].better, self.certain[0].worse
            named = better if better.named else worse
            if self.certain[0].kind == FORK:
                return f"{'Prefer' if named is better else 'Avoid'} {named.action}."
            less = "lost more often" if self.binary else "earned less"
            which = "without" if named is better else "with"
            return f"Look first at {named.action}: attempts {which} it {less}."
        if self.decisions and (more := self.decisions[0].more):
            which = "this task" if self.decisions[0].tasks == 1 else "each of these tasks"
            return f"Sample about {counted(more, 'more attempt')} of {which}."
        if self.decisions and math.isnan(self.decisions[0].p) and not self.decisions[0].doubt:
            which = "this task" if self.decisions[0].tasks == 1 else "these tasks"
            return f"Sample more attempts of {which}: so few cannot tell."
        if self.sessions == self.tasks:
            return "Let the agent try some tasks several times."
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        told = ("sentence", "advice", "sessions", "tasks", "success", "untested", "decisions")
        values = {name: getattr(self, name) for name in (*told, "notes", "unlike", "missing")}
        values["decisions"] = [each.as_dict() for each in self.decisions]
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}


class Usable(NamedTuple):
    """The rollouts that count, and what does not."""

    rollouts: Rollouts
    unrewarded: int
    """Sessions without a reward."""
    broken: int
    """Groups with fatal problems."""
    lost: tuple[str, ...]
    """Names of the groups of which nothing counts."""
    thin: tuple[str, ...] = ()
    """Names of the groups of which most sessions do not count."""
    rows: Ints = np.zeros(0, dtype=np.int64)
    """The rows that count."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in sentences; none if nothing was."""
        notes = []
        if self.unrewarded:
            said = counted(self.unrewarded, "session")
            notes.append(f"Left out: {said} without a reward; the others at their tasks count.")
        if self.broken:
            said = counted(self.broken, "group")
            notes.append(f"Left out: {said} with broken rows; ascribe check says more.")
        return tuple(notes)


def usable(rollouts: Rollouts) -> Usable:
    """The rollouts without sessions that have no reward, and groups that have fatal problems.

    Raises:
        TableError: if nothing is left.
    """
    selection = select(rollouts.table, "drop", severity=Severity.FATAL)
    if not selection.keep.any():
        raise TableError(selection.report.problems)
    missing = ProblemKind.MISSING_REWARD
    unrewarded = sum(each.count for each in selection.report.problems if each.kind is missing)
    broken = sum(why != missing.label for why in selection.dropped.values())
    lost = tuple(selection.dropped)
    rows = np.flatnonzero(selection.keep)
    if selection.keep.all():
        return Usable(rollouts, unrewarded, broken, lost, rows=rows)
    kept = (rollouts.table.take(rows), rollouts.carried.take(rows), rollouts.credit.take(rows))
    rest = replace(rollouts, table=kept[0], carried=kept[1], credit=kept[2])
    whole, part = _sessions(rollouts.table), _sessions(rest.table)
    thin = tuple(name for name, count in whole.items() if 2 * part[name] < count)
    return Usable(rest, unrewarded, broken, lost, thin, rows)


def _sessions(table: StepTable) -> Counter[str]:
    """How many sessions each group has."""
    sessions = np.unique(np.stack([table.group.codes, table.trajectory.codes]), axis=1)
    return Counter(str(table.group.values[code]) for code in sessions[0] if code >= 0)


def state_labels(table: StepTable, by: By) -> Ints | None:
    """The label of each row's state; None for equal texts."""
    if by == "text":
        return None
    if by == "key":
        return keyed(table.state, propose(table), tools_before(table)).codes
    clusters: Any = RECIPES["bigpo"]
    given = table.fingerprint is not None
    recipe = clusters() if given else clusters(fingerprint="ngram", radius=0.25)
    labels: Ints = recipe(table).terms["step"].labels
    return labels


def find_decisions(
    table: StepTable | Rollouts,
    *,
    by: By = "text",
    won: Bools | None = None,
    states: Ints | None = None,
    scope: Scope = "task",
    outcome: Outcome = "return",
    rewritten: Bools | None = None,
    rng: np.random.Generator | None = None,
) -> Decisions:
    """What separates the attempts that won from those that lost, as ``ascribe decisions`` says it.

    Args:
        table: what ``ascribe.read`` gave, whose sessions without a reward are left out; or a table
            of steps, each with a reward.
        by: what one state is: an equal text, an equal canonical key, or a cluster.
        won: whether the task was done after each row; by default a return above 0 wins.
        states: label of each row's state, -1 for none, in place of ``by``.
        scope: ``task`` compares attempts at one task; ``batch`` also looks for equal states in
            different tasks.
        outcome: compare sessions by their ``return``, or by whether they ``won``.
        rewritten: whether the context was rewritten after each row, if that is known.
        rng: source of randomness; by default one with the seed 0.

    Raises:
        TableError: if no group can be compared, or the rows of a table cannot be put in order.

    Example:
        >>> from ascribe.decisions import find_decisions
        >>> find_decisions(table).sentence.partition(".")[0]
        'No decision is certain yet'
    """
    if isinstance(table, Rollouts):
        if not (won is None and states is None and rewritten is None):
            raise InputError("won, states and rewritten go with a table", hint="pass its table")
        part = usable(table)
        flags: Any = {name: part.rollouts.flag(name) for name in ("won", "rewritten")}
        settings: Any = {"by": by, "scope": scope, "outcome": outcome, "rng": rng}
        known = find_decisions(part.rollouts.table, **flags, **settings)
        return replace(known, notes=(*known.notes, *part.notes), missing=part.lost)
    rng = np.random.default_rng(0) if rng is None else rng
    states = state_labels(table, by) if states is None else states
    options: Any = {"won": won, "states": states, "rewritten": rewritten, "outcome": outcome}
    whole = tried = attempts(table, scope=scope, **options)
    steps = whole.steps
    sessions, tasks = steps.trajectory_count, steps.group_count
    unlike, notes = _unlike(whole)
    if unlike.any() and (whole.group_sizes[~unlike] > 1).any():
        tried = without(whole, unlike[steps.group_of_trajectory], scope=scope, **options)
    elif unlike.any():
        tried = replace(whole, across=True)
    found, untested = forks(tried, rng)
    if sessions == tasks:
        tried = tried if tried.across else attempts(table, scope="batch", **options)
        notes.append(ONE_EACH)
    if whole.spread == 0:
        notes.append(f"Every session earned {whole.outcome[0]:.3g}.")
    notes += _about_versions(whole)
    found = _settled(found + findings(tried, rng))
    copies = tried.twins[1]
    if copies.any():
        notes.append(
            f"{counted(int(copies.sum()), 'session')} of {copies.size:,} look like copies of "
            "another one. A decision is certain only if it is so with each of them counted once."
        )
    if copies.any() and any(each.certain for each in found):
        once = without(tried, copies, scope=scope, **options)
        surely = {_what(each) for each in _settled(forks(once, rng)[0] + findings(once, rng))}
        found = [replace(e, copied=e.certain and _what(e) not in surely) for e in found]
    ordered = sorted(found, key=certainty)
    success = np.bincount(steps.group_of_trajectory, whole.won) / whole.group_sizes
    return Decisions(
        decisions=tuple(ordered),
        sessions=sessions,
        tasks=tasks,
        success=float(success.mean()),
        binary=whole.binary,
        untested=untested + sum(math.isnan(each.p) for each in ordered),
        notes=tuple(notes),
        unlike=tuple(map(str, _names(whole)[unlike])),
    )


def _settled(found: Sequence[Decision]) -> list[Decision]:
    """Decisions with their false discovery rates.

    What is not claimed must not make it easier for others to be found, so it has its own rates.
    Findings ended with the first that is none, so that their p values are rates; forks and findings
    share the level.
    """
    events = [replace(each, q=each.p) for each in found if each.kind == EVENT]
    states = [each for each in found if each.kind == FORK]
    families = ([each for each in states if bool(each.doubt) is doubt] for doubt in (False, True))
    claimed, doubted = map(rated, families)
    tests = sum(not math.isnan(each.p) for each in claimed)
    parts = 1 + bool(tests and events)
    claimed = [replace(each, q=float(np.minimum(each.q * parts, 1.0))) for each in events + claimed]
    return [
        replace(e, more=_more(e, parts * (tests if e.kind == FORK else 1))) for e in claimed
    ] + doubted


def _more(decision: Decision, tests: int) -> int | None:
    """How many more attempts at each task would probably make it certain, among so many tests."""
    if not decision.q > LEVEL or decision.versions > 1:
        return None
    sides = decision.better.sessions, decision.worse.sessions
    needed = sessions_needed(decision.p, sides, tests)
    if needed is None:
        return None
    # Not every attempt comes to this decision.
    return math.ceil(needed * decision.attempts / decision.sessions / decision.tasks)


def _what(decision: Decision) -> tuple[object, ...]:
    """What tells a decision from others of the table, and whether it is certain."""
    better, worse = decision.better, decision.worse
    # Of an event not what the others did in its place, which may be so of some attempts alone.
    sides = (each.action if decision.kind == FORK or each.named else "" for each in (better, worse))
    return (decision.certain, decision.kind, decision.task, decision.state, *sides)


def _unlike(tried: Attempts) -> tuple[Bools, list[str]]:
    """Tasks whose attempts may not be compared with each other, and what to say about it."""
    starts, names = starts_of(tried.table), _names(tried)
    several = tried.group_sizes > 1
    unlike, notes = several & ~starts.same, []
    for those, why in (
        (unlike & starts.mixed, "hold several tasks"),
        (unlike & ~starts.mixed, f"begin in different states ({starts.words})"),
    ):
        if those.any():
            listed = ", ".join(repr(name)[:60] for name in names[those][:MOST_NAMED])
            more = int(those.sum()) - MOST_NAMED
            said = f"{counted(int(those.sum()), 'task')} ({listed}"
            said += f" and {more:,} more)" if more > 0 else ")"
            count = counted(int(tried.group_sizes[those].sum()), "session")
            notes.append(
                f"Not compared with each other: {count} of {said}, because the attempts {why}. If "
                "they are attempts at one task all the same, say so: "
                f"{option('same_task', True)}."
            )
    if unlike.any() and not (several & ~unlike).any():
        notes.append(NONE_ALIKE)
    if (starts.reworded & starts.named).any() and not starts.tells:
        reworded = int((starts.reworded & starts.named).sum())
        notes.append(
            f"The attempts at {counted(reworded, 'task')} begin with different words. That they "
            f"are at one task is known by its name alone ({starts.words})."
        )
    return unlike, notes


def _names(tried: Attempts) -> Objects:
    """The name of each task."""
    steps = tried.steps
    first = segments.first_rows(steps.group_of_trajectory, steps.group_count)
    column = tried.table.group
    names: Objects = column.values[column.codes[steps.rows[steps.starts[first]]]]
    return names


def _about_versions(tried: Attempts) -> Iterable[str]:
    """The versions that took part, with what each earned, if there are several."""
    if tried.version is None:
        return
    sessions = np.bincount(tried.version)
    won = np.bincount(tried.version, tried.won) / sessions
    listed = [
        f"{one_line(tried.versions[number], 40)} ({counted(int(sessions[number]), 'session')}, "
        f"{amount(won[number], share=True)} won)"
        for number in np.argsort(-sessions, kind="stable")[:MOST_VERSIONS]
    ]
    more = sessions.size - len(listed)
    yield (
        f"{sessions.size:,} versions played, so attempts are compared inside a version, or after "
        f"what each earns is subtracted: {', '.join(listed)}{f' and {more:,} more' * (more > 0)}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
