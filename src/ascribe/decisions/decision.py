"""A decision that sessions took differently, and what followed on both sides."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ascribe.decisions.attempts import Attempts
from ascribe.decisions.contrasts import LEVEL, Contrast, discovery_rate
from ascribe.decisions.sides import Sides, rests_on_one
from ascribe.groups.responses import readable
from ascribe.steps.arrays import Ints
from ascribe.steps.problems import counted, one_line

FORK, EVENT = "fork", "event"
OTHERS = "the others"
"""The sessions without an event."""
CALLING = "calling "
"""How an event begins that is a call of a tool, which was not refused."""
ENDS = 0.2
"""A decision is an ending if at most this share of one side goes on, and so much more of the
other."""
LONGEST = 60
"""Characters of a state or an action in a sentence."""
TOLD = (
    *("kind", "task", "tasks", "state", "better", "worse", "difference", "low", "high", "p", "q"),
    *("more", "certain", "doubt", "across", "sign", "ending", "copied", "versions", "equal"),
    *("beside", "read", "text"),
)
"""What JSON tells of a decision, in this order."""
Finding = TypeVar("Finding", bound=Any)
"""What has a p value and gets a false discovery rate: a ``Decision`` or a ``Change``."""


@dataclass(frozen=True, eq=False)
class Side:
    """The sessions that decided one way.

    Attributes:
        action: what they did, for people: ``list(path="/var")``, or ``3 other actions``.
        sessions: how many.
        mean: their mean outcome, weighted over tasks like the difference.
        won: the share of them that won, weighted in the same way.
        named: whether ``action`` says what they did, and not only what they did not do.
        rows: the row of the table with the decision of each session; on the better side the session
            with the highest outcome comes first, on the worse side that with the lowest.
        actions: the texts of the actions, the most frequent first; empty unless it is a fork.

    Example:
        >>> from ascribe.decisions import find_decisions
        >>> better = find_decisions(table).decisions[0].better
        >>> better.action, better.sessions, better.mean
        ('`go to kitchen`', 1, 1.0)
    """

    action: str
    sessions: int
    mean: float
    won: float
    named: bool
    rows: Ints = field(repr=False)
    actions: tuple[str, ...] = field(repr=False, default=())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in ("action", "sessions", "mean", "won")}


@dataclass(frozen=True, eq=False)
class Decision:
    """Two ways to decide, compared by what the sessions that went them earned in the end.

    Attributes:
        kind: ``fork`` for a state and the actions taken in it; ``event`` for something that some
            sessions did and others did not, over many states and tasks.
        task: the task; empty if several count.
        tasks: how many tasks count.
        state: the text of the state; empty unless it is a fork.
        better: the side with the higher mean outcome.
        worse: the other side.
        difference: of the mean outcomes, at least 0; inside tasks, then averaged over them.
        low: lower end of its 90 % interval.
        high: upper end.
        p: by permutation inside tasks; NaN for a question that so few sessions cannot settle.
        q: false discovery rate over all decisions of the table; NaN without a p value.
        more: how many more attempts would probably settle it, of each task that counts; None if
            there is nothing to settle, or no number is known to do.
        attempts: how many attempts there are at these tasks.
        strata: how many parts of the sessions were compared, each in itself: those of a task, or of
            a version at a task.
        across: whether sessions of different tasks were compared with each other, so that the
            difference may be one of tasks.
        ending: whether the sessions of one side end with this step, or call nothing after it, and
            those of the other go on, so that the step may be a sign of how they went.
        copied: whether it is certain only if likely copies of sessions count as attempts.
        of_version: whether the difference turns, or is less than half, without one of the versions.
        versions: how many versions were compared with each other, adjusted for how much each
            earns; 1 if attempts were compared with attempts of the same version alone.
        equal: how many of the sessions equal another attempt at the task in all they did and
            earned.
        binary: whether outcomes are 0 and 1.
        sign: why an event may only show how a session was going, ``an ending``, ``a consequence of
            an error`` or ``of what came before``; empty for a turn, and for a fork.
        beside: the events that were found before, whose effects its difference leaves out.
        refusals: whether other calls of the tool were refused, of an event that is a call.
        pair: rows of two sessions of one task, to read: the better side first; or none.
        read: the names of these sessions.
        start: whether it is a fork at the first steps.

    Example:
        >>> from ascribe.decisions import find_decisions
        >>> decision = find_decisions(table).decisions[0]
        >>> decision.text
        'apple, at “hall”: `go to kitchen` won 100 % of 1, 2 other actions 0 % of 2'
        >>> decision.certain
        False
    """

    kind: str
    task: str
    tasks: int
    state: str
    better: Side
    worse: Side
    difference: float
    low: float
    high: float
    p: float
    q: float = math.nan
    more: int | None = None
    attempts: int = 0
    strata: int = 1
    across: bool = False
    ending: bool = False
    copied: bool = False
    of_version: bool = False
    versions: int = 1
    equal: int = 0
    binary: bool = False
    sign: str = ""
    beside: tuple[str, ...] = ()
    refusals: bool = False
    pair: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    read: tuple[str, ...] = ()
    start: bool = False

    @property
    def turn(self) -> bool:
        """Whether it is an event, and no mere sign of how a session was going."""
        return self.kind == EVENT and not self.sign

    @property
    def certain(self) -> bool:
        """Whether it is among findings of which at most a tenth are expected to be false.

        What the difference may be due to something else never is (see ``doubt``).
        """
        return self.q <= LEVEL and not self.doubt

    @property
    def doubt(self) -> str:
        """What else the difference may be, so that nothing is claimed; mostly empty."""
        if self.across:
            return "a difference of tasks"
        if self.sign or self.ending:
            return self.sign or "an ending"
        if self.of_version:
            return "a difference of one version from the others"
        return "a session counted several times" if self.copied else ""

    @property
    def sessions(self) -> int:
        """How many sessions were compared."""
        return self.better.sessions + self.worse.sessions

    @property
    def where(self) -> str:
        """The task, or how many, and the state."""
        where = one_line(self.task, LONGEST) or f"over {counted(self.tasks, 'task')}"
        if self.versions > 1:
            where += f", between {self.versions:,} versions"
        return where + (f", {self.at}" if self.kind == FORK else "")

    @property
    def at(self) -> str:
        """Where a fork is: the text of its state, if it has one."""
        start = self.start and not self.state
        return "at the start" if start else f"at “{one_line(self.state, LONGEST)}”"

    @property
    def text(self) -> str:
        """What was found, in one sentence."""
        where, first, other = self.where, self.better, self.worse
        if self.binary and self.kind == FORK and self.strata == 1:
            sides = [
                f"{amount(each.won, share=True)} of {each.sessions}" for each in (first, other)
            ]
            return f"{where}: {first.action} won {sides[0]}, {other.action} {sides[1]}"
        verb = "won" if self.binary else "earned"
        if self.kind == EVENT:
            of, where = "of" if self.binary else "on average in", f"{where}, {self.event.action}"
            first, other = self.event, self.other
        else:  # weighted over situations, so that it may be no share of these sessions
            of, verb = "on average in", f"{first.action} {verb}"
        high, low = (amount(each.mean, share=self.binary) for each in (first, other))
        return (
            f"{where}: {verb} {high} {of} {counted(first.sessions, 'session')}, {other.action} "
            f"{low} {of if self.kind == EVENT else 'in'} {other.sessions:,}"
        )

    @property
    def event(self) -> Side:
        """The side that is told first: that of the event, or the better one of a fork."""
        return self.better if self.kind == FORK or self.better.named else self.worse

    @property
    def other(self) -> Side:
        """The side that is told second."""
        return self.worse if self.event is self.better else self.better

    @property
    def told(self) -> tuple[float, float, float]:
        """The difference and its interval, of the side that is told first."""
        if self.event is self.better:
            return self.difference, self.low, self.high
        return -self.difference, -self.high, -self.low

    @property
    def within(self) -> str:
        """What the difference of an event compares, in words."""
        where = "" if self.kind == FORK or self.across else " at the same task"
        left_out = ["how the versions differ"] * bool(where and self.versions > 1)
        if self.beside:
            more = f" and {counted(len(self.beside) - 1, 'other finding')}"
            left_out.append(f"the effect of {self.beside[0]}{more * (len(self.beside) > 1)}")
        return where + f", after subtracting {' and '.join(left_out)}" * bool(left_out)

    @property
    def how_sure(self) -> str:
        """How sure it is, in words."""
        points = " points" if self.binary else ""
        size, low, high = (signed(value, points=self.binary) for value in self.told)
        points += self.within
        size = f"{size}{points}, 90 % interval {low} to {high}"
        equal = ""
        if self.equal:
            said = f"{self.equal:,} of the {counted(self.sessions, 'session')}"
            equal = f"; {said} equal another in all they did"
        if self.certain:
            return f"certain{', a turn' * self.turn} ({size}, q {self.q:.2g}{equal})"
        if math.isnan(self.p):
            return "too few sessions to tell"
        if self.doubt:
            return f"perhaps {self.doubt} ({size}, p {self.p:.2g}{equal})"
        more = (
            "" if self.more is None else f"; about {counted(self.more, 'more attempt')} would tell"
        )
        return f"not certain ({size}, p {self.p:.2g}{equal}){more}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None for what is not known."""
        values = {name: getattr(self, name) for name in TOLD}
        values |= {"better": self.better.as_dict(), "worse": self.worse.as_dict()}
        values |= {"read": list(self.read), "beside": list(self.beside)}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


def amount(value: float, *, share: bool) -> str:
    """A mean outcome, in percent if outcomes are 0 and 1."""
    return f"{value:.0%}".replace("%", " %") if share else f"{value:.3g}"


def signed(value: float, *, points: bool) -> str:
    """A difference with its sign, in points of a hundred if outcomes are 0 and 1."""
    text = f"{100 * value:+.0f}" if points else f"{value:+.3g}"
    return "0" if text in ("+0", "-0") else text


def compare(
    attempts: Attempts,
    kind: str,
    places: Ints,
    compared: Sides,
    *,
    names: tuple[str, str],
    rng: np.random.Generator,
    tests: int = 1,
    state: str = "",
    found: Contrast | None = None,
) -> Decision:
    """The decision that sessions took at these places, each session at one.

    Args:
        attempts: the sessions.
        kind: what is compared.
        places: places of the steps.
        compared: the sides that their sessions are on.
        names: what the two sides did.
        rng: source of randomness.
        tests: how many comparisons this one was picked from.
        state: the text of the state.
        found: the comparison, if it was made.
    """
    steps = attempts.steps
    session = steps.trajectory[places]
    outcome = attempts.outcome[session]
    has_won, side = attempts.won[session].astype(np.float64), compared.side
    if found is None:
        found, won = compared.contrast(outcome, rng, LEVEL / tests), compared.means(has_won)
    else:
        won = float(has_won[side].mean()), float(has_won[~side].mean())
    ends = [compared.means(last[places].astype(np.float64)) for last in attempts.ends]
    spread = attempts.spread
    first_is_better = found.difference >= 0
    sides: list[Side] = []
    ordered: list[Ints] = []
    for chosen, better, mean, share in (
        (compared.side, first_is_better, found.with_, won[0]),
        (~compared.side, not first_is_better, found.without, won[1]),
    ):
        at = np.flatnonzero(chosen)
        at = at[np.argsort(-outcome[at] if better else outcome[at], kind="stable")]
        taken = tuple(_frequent(attempts.texts(places[at]))) if kind == FORK else ()
        name, rows = names[len(sides)], steps.rows[places[at]]
        is_named = len(sides) == 0 or len(taken) == 1
        sides.append(Side(name, at.size, mean, share, is_named, rows, taken))
        ordered.append(at)
    low, high = found.low, found.high
    if not first_is_better:
        sides, ordered, low, high = sides[::-1], ordered[::-1], -high, -low
    groups = np.unique(steps.group[places])
    # The first of a task on each side is the one to read; the task in which they differ the most.
    one, two = (steps.group[places[at]] for at in ordered)
    _, one, two = np.intersect1d(one, two, return_indices=True)
    pairs = np.column_stack([ordered[0][one], ordered[1][two]])
    pair = pairs[np.argsort(outcome[pairs[:, 1]] - outcome[pairs[:, 0]], kind="stable")[:1]].ravel()
    pair = steps.rows[places[pair]]
    task = attempts.table.group.take(steps.rows[places[:1]]).texts()[0] or ""
    return Decision(
        kind=kind,
        task="" if groups.size > 1 else task,
        tasks=groups.size,
        state=state,
        better=sides[0],
        worse=sides[1],
        difference=min(abs(found.difference), spread),
        low=max(low, -spread),
        high=min(high, spread),
        p=min(1.0, found.p * tests),
        attempts=int(attempts.group_sizes[groups].sum()),
        strata=int(compared.stratum.max()) + 1,
        across=attempts.across,
        ending=any(is_ending(*each) for each in ends),
        of_version=compared.versions > 1
        and found.p * tests <= LEVEL
        and attempts.version is not None
        and rests_on_one(compared, outcome, attempts.version[session]),
        versions=compared.versions,
        equal=int(attempts.twins[0][session].sum()),
        binary=attempts.binary,
        pair=pair,
        read=tuple(name or "" for name in attempts.table.trajectory.take(pair).texts()),
    )


def is_ending(first: float, other: float) -> bool:
    """Whether one side ends with the step and the other goes on, by the shares that end there."""
    return mostly(max(first, other), min(first, other), 1 - ENDS)


def mostly(first: float, other: float, least: float) -> bool:
    """Whether the first share is at least this, and much more than the other."""
    return first >= least and first - other >= ENDS


def _frequent(texts: Sequence[str]) -> list[str]:
    counts = Counter(texts)
    return sorted(counts, key=lambda text: (-counts[text], text))


def call(action: str) -> str:
    """An action in a sentence: a call as ``name(key=value)``, in one line."""
    return f"`{one_line(readable(action), LONGEST)}`"


def calls(first: str, other: str) -> tuple[str, str]:
    """Two actions in a sentence, from where they part if their beginnings look the same."""
    if call(first) != call(other):
        return call(first), call(other)
    if readable(first) != readable(other):
        first, other = readable(first), readable(other)
    both = zip(first, other, strict=False)
    parted = next((place for place, (one, two) in enumerate(both) if one != two), len(first))
    start = max(0, min(parted, len(other)) - LONGEST // 2)
    cut = [f"`{'…' if start else ''}{one_line(text[start:], LONGEST)}`" for text in (first, other)]
    return cut[0], cut[1]


def rated(found: Sequence[Finding]) -> list[Finding]:
    """Decisions, or changes, with the false discovery rate of those that have a p value."""
    tested = [each for each in found if not math.isnan(each.p)]
    rates = discovery_rate([each.p for each in tested]).tolist()
    with_rates = [replace(each, q=q) for each, q in zip(tested, rates, strict=True)]
    return with_rates + [each for each in found if math.isnan(each.p)]


def certainty(decision: Decision) -> tuple[Any, ...]:
    """A key that sorts the most certain decisions first."""
    tested = not math.isnan(decision.p)
    first, other = decision.better.sessions, decision.worse.sessions
    size = decision.difference * math.sqrt(first * other / (first + other))
    return (
        not decision.certain,
        not tested,
        decision.q if tested else 0.0,
        decision.p if tested else 0.0,
        -size,
        decision.task,
        decision.text,
    )
