"""Two versions of an agent, compared fork by fork: what they did in a state, and how it ended."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ascribe.decisions.attempts import Attempts, attempts
from ascribe.decisions.contrasts import LEVEL, both_sides, contrast, smallest_p
from ascribe.decisions.decision import LONGEST, amount, call, rated, signed
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.hints import option
from ascribe.steps.problems import counted, one_line
from ascribe.steps.table import StepTable

COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")


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
    rng = np.random.default_rng(0) if rng is None else rng
    tried = attempts(_joined(old, new))
    steps = tried.steps
    names = tried.table.trajectory.take(steps.rows[steps.starts]).texts()
    is_new = np.array([str(name).startswith("new ") for name in names], dtype=np.bool_)
    inside, _ = both_sides(is_new, tried.stratum)
    if not inside.any():
        raise ValueError(
            "the two versions attempted no task in common, so nothing can be compared; give both "
            f"the same tasks, or name the field that holds the task ({option('group')})"
        )
    whole = _change(tried, steps.starts[inside], is_new, rng)
    places = tried.first_visits()
    found = []
    for at in np.split(places, np.flatnonzero(np.diff(tried.state[places])) + 1):
        side = is_new[steps.trajectory[at]]
        if side.any() and not side.all() and not _first_steps(tried, at):
            found.append(_change(tried, at, is_new, rng, state=True))
    states = sorted(
        rated(found),
        key=lambda each: (math.isnan(each.q), each.q, -abs(each.drop), each.task, each.state),
    )
    return (replace(whole, q=whole.p), *states)


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
    parts = [table.take(~table.flag("padding", default=False)) for table in (old, new)]
    for name in COLUMNS:
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
