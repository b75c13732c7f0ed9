"""Decisions: which action in which state decided the outcome, and how sure that is."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ascribe.decisions.attempts import Attempts, Outcome, Scope, attempts
from ascribe.decisions.contrasts import LEVEL
from ascribe.decisions.decision import CONSEQUENCES, FORK, Decision, Side, certainty, rated
from ascribe.decisions.forks import forks
from ascribe.decisions.kinds import kinds
from ascribe.estimators import RECIPES
from ascribe.groups.keys import keyed, propose, tools_before
from ascribe.steps.arrays import Bools, Brief, Ints
from ascribe.steps.files import Rollouts
from ascribe.steps.hints import option
from ascribe.steps.problems import Severity, TableError, counted
from ascribe.steps.select import select
from ascribe.steps.table import StepTable

__all__ = [
    "LEVEL",
    "By",
    "Decision",
    "Decisions",
    "Outcome",
    "Scope",
    "Side",
    "decisions",
    "decisions_of",
]

By = Literal["text", "key", "cluster"]
"""What one state is."""

ONE_EACH = (
    "Every task has a single attempt, so no two attempts at one task can be compared. What is "
    "shown compares sessions of different tasks: a difference may come from the tasks, so none is "
    "called certain. To be sure, let the agent try some tasks several times."
)
FEWEST_TOLD = 8
"""Different sessions without which it may be chance that each occurs twice."""
CONSEQUENCE = "Length and giving up may follow from how a session went as well as decide it."


@dataclass(frozen=True, eq=False, repr=False)
class Decisions(Brief):
    """The decisions of a table.

    Attributes:
        decisions: forks and kinds, the most certain first.
        sessions: how many sessions were compared.
        tasks: how many tasks they attempted.
        success: mean over tasks of the share of attempts that won.
        binary: whether every return is 0 or 1.
        untested: how many forks have too few sessions for a test, those that are not listed too.
        notes: what cannot be said, and why.

    Example:
        >>> from ascribe.decisions import decisions
        >>> found = decisions(table)
        >>> found.sessions, found.tasks, len(found.certain)
        (3, 1, 0)
        >>> found.advice
        'Sample about 6 more attempts of this task.'
    """

    decisions: tuple[Decision, ...]
    sessions: int
    tasks: int
    success: float
    binary: bool
    untested: int
    notes: tuple[str, ...] = ()

    @property
    def forks(self) -> tuple[Decision, ...]:
        """Decisions in one state."""
        return tuple(each for each in self.decisions if each.kind == FORK)

    @property
    def kinds(self) -> tuple[Decision, ...]:
        """Decisions of a kind, pooled over states and tasks."""
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
                "Nothing can be compared: no two attempts at one task decided differently in the "
                "same situation and earned different rewards."
            )
        first = self.decisions[0]
        return f"No decision is certain yet. The likeliest is {first.text}: {first.how_sure}."

    @property
    def advice(self) -> str:
        """What to do next; empty if nothing is known to help."""
        if self.certain:
            better, worse = self.certain[0].better, self.certain[0].worse
            return f"Prefer {better.action}." if better.named else f"Avoid {worse.action}."
        if self.decisions and (more := self.decisions[0].more):
            which = "this task" if self.decisions[0].tasks == 1 else "each of these tasks"
            return f"Sample about {counted(more, 'more attempt')} of {which}."
        if self.decisions and self.decisions[0].apart:
            return f"Name states that recur, such as with {option('by', 'key')}."
        if self.sessions == self.tasks:
            return "Let the agent try some tasks several times."
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "sentence": self.sentence,
            "advice": self.advice,
            "sessions": self.sessions,
            "tasks": self.tasks,
            "success": self.success,
            "untested": self.untested,
            "decisions": [each.as_dict() for each in self.decisions],
            "notes": list(self.notes),
        }


def usable(rollouts: Rollouts) -> tuple[Rollouts, int]:
    """The rollouts without groups that have fatal problems, and how many groups these are.

    Raises:
        TableError: if nothing is left.
    """
    selection = select(rollouts.table, "drop", severity=Severity.FATAL)
    if not selection.keep.any():
        raise TableError(selection.report.problems)
    if selection.keep.all():
        return rollouts, 0
    rows = np.flatnonzero(selection.keep)
    kept = (rollouts.table.take(rows), rollouts.carried.take(rows), rollouts.credit.take(rows))
    return replace(rollouts, table=kept[0], carried=kept[1], credit=kept[2]), len(selection.dropped)


def decisions_of(
    rollouts: Rollouts, *, by: By = "text", scope: Scope = "task", outcome: Outcome = "return"
) -> Decisions:
    """The decisions of a file of rollouts, or of sessions.

    Args:
        rollouts: the file, read.
        by: what one state is: an equal text, an equal canonical key, or a cluster.
        scope: see ``decisions``.
        outcome: see ``decisions``.

    Raises:
        TableError: if no group of the file can be compared.
    """
    kept, dropped = usable(rollouts)
    states = state_labels(kept.table, by)
    found = decisions(
        kept.table,
        won=kept.flag("won"),
        rewritten=kept.flag("rewritten"),
        states=states,
        scope=scope,
        outcome=outcome,
    )
    return replace(found, notes=(*found.notes, *left_out(dropped)))


def left_out(dropped: int) -> list[str]:
    """The note that groups were left out; none if none were."""
    note = f"Left out: {counted(dropped, 'group')} with broken rows; ascribe check says more."
    return [note] if dropped else []


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


def decisions(
    table: StepTable,
    *,
    won: Bools | None = None,
    states: Ints | None = None,
    scope: Scope = "task",
    outcome: Outcome = "return",
    rewritten: Bools | None = None,
    rng: np.random.Generator | None = None,
) -> Decisions:
    """The decisions of a table: what followed where sessions decided differently.

    Args:
        table: the steps, without fatal problems.
        won: whether the task was done after each row; by default a return above 0 wins.
        states: label of each row's state, -1 for none; by default equal texts are one state.
        scope: ``task`` compares attempts at one task; ``batch`` also looks for equal states in
            different tasks.
        outcome: compare sessions by their ``return``, or by whether they ``won``.
        rewritten: whether the context was rewritten after each row, if that is known.
        rng: source of randomness; by default one with the seed 0.

    Raises:
        TableError: for a table whose rows cannot be put in order.

    Example:
        >>> from ascribe.decisions import decisions
        >>> decisions(table).sentence.partition(".")[0]
        'No decision is certain yet'
    """
    rng = np.random.default_rng(0) if rng is None else rng
    options: Any = {"won": won, "states": states, "rewritten": rewritten, "outcome": outcome}
    tried = attempts(table, scope=scope, **options)
    found, untested = forks(tried, rng)
    notes = []
    sessions, tasks = tried.steps.trajectory_count, tried.steps.group_count
    if sessions == tasks:
        tried = tried if tried.across else attempts(table, scope="batch", **options)
        notes.append(ONE_EACH)
    if tried.spread == 0:
        notes.append(f"Every session earned {tried.outcome[0]:.3g}.")
    if (times := _copies(tried)) > 1:
        notes.append(
            f"Every session occurs {times} times, step for step. If these are copies and no "
            "attempts, remove them: they make everything look surer than it is."
        )
    pooled = kinds(tried, rng)
    if any(each.kind in CONSEQUENCES for each in pooled):
        notes.append(CONSEQUENCE)
    found += pooled
    # What is not claimed must not make it easier for others to be found.
    families = ([each for each in found if bool(each.doubt) is doubt] for doubt in (False, True))
    settled = (
        replace(each, more=None) if each.q <= LEVEL else each
        for family in families
        for each in rated(family)
    )
    ordered = sorted(settled, key=certainty)
    success = np.bincount(tried.steps.group_of_trajectory, tried.won) / np.bincount(
        tried.steps.group_of_trajectory
    )
    return Decisions(
        decisions=tuple(ordered),
        sessions=sessions,
        tasks=tasks,
        success=float(success.mean()),
        binary=tried.binary,
        untested=untested + sum(math.isnan(each.p) for each in ordered),
        notes=tuple(notes),
    )


def _copies(tried: Attempts) -> int:
    """How often every session occurs, step for step; 1 if too few differ to tell copies."""
    steps = tried.steps
    done = np.split(np.stack([steps.state, steps.action], axis=1), steps.starts[1:])
    told = zip(steps.group_of_trajectory.tolist(), tried.outcome.tolist(), done, strict=True)
    counts = Counter((task, outcome, rows.tobytes()) for task, outcome, rows in told)
    return math.gcd(*counts.values()) if len(counts) >= FEWEST_TOLD else 1


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
