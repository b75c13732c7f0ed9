"""Put the rows of a table in canonical order, and find what is wrong with a table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.problems import Problem, ProblemKind, Severity, TableError
from ascribe.steps.returns import episode_return
from ascribe.steps.table import MISSING_STEP, Coded, StepTable

LARGEST_REWARD = 1e100
"""Beyond this, squares summed over a large table could overflow."""

_ARRANGED: WeakKeyDictionary[StepTable, "Arranged"] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Arranged:
    """The rows that take part (no padding), ordered by group, trajectory and step.

    All arrays but the last three have one entry per place. Labels of groups and trajectories run
    from 0 without gaps, in the order of their names; trajectories are contiguous.
    """

    rows: Ints
    """Row of the table at each place."""
    group: Ints
    trajectory: Ints
    step: Ints
    state: Ints
    action: Ints
    reward: Floats
    valid: Bools
    truncated: Bools
    """Whether the row's trajectory was cut by a limit."""
    starts: Ints
    """First place of each trajectory."""
    group_of_trajectory: Ints
    group_count: int

    @property
    def trajectory_count(self) -> int:
        """How many trajectories take part."""
        return int(self.starts.size)

    def back(self, values: npt.NDArray[Any], size: int, fill: float) -> npt.NDArray[Any]:
        """``values`` per place put back in the table's row order; ``fill`` elsewhere."""
        out = np.full(size, fill, dtype=values.dtype)
        out[self.rows] = values
        return out


def arrange(table: StepTable) -> Arranged:
    """The rows that take part, in canonical order; computed once for each table.

    A step's place follows from its trajectory and its number, so this needs no sort of the rows,
    and a table with missing or repeated steps is noticed on the way.

    Raises:
        TableError: with the fatal problems of a table whose rows cannot be put in order.
    """
    arranged = _ARRANGED.get(table) or _arrange(table)
    if arranged is None:
        raise TableError(p for p in check(table).problems if p.severity is Severity.FATAL)
    _ARRANGED[table] = arranged
    return arranged


def _arrange(table: StepTable) -> Arranged | None:
    """The canonical arrangement, or None if the table has a fatal problem."""
    real = slice(None) if table.padding is None else np.flatnonzero(~table.padding)
    group, trajectory = table.group.codes[real], table.trajectory.codes[real]
    step, reward = table.step[real], table.reward[real]
    if group.size == 0 or group.min() < 0 or trajectory.min() < 0:
        return None
    if not np.abs(reward).max() <= LARGEST_REWARD:  # also false for NaN
        return None

    length = np.bincount(trajectory, minlength=table.trajectory.values.size)
    owner = np.zeros(length.size, dtype=np.int64)
    owner[trajectory] = group
    if step.min() < 0 or (step >= length[trajectory]).any() or (owner[trajectory] != group).any():
        return None

    present = np.flatnonzero(length)
    present = present[np.argsort(owner[present], kind="stable")]
    starts = np.cumsum(length[present]) - length[present]
    start_of = np.zeros(length.size, dtype=np.int64)
    start_of[present] = starts
    at = np.full(group.size, -1, dtype=np.int64)
    at[start_of[trajectory] + step] = np.arange(group.size)
    if at.min() < 0:  # two rows wanted one place
        return None

    last = at[np.append(starts[1:], at.size) - 1]
    truncated = table.flag("truncated", default=False)[real]
    ended = truncated | table.flag("terminated", default=False)[real]
    if np.count_nonzero(ended) != np.count_nonzero(ended[last]):  # one goes on after its end
        return None

    groups, group_of_trajectory = np.unique(owner[present], return_inverse=True)
    label = np.repeat(np.arange(present.size), length[present])
    rows = at if isinstance(real, slice) else real[at]
    return Arranged(
        rows=rows,
        group=group_of_trajectory[label],
        trajectory=label,
        step=np.arange(at.size) - starts[label],
        state=table.state.codes[rows],
        action=table.action.codes[rows],
        reward=reward[at],
        valid=table.flag("valid", default=True)[rows],
        truncated=truncated[last][label],
        starts=starts,
        group_of_trajectory=group_of_trajectory,
        group_count=int(groups.size),
    )


@dataclass(frozen=True)
class CheckReport:
    """The problems of a table, worst first."""

    rows: int
    problems: Sequence[Problem]

    @property
    def worst(self) -> Severity | None:
        """The highest severity found, or None if nothing was."""
        return max((problem.severity for problem in self.problems), default=None)

    def counts(self) -> dict[str, int]:
        """How many things show each kind of problem."""
        counted: Counter[str] = Counter()
        for problem in self.problems:
            counted[problem.kind.label] += problem.count
        return dict(counted)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "rows": self.rows,
            "worst": self.worst.name.lower() if self.worst is not None else None,
            "problems": [problem.as_dict() for problem in self.problems],
        }


def check(table: StepTable, *, group_size: int | None = None) -> CheckReport:
    """Every problem of ``table``, worst first.

    Args:
        table: the steps.
        group_size: how many trajectories each group was meant to have, if known.
    """
    found = _Finder(table, group_size).problems()
    ordered = sorted(found, key=lambda problem: -problem.severity)
    return CheckReport(len(table), tuple(ordered))


def whole_groups(table: StepTable, problems: Sequence[Problem]) -> Bools:
    """The rows of problems, the rest of their trajectories, and the groups that those appear in."""
    rows = np.zeros(len(table), dtype=np.bool_)
    for problem in problems:
        rows[problem.rows] = True
    return _touched(table.group.codes, _touched(table.trajectory.codes, rows))


def _touched(codes: Ints, rows: Bools) -> Bools:
    """Rows that share a code with one of ``rows``; a missing code is shared with none."""
    hit = np.zeros(codes.max(initial=-1) + 2, dtype=np.bool_)
    hit[codes[rows]] = True
    hit[-1] = False
    return hit[codes] | rows


# Finding.


def penalty_only(valid: Bools, reward: Floats, trajectory: Ints, group: Ints) -> Bools:
    """Per group: trajectories earn the same where their actions were valid, and differ elsewhere.

    Labels are contiguous from 0. ``group`` holds the group of each trajectory. They differ
    elsewhere if the number of invalid actions or what was paid for them differs.
    """
    count, groups = group.size, int(group.max(initial=-1)) + 1
    earned = segments.total(np.where(valid, reward, 0.0), trajectory, count)
    invalid = segments.total((~valid).astype(np.float64), trajectory, count)
    paid = segments.total(np.where(valid, 0.0, reward), trajectory, count)
    same = segments.constant(earned, group, groups)
    differ = ~segments.constant(invalid, group, groups) | ~segments.constant(paid, group, groups)
    return same & differ


def first_names(column: Coded, codes: Ints) -> str:
    """The first of these values of a column, and how many there are besides."""
    shown = ", ".join(repr(column.values[code])[:60] for code in codes[:3])
    return f"{shown} and {codes.size - 3:,} more" if codes.size > 3 else shown


class _Finder:
    """One pass of checks over the rows that are not padding."""

    def __init__(self, table: StepTable, group_size: int | None) -> None:
        self.table = table
        self.group_size = group_size
        self.padding = table.flag("padding", default=False)
        self.real = np.flatnonzero(~self.padding)
        self.found: list[Problem] = []

    def problems(self) -> list[Problem]:
        if self.real.size == 0:
            detail = "no rows" if len(self.table) == 0 else "every row is padding"
            return [Problem(ProblemKind.EMPTY_TABLE, detail, count=0)]
        self._padding()
        self._values()
        self._identity()
        fatal = [problem for problem in self.found if problem.severity is Severity.FATAL]
        if fatal:
            self._sound_groups(fatal)
        else:
            self._groups()
        return self.found

    def _add(self, kind: ProblemKind, detail: str, rows: Ints, count: int | None = None) -> None:
        if rows.size:
            self.found.append(Problem(kind, detail, np.sort(rows), count or int(rows.size)))

    def _add_where(self, kind: ProblemKind, detail: str, mask: Bools) -> None:
        """``mask`` is over real rows; ``detail`` has ``{n}`` for their number."""
        rows = self.real[mask]
        self._add(kind, detail.format(n=f"{rows.size:,}"), rows)

    def _padding(self) -> None:
        group = self.table.group.codes
        real_groups = np.zeros(self.table.group.values.size + 1, dtype=np.bool_)
        real_groups[group[self.real]] = True
        real_groups[-1] = False
        inside = self.padding & real_groups[group]
        rows = np.flatnonzero(inside)
        self._add(ProblemKind.PADDING_IN_GROUP, f"{rows.size:,} padding rows inside groups", rows)

    def _values(self) -> None:
        table, real = self.table, self.real
        reward = table.reward[real]
        finite = np.isfinite(reward)
        self._add_where(
            ProblemKind.NON_FINITE_REWARD, "{n} rewards are not finite numbers", ~finite
        )
        large = finite & (np.abs(np.where(finite, reward, 0.0)) > LARGEST_REWARD)
        self._add_where(ProblemKind.REWARD_TOO_LARGE, "{n} rewards are beyond 1e100", large)
        for column, missing, empty in (
            (table.state, ProblemKind.MISSING_STATE, ProblemKind.EMPTY_STATE),
            (table.action, ProblemKind.MISSING_ACTION, ProblemKind.EMPTY_ACTION),
        ):
            name = missing.label.removeprefix("missing_")
            self._add_where(missing, f"{{n}} rows have no {name}", column.codes[real] < 0)
            self._add_where(empty, f"{{n}} rows have an empty {name}", _blank(column)[real])
        if table.agent is not None:
            self._add_where(
                ProblemKind.MISSING_AGENT, "{n} rows name no agent", table.agent.codes[real] < 0
            )
        if table.terminated is not None and table.truncated is not None:
            both = (table.terminated & table.truncated)[real]
            self._add_where(
                ProblemKind.TERMINATED_AND_TRUNCATED, "{n} rows are terminated and truncated", both
            )

    def _identity(self) -> None:
        """Whether rows say which decision they are, each decision once, in order."""
        table, real = self.table, self.real
        group, trajectory = table.group.codes[real], table.trajectory.codes[real]
        step = table.step[real]
        self._add_where(ProblemKind.MISSING_GROUP, "{n} rows name no group", group < 0)
        self._add_where(
            ProblemKind.MISSING_TRAJECTORY, "{n} rows name no trajectory", trajectory < 0
        )
        missing = step == MISSING_STEP
        self._add_where(ProblemKind.MISSING_STEP, "{n} rows have no step number", missing)
        self._add_where(
            ProblemKind.NEGATIVE_STEP, "{n} rows have a negative step", ~missing & (step < 0)
        )
        self._two_groups(group, trajectory)
        self._order(trajectory, step)

    def _two_groups(self, group: Ints, trajectory: Ints) -> None:
        known = (group >= 0) & (trajectory >= 0)
        owner = np.full(self.table.trajectory.values.size, -1, dtype=np.int64)
        owner[trajectory[known]] = group[known]
        strange = np.zeros(owner.size, dtype=np.bool_)
        strange[trajectory[known][owner[trajectory[known]] != group[known]]] = True
        names = first_names(self.table.trajectory, np.flatnonzero(strange))
        rows = self.real[known][strange[trajectory[known]]]
        self._add(
            ProblemKind.TRAJECTORY_IN_TWO_GROUPS,
            f"in two groups: {names}",
            rows,
            int(strange.sum()),
        )

    def _order(self, trajectory: Ints, step: Ints) -> None:
        known = np.flatnonzero((trajectory >= 0) & (step >= 0))
        order = known[np.lexsort((known, step[known], trajectory[known]))]
        if order.size == 0:
            return
        run, number = trajectory[order], step[order]
        same = np.append(False, run[1:] == run[:-1])
        again = same & (np.append(-1, number[:-1]) == number)
        self._repeated(order, again)
        late = ~same & (number > 0)
        self._list(ProblemKind.LATE_START, "does not start at step 0", order, late)
        gap = same & (number > np.append(0, number[:-1]) + 1)
        self._list(ProblemKind.GAP_IN_STEPS, "has a gap before this step", order, gap)

        rows = self.real[order]
        ended = self.table.flag("terminated", default=False)[rows]
        ended = ended | self.table.flag("truncated", default=False)[rows]
        last = np.append(run[1:] != run[:-1], True)
        before: Ints = np.cumsum(ended) - ended
        starts = np.flatnonzero(~same)
        lengths = np.diff(np.append(starts, order.size))
        over = before > np.repeat(before[starts], lengths)
        self._list(ProblemKind.STEPS_AFTER_END, "goes on after its end", order, over)
        if ended.any():
            open_end = last & ~ended & ~over
            self._list(ProblemKind.UNFINISHED_TRAJECTORY, "has no end", order, open_end)
        valid = self.table.flag("valid", default=True)[rows]
        none_valid = np.logical_or.reduceat(valid, starts)
        mute = np.repeat(~none_valid, lengths)
        self._list(ProblemKind.ALL_ACTIONS_INVALID, "has no valid action", order, mute)

    def _repeated(self, order: Ints, again: Bools) -> None:
        """Rows with the trajectory and step of the row before them, in ``order``."""
        rows = self.real[order]
        copy = again.copy()
        for name, column in self.table.columns().items():
            if name not in ("padding", "fingerprint"):
                values = (column.codes if isinstance(column, Coded) else column)[rows]
                copy[1:] &= values[1:] == values[:-1]
        self._list(ProblemKind.DUPLICATE_ROW, "repeats a row exactly", order, copy)
        self._list(ProblemKind.DUPLICATE_STEP, "has a step twice", order, again & ~copy)

    def _list(self, kind: ProblemKind, said: str, order: Ints, mask: Bools) -> None:
        """A problem of whole trajectories, found at the places of ``order`` given by ``mask``."""
        rows = self.real[order[mask]]
        if rows.size:
            codes = np.unique(self.table.trajectory.codes[rows])
            names = first_names(self.table.trajectory, codes)
            self._add(kind, f"trajectory {names} {said}", rows, int(codes.size))

    def _sound_groups(self, fatal: Sequence[Problem]) -> None:
        """What the groups can teach that no fatal problem touches: a policy may go on with them."""
        sound = np.flatnonzero(~whole_groups(self.table, fatal) & ~self.padding)
        if sound.size:
            rest = _Finder(self.table.take(sound), self.group_size)
            rest._groups()
            self.found += [replace(problem, rows=sound[problem.rows]) for problem in rest.found]

    def _groups(self) -> None:
        """What groups can teach; only for tables whose rows say which decision they are."""
        table = self.table
        arranged = arrange(table)
        group_of, groups = arranged.group_of_trajectory, arranged.group_count
        size = np.bincount(group_of, minlength=groups)
        place_of_name = arranged.rows[arranged.starts]
        first = segments.first_rows(group_of, groups)
        codes = table.group.codes[place_of_name[first]]

        def add(kind: ProblemKind, said: str, which: Bools) -> None:
            if which.any():
                names = first_names(table.group, np.sort(codes[which]))
                rows = arranged.rows[which[arranged.group]]
                self._add(kind, f"group {names} {said}", rows, int(which.sum()))

        # As many corrections are written as there are wrong answers: none is declared.
        answers = np.ones(groups, dtype=np.bool_)
        if table.corrects is not None:
            answers = table.corrects.codes[place_of_name[first]] < 0
        add(ProblemKind.GROUP_OF_ONE, "has one trajectory", answers & (size == 1))
        if self.group_size is not None:
            declared = f"not the declared {self.group_size}"
            few, many = answers & (size < self.group_size), answers & (size > self.group_size)
            add(ProblemKind.PARTIAL_GROUP, f"has fewer trajectories, {declared}", few)
            add(ProblemKind.OVERFULL_GROUP, f"has more trajectories, {declared}", many)
        returns = episode_return(arranged.reward, arranged.trajectory, arranged.trajectory_count)
        penalised = penalty_only(arranged.valid, arranged.reward, arranged.trajectory, group_of)
        equal = segments.constant(returns, group_of, groups) & (size > 1)
        add(ProblemKind.EQUAL_RETURNS, "has equal returns", equal & ~penalised)
        add(ProblemKind.ONLY_PENALTIES_DIFFER, "differs by penalties alone", penalised & (size > 1))

        start_state = table.state.codes[place_of_name].astype(np.float64)
        alike = segments.constant(start_state, group_of, groups)
        add(ProblemKind.DIFFERENT_STARTS, "starts in different states", ~alike)
        labels, count = segments.pairs(arranged.group, arranged.state, table.state.values.size)
        owner = arranged.group[segments.first_rows(labels, count)]
        states = np.bincount(owner, minlength=groups)
        with_state = np.bincount(arranged.group[labels >= 0], minlength=groups)
        crowd = (size > 1) & (with_state > 1)
        add(
            ProblemKind.ALL_STATES_DISTINCT,
            "never visits a state twice",
            crowd & (states == with_state),
        )
        add(ProblemKind.ONE_STATE_ONLY, "has one state in every row", crowd & (states == 1))
        self._across(labels, count)

    def _across(self, labels: Ints, count: int) -> None:
        arranged = arrange(self.table)
        states = arranged.state[segments.first_rows(labels, count)]
        shared = np.bincount(states, minlength=self.table.state.values.size + 1) > 1
        rows = arranged.rows[(arranged.state >= 0) & shared[arranged.state]]
        names = first_names(self.table.state, np.flatnonzero(shared))
        self._add(
            ProblemKind.STATE_ACROSS_TASKS, f"in several groups: {names}", rows, int(shared.sum())
        )


def _blank(column: Coded) -> Bools:
    """Rows whose text is there and holds nothing but white space."""
    blank = np.fromiter((not text.strip() for text in column.values), np.bool_, column.values.size)
    return np.append(blank, False)[column.codes]
