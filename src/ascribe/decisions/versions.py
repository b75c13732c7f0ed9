"""Two versions of an agent, compared fork by fork: what they did in a state, and how it ended."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ascribe.decisions.attempts import Attempts, attempts, without
from ascribe.decisions.contrasts import LEVEL, both_sides, contrast, smallest_p
from ascribe.decisions.decision import LONGEST, amount, call, rated, signed
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.check import arrange, starts_of, twins
from ascribe.steps.errors import InputError
from ascribe.steps.hints import option
from ascribe.steps.problems import counted, one_line
from ascribe.steps.table import Coded, StepTable

COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")
ABSENT = "the new version has no session of it"
UNLIKE = "the attempts begin in different states"


@dataclass(frozen=True)
class Change:
    """What changed from one version to the other, over all tasks or in one state.

    Attributes:
        task: the task; empty over all tasks.
        state: the text of the state; empty over all tasks.
        old: mean outcome of the old version's sessions that came here.
        new: that of the new version.
        old_sessions: how many of the old version.
        new_sessions: how many of the new one.
        low: lower end of the 90 % interval of ``new - old``.
        high: upper end.
        p: by permutation inside tasks; NaN if so few sessions cannot tell.
        q: false discovery rate over all states; that of the whole is its p value.
        action: the action whose share changed the most; empty over all tasks.
        old_share: share of the old version's sessions that took it.
        new_share: share of the new version's.
        choice_p: by permutation, for the share.
        tasks: how many tasks count.
        binary: whether outcomes are 0 and 1.

    Example:
        >>> from ascribe.decisions.versions import changes
        >>> worse = StepTable.from_dicts(row | {"reward": 0.0} for row in table.to_dicts())
        >>> change = changes(table, worse)[0]
        >>> round(change.drop, 2), change.certain
        (0.33, False)
    """

    task: str
    state: str
    old: float
    new: float
    old_sessions: int
    new_sessions: int
    low: float
    high: float
    p: float
    q: float = math.nan
    action: str = ""
    old_share: float = math.nan
    new_share: float = math.nan
    choice_p: float = math.nan
    tasks: int = 1
    binary: bool = False

    @property
    def drop(self) -> float:
        """How much less the new version earned."""
        return self.old - self.new

    @property
    def certain(self) -> bool:
        """Whether at most a tenth of such findings are expected to be false."""
        return self.q <= LEVEL

    @property
    def text(self) -> str:
        """What changed, in one sentence."""
        where = f"over {counted(self.tasks, 'task')} of both versions"
        if not math.isnan(self.old_share):
            where = f"{one_line(self.task, LONGEST)}, at “{one_line(self.state, LONGEST)}”"
        was, is_ = (amount(mean, share=self.binary) for mean in (self.old, self.new))
        before, now = f"{self.old_sessions:,}", f"{self.new_sessions:,}"
        if self.binary and self.tasks == 1:
            said = f"{where}: won {was} of {before} before, {is_} of {now} now"
        else:  # weighted over tasks, so that it may be no share of these sessions
            said = f"{where}: {'won' if self.binary else 'earned'} {was} on average in "
            said += f"{counted(self.old_sessions, 'session')} before, {is_} in {now} now"
        low, high = (signed(end, points=self.binary) for end in (self.low, self.high))
        said += f" ({signed(self.new - self.old, points=self.binary)}"
        said += f"{' points' if self.binary else ''}, 90 % interval {low} to {high})"
        if self.action:
            shares = (amount(each, share=True) for each in (self.old_share, self.new_share))
            said += f"; {call(self.action)} {' to '.join(shares)} of the time"
        return said

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None for what is not known."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values |= {"drop": self.drop, "certain": self.certain, "text": self.text}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


@dataclass(frozen=True)
class Changes:
    """What changed from one version to the other, and which tasks tell nothing about it.

    Attributes:
        changes: over the tasks that both versions attempted, then state by state, the surest first.
        missing: tasks of the old version that are not compared, each with the reason.
        copies: how many sessions look like copies of another one. A change is no surer than it is
            with each of them counted once.
    """

    changes: tuple[Change, ...]
    missing: dict[str, str]
    copies: int = 0


def changes(
    old: StepTable, new: StepTable, *, rng: np.random.Generator | None = None
) -> tuple[Change, ...]:
    """What changed: over the tasks that both versions attempted, then state by state.

    States are listed if sessions of both versions came to them; the surest change comes first.

    Args:
        old: sessions of the old version.
        new: sessions of the new version, at some of the same tasks.
        rng: source of randomness; by default one with the seed 0.

    Raises:
        ValueError: if no task was attempted by both.

    Example:
        >>> from ascribe.decisions.versions import changes
        >>> worse = StepTable.from_dicts(row | {"reward": 0.0} for row in table.to_dicts())
        >>> changes(table, worse)[0].text.partition(" (")[0]
        'over 1 task of both versions: won 33 % of 3 before, 0 % of 3 now'
    """
    return compare_versions(old, new, rng=rng).changes


def compare_versions(
    old: StepTable, new: StepTable, *, rng: np.random.Generator | None = None
) -> Changes:
    """What ``changes`` finds, with the tasks of the old version that could not be compared.

    Raises:
        ValueError: if no task was attempted by both.

    Example:
        >>> worse = StepTable.from_dicts(row | {"reward": 0.0} for row in table.to_dicts())
        >>> found = ascribe.compare_versions(table, worse)
        >>> found.missing, found.changes[0].text.partition(" (")[0]
        ({}, 'over 1 task of both versions: won 33 % of 3 before, 0 % of 3 now')
    """
    rng = np.random.default_rng(0) if rng is None else rng
    tried = attempts(_joined(old, new))
    unlike = ~starts_of(tried.table).same
    attempted = _is_new(tried)
    is_old, both = (
        np.bincount(tried.steps.group_of_trajectory, which, unlike.size) > 0
        for which in (~attempted, attempted)
    )
    both &= is_old
    first = segments.first_rows(tried.steps.group_of_trajectory, unlike.size)
    names = tried.table.group.take(tried.steps.rows[tried.steps.starts[first]]).texts()
    missing = {
        str(names[task]): UNLIKE if both[task] else ABSENT
        for task in np.flatnonzero(is_old & (unlike | ~both))
    }
    if not both.any():
        raise InputError(
            "the two versions attempted no task in common, so nothing can be compared",
            hint=(
                "give both the same tasks, or name the field that holds the task "
                f"({option('group')})"
            ),
        )
    if not (both & ~unlike).any():
        raise InputError(
            f"{UNLIKE} in every task, so nothing can be compared",
            hint=(
                "give both the same tasks, or say that attempts of one name are at the "
                f"same task ({option('same_task', True)})"
            ),
        )
    if (unlike & both).any():
        tried = without(tried, (unlike & both)[tried.steps.group_of_trajectory])
    found = _changed(tried, rng)
    copies = _copies(tried)
    if copies.any():
        once = {(each.task, each.state): each for each in _changed(without(tried, copies), rng)}
        found = [_surely(each, once.get((each.task, each.state))) for each in found]
    whole, *states = found
    states.sort(
        key=lambda each: (math.isnan(each.q), each.q, -abs(each.drop), each.task, each.state)
    )
    return Changes((whole, *states), missing, int(copies.sum()))


def _changed(tried: Attempts, rng: np.random.Generator) -> list[Change]:
    """The change over all tasks, then those in states that both versions came to."""
    steps, is_new = tried.steps, _is_new(tried)
    inside, _ = both_sides(is_new, tried.stratum)
    whole = _change(tried, steps.starts[inside], is_new, rng)
    places = tried.first_visits()
    found = []
    for at in np.split(places, np.flatnonzero(np.diff(tried.state[places])) + 1):
        side = is_new[steps.trajectory[at]]
        if side.any() and not side.all() and not _first_steps(tried, at):
            found.append(_change(tried, at, is_new, rng, state=True))
    return [replace(whole, q=whole.p), *rated(found)]


def _copies(tried: Attempts) -> Bools:
    """Sessions that look like copies of another one of their version at the task."""
    table, steps = tried.table, tried.steps
    apart = [
        f"{str(name).partition(' ')[0]} {group}"
        for name, group in zip(table.trajectory.texts(), table.group.texts(), strict=True)
    ]
    split = replace(table, group=Coded.encode(apart).ordered())
    arranged, rows = arrange(split), np.zeros(len(table), dtype=np.bool_)
    rows[arranged.rows] = twins(split)[1][arranged.trajectory]
    copies: Bools = rows[steps.rows[steps.starts]]
    return copies


def _surely(found: Change, once: Change | None) -> Change:
    """The change, no surer than it is with copies counted once."""
    if once is None:
        return replace(found, p=math.nan, q=math.nan)
    p, q = ([getattr(each, name) for each in (found, once)] for name in ("p", "q"))
    return replace(found, p=float(np.max(p)), q=float(np.max(q)))  # NaN if one is


def _is_new(tried: Attempts) -> Bools:
    """Whether each session is one of the new version."""
    names = tried.table.trajectory.take(tried.steps.rows[tried.steps.starts]).texts()
    return np.array([str(name).startswith("new ") for name in names], dtype=np.bool_)


def _first_steps(tried: Attempts, places: Ints) -> bool:
    """Whether every session of the task begins here, with one action: the whole says it all."""
    steps = tried.steps
    first = places == steps.starts[steps.trajectory[places]]
    action = steps.action[places]
    return bool(first.all() and (action == action[0]).all())


def _change(
    tried: Attempts, places: Ints, is_new: Bools, rng: np.random.Generator, *, state: bool = False
) -> Change:
    steps = tried.steps
    session = steps.trajectory[places]
    side, outcome = is_new[session], tried.outcome[session]
    stratum = segments.by_appearance(tried.stratum[session], steps.group_count)[0]
    found = contrast(outcome, side, stratum, rng)
    spread = tried.spread
    change = Change(
        task="",
        state="",
        old=found.without,
        new=found.with_,
        old_sessions=int((~side).sum()),
        new_sessions=int(side.sum()),
        low=max(found.low, -spread),
        high=min(found.high, spread),
        p=found.p if smallest_p(outcome, side, stratum) <= LEVEL else math.nan,
        tasks=int(stratum.max()) + 1,
        binary=tried.binary,
    )
    if not state:
        return change
    row = steps.rows[places[:1]]
    action = steps.action[places]
    taken, first = np.unique(action, return_index=True)
    share = [[float((action[chosen] == one).mean()) for one in taken] for chosen in (~side, side)]
    most = int(np.argmax(np.abs(np.subtract(share[1], share[0]))))
    choice = contrast((action == taken[most]).astype(np.float64), side, stratum, rng)
    return replace(
        change,
        task=tried.table.group.take(row).texts()[0] or "",
        state=tried.table.state.take(row).texts()[0] or "",
        action=tried.texts(places[first[most : most + 1]])[0] if taken.size > 1 else "",
        old_share=share[0][most],
        new_share=share[1][most],
        choice_p=choice.p,
    )


def _joined(old: StepTable, new: StepTable) -> StepTable:
    """Both tables as one, in which tasks keep their names."""
    columns: dict[str, Any] = {}
    parts = []
    for table in (old, new):
        counts = ~table.flag("padding", default=False)
        if table.corrects is not None and (table.corrects.codes < 0).any():
            counts &= table.corrects.codes < 0
        parts.append(table.take(counts))
    # Only a name of the task that both have says that they attempted the same.
    shared = [name for name in ("task",) if all(getattr(each, name) is not None for each in parts)]
    for name in (*COLUMNS, *shared):
        values: list[Any] = []
        for table, version in zip(parts, ("old", "new"), strict=True):
            column = getattr(table, name)
            if name == "trajectory":
                iteration = [0] * len(table) if table.iteration is None else table.iteration
                values.append(
                    [
                        f"{version} {i} {text}"
                        for i, text in zip(iteration, column.texts(), strict=True)
                    ]
                )
            else:
                values.append(column.texts() if hasattr(column, "texts") else column.tolist())
        columns[name] = [*values[0], *values[1]]
    return StepTable.from_columns(columns)
