"""Select the groups of a table that are credited, with a reason for each dropped group."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ascribe.steps.arrays import Bools, Brief, Ints
from ascribe.steps.check import CheckReport, check, join_reports, whole_groups, without_reward
from ascribe.steps.problems import ProblemKind, Severity, TableError
from ascribe.steps.table import StepTable

OnProblem = Literal["raise", "drop", "keep"]
"""What to do about problems: refuse the table, drop the groups they are in, or keep all rows."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupSelection(Brief):
    """Which rows of a table are credited, and why the others are not.

    Example:
        >>> alone = table.take(table.step == 0)
        >>> ascribe.select(alone, "drop", group_size=4).dropped
        {'apple': 'partial_group'}
    """

    keep: Bools
    """Mask of the credited rows; all false if every group was dropped."""
    report: CheckReport
    """The problems of the groups whose rollouts did not fail."""
    dropped: dict[str, str]
    """The reason of each dropped group: its worst problem, or why its rollouts failed. Where a
    table has several iterations, the name of a group begins with ``iteration NUMBER: ``."""
    dropped_rows: dict[str, int]
    """Rows dropped for each kind of problem; a row may be counted under several kinds."""


def select(
    table: StepTable,
    on_problem: OnProblem = "raise",
    *,
    severity: Severity = Severity.ERROR,
    group_size: int | None = None,
    failed: Mapping[str, str] | None = None,
) -> GroupSelection:
    """Check a table, and decide which of its groups are credited.

    Trajectories without a reward are left out, whatever else is chosen. ``drop`` drops whole
    groups, because a baseline over half a group is another estimator: every
    group with a problem of at least ``severity``, and the groups that correct an answer of a
    dropped one. A row without a group is dropped with the rest of its trajectory.

    Args:
        table: the steps.
        on_problem: ``raise`` refuses a table with a problem of at least ``severity``; ``drop``
            drops the groups it is in; ``keep`` refuses fatal problems alone.
        severity: the least severity that counts; notes never drop a group.
        group_size: how many trajectories each group was meant to have, if known.
        failed: groups to drop whatever their rows hold, with the reason.

    Raises:
        TableError: if the table is refused, or has no rows.

    Example:
        >>> ascribe.select(table, "keep", group_size=4).keep.tolist()
        [True, True, True, True, True]
    """
    iterations = table.iterations()
    if len(iterations) > 1:
        options = {"severity": severity, "group_size": group_size, "failed": failed}
        return _select_each(iterations, on_problem, options)
    dropped = dict(failed or {})
    drop = _corrections_too(table, _rows_of_groups(table, dropped), dropped, absent=bool(dropped))
    if drop.any() and drop.all():
        return GroupSelection(~drop, CheckReport(0, ()), dropped, {})
    kept = np.flatnonzero(~drop)
    report = check(table.take(kept) if drop.any() else table, group_size=group_size)
    located = tuple(replace(problem, rows=kept[problem.rows]) for problem in report.problems)
    report = CheckReport(len(table), located)
    limit = {"raise": severity, "drop": max(severity, Severity.WARNING), "keep": Severity.FATAL}
    problems = [problem for problem in report.problems if problem.severity >= limit[on_problem]]
    unlabelled = without_reward(table, report.problems)
    unplaced = [problem for problem in problems if problem.rows.size == 0]
    if problems and (on_problem != "drop" or unplaced):
        raise TableError(problems if on_problem != "drop" else unplaced)
    dropped_rows = {}
    if unlabelled.any():
        label = ProblemKind.MISSING_REWARD.label
        dropped_rows[label] = int(unlabelled.sum())
        drop |= unlabelled
        rewarded = set(table.group.take(np.flatnonzero(~unlabelled)).used().values)
        names = table.group.take(np.flatnonzero(unlabelled)).used().values
        dropped |= {name: label for name in names if name not in {*rewarded, *dropped}}
    for problem in problems:
        rows = whole_groups(table, [problem])
        dropped_rows[problem.kind.label] = int(rows.sum())
        names = table.group.take(np.flatnonzero(rows)).used().values
        dropped |= {name: problem.kind.label for name in names if name not in dropped}
        drop = drop | rows
    lost = table.trajectory.take(np.flatnonzero(unlabelled)).used().values
    drop = _corrections_too(table, drop, dropped, absent=False, lost=set(lost))
    real = ~table.flag("padding", default=False)
    keep = ~drop & (real & ~drop).any()  # padding alone is nothing to credit
    return GroupSelection(keep, report, dropped, dropped_rows)


def _select_each(
    iterations: Sequence[tuple[int, Ints, StepTable]],
    on_problem: OnProblem,
    options: dict[str, Any],
) -> GroupSelection:
    """``select`` for each iteration; a dropped group is named with its iteration."""
    size = sum(rows.size for _, rows, _ in iterations)
    keep = np.zeros(size, dtype=np.bool_)
    dropped: dict[str, str] = {}
    dropped_rows: Counter[str] = Counter()
    reports, refused = [], []
    for number, rows, part in iterations:
        try:
            selection = select(part, on_problem, **options)
        except TableError as error:
            refused.append((CheckReport(len(part), error.problems), rows))
            continue
        keep[rows] = selection.keep
        reports.append(selection.report)
        dropped |= {f"iteration {number}: {name}": why for name, why in selection.dropped.items()}
        dropped_rows.update(selection.dropped_rows)
    if refused:
        problems, places = zip(*refused, strict=True)
        raise TableError(join_reports(problems, places).problems)
    report = join_reports(reports, [rows for _, rows, _ in iterations])
    return GroupSelection(keep, report, dropped, dict(dropped_rows))


def _rows_of_groups(table: StepTable, names: Mapping[str, str]) -> Bools:
    is_named = np.array([name in names for name in table.group.values] + [False], dtype=np.bool_)
    return is_named[table.group.codes]


def _corrections_too(
    table: StepTable,
    drop: Bools,
    dropped: dict[str, str],
    *,
    absent: bool,
    lost: Collection[str] = (),
) -> Bools:
    """``drop`` extended by the groups that correct a trajectory of a dropped group, or a lost one.

    Such a group is added to ``dropped`` with the reason of the group it corrects. ``absent`` says
    whether a corrected trajectory that is not in the table counts as failed. ``lost`` are
    trajectories that are left out for they have no reward.
    """
    if table.corrects is None or not (dropped or lost):
        return drop
    _, first_row = np.unique(table.trajectory.codes, return_index=True)
    trajectories, groups = (
        table.trajectory.take(first_row).texts(),
        table.group.take(first_row).texts(),
    )
    group_of = dict(zip(trajectories, groups, strict=True))
    for code, corrected in enumerate(table.corrects.values):
        group = group_of.get(corrected)
        if group in dropped or corrected in lost or (group is None and absent):
            reason = ProblemKind.MISSING_REWARD.label if corrected in lost else "failed"
            reason = dropped.get(str(group), reason)
            corrections = table.group.take(np.flatnonzero(table.corrects.codes == code)).used()
            dropped |= {name: reason for name in corrections.values if name not in dropped}
    return drop | _rows_of_groups(table, dropped)
