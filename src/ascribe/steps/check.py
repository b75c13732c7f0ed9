"""Put the rows of a table in canonical order, and find what is wrong with a table."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Brief, Floats, Ints
from ascribe.steps.problems import Problem, ProblemKind, Severity, TableError, counted
from ascribe.steps.returns import episode_outcome
from ascribe.steps.starts import Starts, compare_starts
from ascribe.steps.table import INPUT_COLUMNS, MISSING_STEP, Coded, StepTable, once

FATAL = Severity.FATAL
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

    def to_table_order(self, values: npt.NDArray[Any], size: int, fill: float) -> npt.NDArray[Any]:
        """``values`` of each place in the table's row order; ``fill`` for rows without a place."""
        ordered = np.full(size, fill, dtype=values.dtype)
        ordered[self.rows] = values
        return ordered


def arrange(table: StepTable) -> Arranged:
    """The rows that take part, in canonical order; computed once for each table.

    A step's place follows from its trajectory and its number, so this needs no sort of the rows,
    and a table with missing or repeated steps is noticed on the way.

    Raises:
        TableError: with the fatal problems of a table whose rows cannot be put in order.
    """
    arranged = _ARRANGED.get(table) or _arrange(table)
    if arranged is None:
        unusable = (ProblemKind.MISSING_REWARD, *(k for k in ProblemKind if k.severity is FATAL))
        raise TableError(p for p in check(table).problems if p.kind in unusable)
    _ARRANGED[table] = arranged
    return arranged


def _arrange(table: StepTable) -> Arranged | None:
    """The canonical arrangement, or None if the table has a fatal problem."""
    real = slice(None) if table.padding is None else np.flatnonzero(~table.padding)
    group, trajectory = table.group.codes[real], table.trajectory.codes[real]
    step, reward = table.step[real], table.reward[real]
    if group.size == 0 or group.min() < 0 or trajectory.min() < 0:
        return None
    if table.iteration is not None:
        number = table.iteration[real]
        group, trajectory = _within(number, group), _within(number, trajectory)
    optional = (values[real] for values in _numbers(table).values())
    largest = [np.fmax.reduce(np.abs(values), initial=0.0) for values in optional]  # skips NaN
    if not np.max([np.abs(reward).max(), *largest]) <= LARGEST_REWARD:  # also false for NaN
        return None

    length = np.bincount(trajectory)
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
    if at.min() < 0:  # two rows have the same trajectory and step
        return None

    last = at[np.append(starts[1:], at.size) - 1]
    truncated = table.flag("truncated", default=False)[real]
    ended = truncated | table.flag("terminated", default=False)[real]
    if np.count_nonzero(ended) != np.count_nonzero(ended[last]):  # steps after an end
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


@once
def starts_of(table: StepTable) -> Starts:
    """Whether the attempts of each group may be compared; groups as ``arrange`` numbers them."""
    steps = arrange(table)
    first = steps.rows[steps.starts]
    return compare_starts(table, first, steps.group_of_trajectory, steps.group_count)


def _numbers(table: StepTable) -> dict[str, Floats]:
    """The columns of numbers that may be NaN, by what they hold, as far as they are there."""
    names = {"without": "returns without an agent"}
    names |= {name: f"numbers in {name}" for name in INPUT_COLUMNS}
    columns = table.columns()
    return {names[name]: columns[name] for name in names if name in columns}


def _within(iteration: Ints, codes: Ints) -> Ints:
    """Codes that tell apart what has one name in two iterations, by iteration and then by name."""
    _, place = np.unique(iteration, return_inverse=True)
    return np.unique(place * (codes.max() + 1) + codes, return_inverse=True)[1]


@dataclass(frozen=True, repr=False)
class CheckReport(Brief):
    """The problems of a table, worst first.

    Example:
        >>> report = ascribe.check(table, group_size=4)
        >>> report.worst
        <Severity.ERROR: 2>
        >>> report.counts()
        {'partial_group': 1}
    """

    rows: int
    problems: Sequence[Problem]

    @property
    def worst(self) -> Severity | None:
        """The highest severity, or None without problems."""
        return max((problem.severity for problem in self.problems), default=None)

    def counts(self) -> dict[str, int]:
        """Number of rows, trajectories, groups or columns with each kind of problem."""
        totals: Counter[str] = Counter()
        for problem in self.problems:
            totals[problem.kind.label] += problem.count
        return dict(totals)

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

    Example:
        >>> for problem in ascribe.check(table, group_size=4).problems:
        ...     print(problem.kind.label, "-", problem.detail)
        partial_group - group 'apple' has fewer trajectories, not the declared 4
    """
    iterations = table.iterations()
    if len(iterations) > 1:
        reports = [check(part, group_size=group_size) for _, _, part in iterations]
        return join_reports(reports, [rows for _, rows, _ in iterations])
    problems = _TableChecker(table, group_size).problems()
    return CheckReport(len(table), tuple(sorted(problems, key=lambda p: -p.severity)))


def join_reports(reports: Sequence[CheckReport], rows: Sequence[Ints]) -> CheckReport:
    """The problems of several iterations, of which these are the rows in the whole table."""
    located = [
        replace(problem, rows=place[problem.rows])
        for report, place in zip(reports, rows, strict=True)
        for problem in report.problems
    ]
    problems = join_problems(located, "iteration")
    return CheckReport(sum(report.rows for report in reports), tuple(problems))


def join_problems(problems: Iterable[Problem], unit: str, most: int | None = None) -> list[Problem]:
    """The problems of several units of a table, each kind once, worst first.

    A problem has the detail of the first of its kind, and lists at most ``most`` rows.
    """
    by_kind: dict[ProblemKind, list[Problem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind, []).append(problem)
    joined = []
    for kind, of_kind in by_kind.items():
        others = counted(len(of_kind) - 1, f"more {unit}")
        detail = of_kind[0].detail + (f"; and in {others}" if len(of_kind) > 1 else "")
        rows = np.sort(np.concatenate([problem.rows for problem in of_kind]))[:most]
        unlisted = sum(problem.row_count for problem in of_kind) - rows.size
        joined.append(Problem(kind, detail, rows, sum(p.count for p in of_kind), unlisted))
    return sorted(joined, key=lambda problem: -problem.severity)


def whole_groups(table: StepTable, problems: Sequence[Problem]) -> Bools:
    """Mask of all rows in the trajectories and groups that the problems affect."""
    return _spread(_spread(_rows_of(problems, len(table)), table.trajectory), table.group)


def without_reward(table: StepTable, problems: Sequence[Problem]) -> Bools:
    """Mask of all rows in the trajectories that have no reward, which are left out."""
    missing = [each for each in problems if each.kind is ProblemKind.MISSING_REWARD]
    return _spread(_rows_of(missing, len(table)), table.trajectory)


def _rows_of(problems: Sequence[Problem], size: int) -> Bools:
    rows = np.zeros(size, dtype=np.bool_)
    for problem in problems:
        rows[problem.rows] = True
    return rows


def _spread(rows: Bools, column: Coded) -> Bools:
    """The rows, and all that have the same value as one of them."""
    affected = np.zeros(column.codes.max(initial=-1) + 2, dtype=np.bool_)
    affected[column.codes[rows]] = True
    affected[-1] = False  # code -1: rows without a name do not belong together
    return rows | affected[column.codes]


def _taken(column: Coded, rows: Bools) -> Ints:
    """One of these rows for each value of the column."""
    at = np.flatnonzero(rows & (column.codes >= 0))
    return at[np.unique(column.codes[at], return_index=True)[1]]


def no_response(table: StepTable) -> Bools:
    """Mask of the rows without a state and an action that are all their trajectory has.

    Such a row stands for a session in which the policy wrote nothing, so that its reward counts.
    """
    empty = (table.state.codes < 0) & (table.action.codes < 0) & (table.trajectory.codes >= 0)
    empty &= ~table.flag("padding", default=False)
    if not empty.any():
        return empty
    alone = np.append(np.bincount(table.trajectory.codes[table.trajectory.codes >= 0]) == 1, False)
    silent: Bools = empty & alone[table.trajectory.codes]
    return silent


def penalty_only(valid: Bools, reward: Floats, trajectory: Ints, group: Ints) -> Bools:
    """Per group: whether trajectories differ in their invalid actions alone.

    They earn the same with valid actions, and differ in the number of invalid actions or in the
    reward for these. Labels are contiguous from 0; ``group`` holds the group of each trajectory.
    """
    count, groups = group.size, int(group.max(initial=-1)) + 1
    earned = episode_outcome(np.where(valid, reward, 0.0), trajectory, count)
    invalid = segments.total((~valid).astype(np.float64), trajectory, count)
    penalty = episode_outcome(np.where(valid, 0.0, reward), trajectory, count)
    same_earned = segments.constant(earned, group, groups)
    differ = ~segments.constant(invalid, group, groups) | ~segments.constant(penalty, group, groups)
    return same_earned & differ


def first_names(column: Coded, codes: Ints) -> str:
    """The first of these values of a column, and how many more there are."""
    names = ", ".join(repr(column.values[code])[:60] for code in codes[:3])
    return f"{names} and {codes.size - 3:,} more" if codes.size > 3 else names


LONG_TEXT = 500
"""Characters of actions that are hardly sampled twice, unless the policy often repeats itself."""


def _repeats(table: StepTable, steps: Arranged) -> tuple[Ints, Bools, Bools]:
    """Trajectories that repeat an earlier one of their group; and which look like copies of it.

    Before both, for each trajectory the first of its group that it equals.

    A repetition is equal in every column. It may be honest: of a short task, of a policy that is
    nearly greedy, of an agent that is stuck, so one that takes a single decision does not count. It
    looks like a copy if the group is unlikely to repeat itself so long. With h the share of pairs
    of trajectories that do the same in the same state at the same step, not counting the pair
    itself, the expected number of such repetitions is pairs * h ** decisions. Of two rollouts,
    fingerprints usually differ in some bit.
    """
    first, count = _first_equal(table, steps), steps.trajectory_count
    repeats = first != np.arange(count)
    if not repeats.any():
        return first, repeats, repeats
    at = _decisions(steps)
    different = np.bincount(steps.trajectory[at], minlength=count)
    length_of = np.array([*map(len, table.action.values), 0], dtype=np.float64)
    characters = segments.total(length_of[steps.action[at]], steps.trajectory[at], count)
    repeats &= (different > 1) | (characters >= LONG_TEXT)

    group, groups = steps.group_of_trajectory, steps.group_count

    def other_pairs(*labels: Ints) -> Floats:
        """Pairs of rows with equal labels in each trajectory's group, without one of its own."""
        known = (np.min(labels, axis=0) >= 0).astype(np.float64)
        own = segments.total(known, steps.trajectory, count)
        return np.maximum(_pairs(steps.group, steps.step, groups, *labels)[group] - own, 0.0)

    agree = (other_pairs(steps.state, steps.action) + 1) / (other_pairs(steps.state) + 2)
    size = np.bincount(group)[group]
    expected = size * (size - 1) / 2 * agree**different
    is_copy = (expected < 0.01) | ((characters >= LONG_TEXT) & (agree < 0.2))
    if table.fingerprint is not None:
        at = np.flatnonzero((repeats & is_copy)[steps.trajectory])
        model = steps.starts[first[steps.trajectory[at]]] + steps.step[at]
        vectors = table.fingerprint
        differ = (vectors[steps.rows[at]] != vectors[steps.rows[model]]).any(axis=1)
        is_copy[steps.trajectory[at[differ]]] = False
    return first, repeats, is_copy


def twins(table: StepTable) -> tuple[Bools, Bools]:
    """Trajectories that equal another one of their group; and those that look like copies of it.

    Of equal ones, the first is the original, which is no copy. Beside what ``check`` calls a copy,
    all repetitions of a group look so if there are far more of them than a policy is expected to
    make, and if trajectories with equal decisions hardly ever earn differently, as attempts would.
    What is expected follows from how often decisions agree in trajectories that differ, or from
    how often trajectories of different groups take the same actions, whichever is more. With
    fingerprints, ``check`` tells copies by itself. Trajectories are numbered as ``arrange`` does.
    """
    steps = arrange(table)
    first, repeats, is_copy = _repeats(table, steps)
    equal, copies = repeats.copy(), repeats & is_copy
    equal[first[repeats]] = True
    if table.fingerprint is not None or not (repeats & ~is_copy).any():
        return equal, copies
    group, groups, count = steps.group_of_trajectory, steps.group_count, steps.trajectory_count
    earned = episode_outcome(steps.reward, steps.trajectory, count)
    outcome = np.unique(earned, return_inverse=True)[1].ravel().astype(np.int64)
    words, actions = (
        _class_of(table, steps, names) for names in (("state", "action"), ("action",))
    )
    every, alike = _pairs(group, group, groups), _pairs(group, words, groups)
    apart = np.maximum(every - alike, 1)
    same_outcome = _pairs(group, words, groups, outcome)
    differ = (alike - same_outcome) / np.maximum(alike, 1)
    concordant = differ <= (apart - _pairs(group, outcome, groups) + same_outcome) / apart / 4

    # How often decisions agree, of one trajectory for each that differs.
    own = segments.pairs(group, words, count)
    at = np.flatnonzero(np.isin(np.arange(count), segments.first_rows(*own))[steps.trajectory])
    place, places = segments.pairs(steps.group[at], steps.state[at], table.state.values.size)
    place, _ = segments.pairs(steps.step[at], place, places)
    met, agreed = (
        _pairs(steps.group[at], place, groups, *more) for more in ((), (steps.action[at],))
    )
    length = np.bincount(steps.trajectory[_decisions(steps)], minlength=count)
    within = ((agreed + 1) / (met + 2))[group] ** length
    elsewhere = count * (count - 1) / 2 - every.sum()
    across = _pairs(actions * 0, actions, 1).sum() - _pairs(group, actions, groups).sum()
    expected = every[group] * np.maximum(within, across / max(elsewhere, 1))
    mean = segments.mean(expected, np.where(repeats, group, -1), groups)
    many = np.bincount(group, repeats, groups) > mean + 4 * np.sqrt(mean) + 1
    copies |= repeats & (many & concordant)[group]
    return equal, copies


def _pairs(group: Ints, label: Ints, groups: int, *more: Ints) -> Floats:
    """How many pairs of each group have the same labels."""
    both, count = segments.pairs(group, label, int(label.max(initial=0)) + 1)
    for each in more:
        both, count = segments.pairs(both, each, int(each.max(initial=0)) + 1)
    size = segments.size(both, count)
    return segments.total(size * (size - 1) / 2, group[segments.first_rows(both, count)], groups)


def _decisions(steps: Arranged) -> Ints:
    """The first place of each different decision of each trajectory."""
    decision = segments.pairs(steps.state, steps.action, int(steps.action.max(initial=0)) + 1)
    return segments.first_rows(*segments.pairs(steps.trajectory, *decision))


UNCOMPARED = ("group", "trajectory", "step", "padding", "fingerprint", "iteration")
"""Columns in which trajectories may differ and be equal all the same."""


def _first_equal(table: StepTable, steps: Arranged) -> Ints:
    """For each trajectory, the first of its group that is equal in every column."""
    sums = _class_of(table, steps, set(table.columns()).difference(UNCOMPARED))
    order = np.lexsort((sums, steps.group_of_trajectory))
    group, sums = steps.group_of_trajectory[order], sums[order]
    new = np.append(True, (group[1:] != group[:-1]) | (sums[1:] != sums[:-1]))
    first = np.empty(order.size, dtype=np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    return first


def _class_of(table: StepTable, steps: Arranged, names: Collection[str]) -> Ints:
    """A label for each trajectory, equal for those that are equal in these columns."""
    key = steps.step.astype(np.uint64)
    for name, column in table.columns().items():
        if name not in names:
            continue
        values = (column.codes if isinstance(column, Coded) else column)[steps.rows]
        bits = (values + 0.0).view(np.uint64)  # 0.0 makes one zero of two
        key = (key ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    # The last column has changed few bits; sums of these would be equal for other orders of steps.
    key = (key ^ key >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ key >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    sums = np.add.reduceat(key ^ key >> np.uint64(31), steps.starts)
    return np.unique(sums, return_inverse=True)[1].ravel().astype(np.int64)


def _per_step(steps: Arranged) -> Bools:
    """Per group: whether each trajectory has one reward on all its steps, and they differ in it."""
    several = np.diff(np.append(steps.starts, steps.reward.size)) > 1
    group = steps.group_of_trajectory
    reward = steps.reward[steps.starts][several]
    differ = ~segments.constant(reward, group[several], steps.group_count)
    constant = segments.constant(steps.reward, steps.trajectory, steps.trajectory_count)
    differ[group[~constant]] = False
    return differ


class _TableChecker:
    """Checks of the rows that are not padding; ``issues`` holds the problems."""

    def __init__(self, table: StepTable, group_size: int | None) -> None:
        self.table = table
        self.group_size = group_size
        self.padding = table.flag("padding", default=False)
        self.real = np.flatnonzero(~self.padding)
        self.absent = np.zeros(table.group.values.size, dtype=np.int64)
        """Trajectories of each group that are left out for they have no reward."""
        self.issues: list[Problem] = []

    def problems(self) -> list[Problem]:
        if self.real.size == 0:
            detail = "no rows" if len(self.table) == 0 else "every row is padding"
            return [Problem(ProblemKind.EMPTY_TABLE, detail, count=0)]
        self._check_padding()
        self._check_values()
        self._check_names()
        self._check_order()
        fatal = [problem for problem in self.issues if problem.severity is FATAL]
        broken = whole_groups(self.table, fatal) | without_reward(self.table, self.issues)
        if not broken.any():
            self._check_groups()
            return self.issues
        # The groups without a fatal problem may be credited, so they are checked by themselves.
        sound = np.flatnonzero(~broken & ~self.padding)
        if sound.size:
            rest = _TableChecker(self.table.take(sound), self.group_size)
            left_out = _taken(self.table.trajectory, without_reward(self.table, self.issues))
            rest.absent = np.bincount(
                np.maximum(self.table.group.codes[left_out], 0),
                minlength=self.table.group.values.size,
            )
            rest._check_groups()
            self.issues += [replace(problem, rows=sound[problem.rows]) for problem in rest.issues]
        return self.issues

    def _add(self, kind: ProblemKind, detail: str, rows: Ints, count: int | None = None) -> None:
        """Add a problem, if it has rows; without a count, ``detail`` follows their number."""
        if rows.size == 0:
            return
        if count is None:
            count, detail = int(rows.size), f"{rows.size:,} {detail}"
        self.issues.append(Problem(kind, detail, np.sort(rows), count))

    def _add_trajectories(self, kind: ProblemKind, detail: str, rows: Ints) -> None:
        if rows.size:
            codes = np.unique(self.table.trajectory.codes[rows])
            names = first_names(self.table.trajectory, codes)
            self._add(kind, f"trajectory {names} {detail}", rows, int(codes.size))

    def _check_padding(self) -> None:
        group = self.table.group.codes
        has_real_rows = np.zeros(self.table.group.values.size + 1, dtype=np.bool_)
        has_real_rows[group[self.real]] = True
        has_real_rows[-1] = False
        rows = np.flatnonzero(self.padding & has_real_rows[group])
        self._add(ProblemKind.PADDING_IN_GROUP, "padding rows inside groups", rows)

    def _check_values(self) -> None:
        table, real = self.table, self.real
        rewards = table.reward[real]
        missing_reward = np.isnan(table.reward) & (table.trajectory.codes >= 0) & ~self.padding
        if not _spread(missing_reward, table.trajectory)[real].all():
            rows = np.flatnonzero(missing_reward)
            self._add_trajectories(ProblemKind.MISSING_REWARD, "has no reward", rows)
            rewards = np.where(missing_reward[real], 0.0, rewards)
        returns = {"rewards": rewards}
        for name, numbers in _numbers(table).items():  # NaN means that there is none
            returns[name] = np.nan_to_num(numbers[real], posinf=np.inf, neginf=-np.inf)
        for name, values in returns.items():
            finite = np.isfinite(values)
            large = finite & (np.abs(values) > LARGEST_REWARD)
            kind = ProblemKind.NON_FINITE_REWARD
            self._add(kind, f"{name} are not finite numbers", real[~finite])
            self._add(ProblemKind.REWARD_TOO_LARGE, f"{name} are beyond 1e100", real[large])
        silent = no_response(table)[real]
        self._add_trajectories(ProblemKind.NO_RESPONSE, "has no response", real[silent])
        for column, name, missing, empty in (
            (table.state, "state", ProblemKind.MISSING_STATE, ProblemKind.EMPTY_STATE),
            (table.action, "action", ProblemKind.MISSING_ACTION, ProblemKind.EMPTY_ACTION),
        ):
            codes = column.codes[real]
            spaces = map(str.isspace, column.values)
            blank = np.array([*spaces, False], dtype=np.bool_)
            blank[np.flatnonzero(column.values == "")] = True
            self._add(missing, f"rows have no {name}", real[(codes < 0) & ~silent])
            self._add(empty, f"rows have an empty {name}", real[blank[codes]])
        if table.agent is not None:
            rows = real[table.agent.codes[real] < 0]
            self._add(ProblemKind.MISSING_AGENT, "rows name no agent", rows)
        if table.parent is not None:
            self._check_parents(table.parent)
        if table.terminated is not None and table.truncated is not None:
            rows = real[(table.terminated & table.truncated)[real]]
            detail = "rows are terminated and truncated"
            self._add(ProblemKind.TERMINATED_AND_TRUNCATED, detail, rows)

    def _check_parents(self, parent: Ints) -> None:
        """The parent of a step is an earlier step of its trajectory."""
        trajectory = self.table.trajectory.codes
        rows = self.real[(parent[self.real] != MISSING_STEP) & (trajectory[self.real] >= 0)]
        length = np.bincount(trajectory[self.real] + 1)[trajectory[rows] + 1]
        inside = (parent[rows] >= 0) & (parent[rows] < length)
        add = self._add_trajectories
        add(ProblemKind.ORPHAN_STEP, "names a parent that it lacks", rows[~inside])
        late = rows[inside & (parent[rows] >= self.table.step[rows])]
        add(ProblemKind.PARENT_NOT_BEFORE, "names a parent that is not before it", late)

    def _check_names(self) -> None:
        """Every row names its group, trajectory and step; a trajectory is in one group."""
        table, real = self.table, self.real
        group, trajectory = table.group.codes[real], table.trajectory.codes[real]
        step = table.step[real]
        self._add(ProblemKind.MISSING_GROUP, "rows name no group", real[group < 0])
        rows = real[trajectory < 0]
        self._add(ProblemKind.MISSING_TRAJECTORY, "rows name no trajectory", rows)
        missing = step == MISSING_STEP
        self._add(ProblemKind.MISSING_STEP, "rows have no step number", real[missing])
        negative = real[~missing & (step < 0)]
        self._add(ProblemKind.NEGATIVE_STEP, "rows have a negative step", negative)

        named = (group >= 0) & (trajectory >= 0)
        real, group, trajectory = real[named], group[named], trajectory[named]
        owner = np.full(table.trajectory.values.size, -1, dtype=np.int64)
        owner[trajectory] = group
        in_two_groups = np.zeros(owner.size, dtype=np.bool_)
        in_two_groups[trajectory[owner[trajectory] != group]] = True
        detail = f"in two groups: {first_names(table.trajectory, np.flatnonzero(in_two_groups))}"
        kind = ProblemKind.TRAJECTORY_IN_TWO_GROUPS
        self._add(kind, detail, real[in_two_groups[trajectory]], int(in_two_groups.sum()))

    def _check_order(self) -> None:
        """The steps of each trajectory are 0, 1, 2, ... and stop at its end."""
        table, real = self.table, self.real
        placed = real[(table.trajectory.codes[real] >= 0) & (table.step[real] >= 0)]
        if placed.size == 0:
            return
        arranged = _ARRANGED.get(table) or _arrange(table)
        if arranged is None:
            order = np.lexsort((placed, table.step[placed], table.trajectory.codes[placed]))
            rows = placed[order]
        else:  # the steps are in order, and this is cheaper
            _ARRANGED[table], rows = arranged, arranged.rows
        trajectory, step = table.trajectory.codes[rows], table.step[rows]
        same_trajectory = np.append(False, trajectory[1:] == trajectory[:-1])
        previous = np.append(-1, step[:-1])
        repeated = same_trajectory & (step == previous)
        copy = repeated.copy()
        for name, column in table.columns().items() if repeated.any() else ():
            if name not in ("padding", "fingerprint"):
                values = (column.codes if isinstance(column, Coded) else column)[rows]
                copy[1:] &= values[1:] == values[:-1]
        add = self._add_trajectories
        add(ProblemKind.DUPLICATE_ROW, "repeats a row exactly", rows[copy])
        add(ProblemKind.DUPLICATE_STEP, "has a step twice", rows[repeated & ~copy])
        add(ProblemKind.LATE_START, "does not start at step 0", rows[~same_trajectory & (step > 0)])
        gap = same_trajectory & (step > previous + 1)
        add(ProblemKind.GAP_IN_STEPS, "has a gap before this step", rows[gap])

        terminated = table.flag("terminated", default=False)[rows]
        ended = terminated | table.flag("truncated", default=False)[rows]
        starts = np.flatnonzero(~same_trajectory)
        lengths = np.diff(np.append(starts, rows.size))
        ends_before: Ints = np.cumsum(ended) - ended
        over = ends_before > np.repeat(ends_before[starts], lengths)
        add(ProblemKind.STEPS_AFTER_END, "goes on after its end", rows[over])
        if ended.any():
            last = np.append(~same_trajectory[1:], True)
            open_end = rows[last & ~ended & ~over]
            add(ProblemKind.UNFINISHED_TRAJECTORY, "has no end", open_end)
        some_valid = np.logical_or.reduceat(table.flag("valid", default=True)[rows], starts)
        invalid = rows[np.repeat(~some_valid, lengths)]
        add(ProblemKind.ALL_ACTIONS_INVALID, "has no valid action", invalid)

    def _check_starts(
        self, steps: Arranged, add: Callable[[ProblemKind, str, Bools], None]
    ) -> None:
        """Check whether the trajectories of a group attempt one task, with one version."""
        if self.table.version is not None:
            version = self.table.version.codes[steps.rows].astype(np.float64)
            label = np.where(version >= 0, steps.group, -1)
            several = ~segments.constant(version, label, steps.group_count)
            detail = "was sampled by several versions of the policy"
            add(ProblemKind.SEVERAL_VERSIONS, detail, several)
        starts = starts_of(self.table)
        detail = "holds several tasks, each in several trajectories"
        add(ProblemKind.MIXED_TASKS, detail, starts.mixed)
        detail = f"starts in a state that differs only in {starts.example}"
        add(ProblemKind.UNSTABLE_START, detail, starts.unstable)
        why = starts.words if starts.tells else f"words alone cannot tell here ({starts.words})"
        by = f"its name; {why}" if starts.named.any() else why
        detail = f"starts with different words, and is taken for one task by {by}"
        add(ProblemKind.REWORDED_START, detail, starts.reworded)
        unlike = ~starts.same & ~starts.mixed & ~starts.unstable
        add(ProblemKind.DIFFERENT_STARTS, f"starts in different states ({starts.words})", unlike)

    def _check_repetitions(self, steps: Arranged) -> None:
        rows = steps.rows[_per_step(steps)[steps.group]]
        self._add_trajectories(ProblemKind.REWARD_PER_STEP, "repeats its reward at each step", rows)
        _, repeats, is_copy = _repeats(self.table, steps)
        for kind, hit in (
            (ProblemKind.TWIN_TRAJECTORIES, repeats & is_copy),
            (ProblemKind.EQUAL_TRAJECTORIES, repeats & ~is_copy),
        ):
            rows = steps.rows[hit[steps.trajectory]]
            self._add_trajectories(kind, "repeats another one of its group, step for step", rows)

    def _check_groups(self) -> None:
        """Check the size, returns and states of each group; the table must be arrangeable."""
        table, steps = self.table, arrange(self.table)
        group_of, groups = steps.group_of_trajectory, steps.group_count
        size = np.bincount(group_of, minlength=groups)
        first_steps = steps.rows[steps.starts]
        first_of_group = first_steps[segments.first_rows(group_of, groups)]

        def add(kind: ProblemKind, detail: str, hit: Bools) -> None:
            if hit.any():
                names = first_names(table.group, np.sort(table.group.codes[first_of_group[hit]]))
                rows = steps.rows[hit[steps.group]]
                self._add(kind, f"group {names} {detail}", rows, int(hit.sum()))

        # A group of corrections has one row per wrong answer, so ``group_size`` does not apply.
        attempts = np.ones(groups, dtype=np.bool_)
        if table.corrects is not None:
            attempts = table.corrects.codes[first_of_group] < 0
        add(ProblemKind.GROUP_OF_ONE, "has one trajectory", attempts & (size == 1))
        sampled = size + self.absent[table.group.codes[first_of_group]]
        if self.group_size is not None:
            declared = f"not the declared {self.group_size}"
            few = attempts & (sampled < self.group_size)
            add(ProblemKind.PARTIAL_GROUP, f"has fewer trajectories, {declared}", few)
            many = attempts & (sampled > self.group_size)
            add(ProblemKind.OVERFULL_GROUP, f"has more trajectories, {declared}", many)
        elif (attempts & (sampled > 1)).any():
            counts = np.bincount(sampled[attempts & (sampled > 1)])
            usual = int(np.flatnonzero(counts == counts.max())[-1])
            detail = f"does not have {usual:,} trajectories, as others do"
            uneven = attempts & (sampled > 1) & (sampled != usual)
            add(ProblemKind.UNEVEN_GROUPS, detail, uneven)
        self._check_repetitions(steps)
        returns = episode_outcome(steps.reward, steps.trajectory, steps.trajectory_count)
        penalised = penalty_only(steps.valid, steps.reward, steps.trajectory, group_of)
        equal = segments.constant(returns, group_of, groups) & (size > 1)
        add(ProblemKind.EQUAL_RETURNS, "has equal returns", equal & ~penalised)
        add(ProblemKind.ONLY_PENALTIES_DIFFER, "differs by penalties alone", penalised & (size > 1))

        self._check_starts(steps, add)
        # One label for each state of each group.
        labels, count = segments.pairs(steps.group, steps.state, table.state.values.size)
        example = segments.first_rows(labels, count)
        states = np.bincount(steps.group[example], minlength=groups)
        with_state = np.bincount(steps.group[labels >= 0], minlength=groups)
        several = (size > 1) & (with_state > 1)
        distinct = several & (states == with_state)
        add(ProblemKind.ALL_STATES_DISTINCT, "never visits a state twice", distinct)
        add(ProblemKind.ONE_STATE_ONLY, "has one state in every row", several & (states == 1))

        tasks = np.bincount(steps.state[example], minlength=table.state.values.size + 1)
        rows = steps.rows[(steps.state >= 0) & (tasks > 1)[steps.state]]
        detail = f"in several groups: {first_names(table.state, np.flatnonzero(tasks > 1))}"
        self._add(ProblemKind.STATE_ACROSS_TASKS, detail, rows, int((tasks > 1).sum()))
