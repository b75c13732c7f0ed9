"""What ``select`` does about each severity, and that nothing is dropped without a reason."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import (
    ProblemKind,
    Reason,
    Severity,
    StepTable,
    TableError,
    assign,
    check,
    recipe,
    select,
)
from ascribe.steps.select import OnProblem
from tests.conftest import Row, good_rows

pytestmark = pytest.mark.unit

MISSING_REWARD = ProblemKind.MISSING_REWARD
SPOILT_GROUP = "tâche 1"
SPOILT = next(i for i, row in enumerate(good_rows()) if row["group"] == SPOILT_GROUP) + 1
KINDS = {
    Severity.NOTE: ProblemKind.PADDING_IN_GROUP,
    Severity.WARNING: ProblemKind.EMPTY_ACTION,
    Severity.ERROR: ProblemKind.PARTIAL_GROUP,
    Severity.FATAL: ProblemKind.NON_FINITE_REWARD,
}


def spoilt(severity: Severity | None) -> StepTable:
    """A table with one problem of this severity, in its second group; group size is 4."""
    rows = good_rows()
    if severity is Severity.NOTE:
        rows.append(rows[SPOILT] | {"padding": True})
    elif severity is Severity.WARNING:
        rows[SPOILT]["action"] = " "
    elif severity is Severity.ERROR:
        rows = [row for row in rows if row["trajectory"] != "tâche 1/3"]
    elif severity is Severity.FATAL:
        rows[SPOILT]["reward"] = float("inf")
    return StepTable.from_dicts(rows)


def group_of(table: StepTable) -> np.ndarray:
    return np.array(table.group.texts(), dtype=object)


@pytest.mark.parametrize("severity", Severity)
def test_each_severity_is_as_meant(severity: Severity):
    report = check(spoilt(severity), group_size=4)
    assert [problem.kind for problem in report.problems] == [KINDS[severity]]
    assert report.worst is severity
    assert report.counts() == {KINDS[severity].label: 1}


@pytest.mark.parametrize("severity", [None, *Severity])
@pytest.mark.parametrize("at", Severity)
def test_raise(at: Severity, severity: Severity | None):
    table = spoilt(severity)
    if severity is not None and severity >= at:
        with pytest.raises(TableError) as refused:
            select(table, severity=at, group_size=4)
        assert [problem.kind for problem in refused.value.problems] == [KINDS[severity]]
        assert KINDS[severity].label in str(refused.value)
    else:
        selection = select(table, severity=at, group_size=4)
        assert selection.keep.all()
        assert (selection.dropped, selection.dropped_rows) == ({}, {})


@pytest.mark.parametrize("severity", [None, *Severity])
@pytest.mark.parametrize("at", Severity)
def test_drop(at: Severity, severity: Severity | None):
    table = spoilt(severity)
    selection = select(table, "drop", severity=at, group_size=4)
    inside = group_of(table) == SPOILT_GROUP
    # A note never drops a group: it is about something harmless.
    if severity is not None and severity >= max(at, Severity.WARNING):
        assert (selection.keep == ~inside).all()
        assert selection.dropped == {SPOILT_GROUP: KINDS[severity].label}
        assert selection.dropped_rows == {KINDS[severity].label: int(inside.sum())}
    else:
        assert selection.keep.all()
        assert (selection.dropped, selection.dropped_rows) == ({}, {})


@pytest.mark.parametrize("severity", [None, *Severity])
def test_keep(severity: Severity | None):
    table = spoilt(severity)
    if severity is Severity.FATAL:
        with pytest.raises(TableError, match="non_finite_reward"):
            select(table, "keep", group_size=4)
    else:
        assert select(table, "keep", group_size=4).keep.all()


def test_failed_groups_are_dropped_and_the_rest_is_checked():
    rows = [row | {"corrects": None} for row in good_rows()]
    rows[SPOILT]["reward"] = float("inf")
    first = next(row for row in rows if row["group"] == "tâche 0")
    correction = first | {"group": "c", "trajectory": "c/0", "corrects": first["trajectory"]}
    table = StepTable.from_dicts([*rows, correction | {"step": 0, "terminated": True}])
    selection = select(table, "drop", failed={"tâche 0": "crashed", "elsewhere": "hung"})
    reasons = {"tâche 0": "crashed", "elsewhere": "hung", "c": "crashed"}
    assert selection.dropped == reasons | {SPOILT_GROUP: "non_finite_reward"}
    assert set(group_of(table)[selection.keep]) == {"tâche 2", "filler"}
    [fatal] = [p for p in selection.report.problems if p.severity is Severity.FATAL]
    assert fatal.rows.tolist() == [SPOILT]


@pytest.mark.parametrize("on_problem", get_args(OnProblem))
def test_a_trajectory_without_a_reward_is_left_out_and_not_its_group(on_problem: OnProblem):
    rows = good_rows()
    rows[SPOILT]["reward"] = None
    table, name = StepTable.from_dicts(rows), rows[SPOILT]["trajectory"]
    selection = assign(table, recipe("gigpo"), on_problem, group_size=4).selection
    left_out = np.array([row["trajectory"] == name for row in rows])
    assert (selection.keep == ~left_out).all()
    assert (selection.dropped, selection.dropped_rows) == ({}, {"missing_reward": left_out.sum()})


def test_a_group_without_a_reward_is_dropped():
    rows = [r | ({"reward": None} if r["group"] == SPOILT_GROUP else {}) for r in good_rows()]
    selection = select(StepTable.from_dicts(rows), "raise")
    assert selection.dropped == {SPOILT_GROUP: "missing_reward"}


def test_nothing_is_checked_if_every_group_failed():
    table = StepTable.from_dicts(good_rows())
    failed = dict.fromkeys(table.group.values, "hung")
    selection = select(table, "raise", failed=failed)
    assert not selection.keep.any()
    assert selection.dropped == failed


@pytest.mark.parametrize("severity", [None, *Severity])
@pytest.mark.parametrize("on_problem", get_args(OnProblem))
def test_assign(on_problem: OnProblem, severity: Severity | None):
    table, gigpo = spoilt(severity), recipe("gigpo")
    refuses = {"raise": Severity.ERROR, "keep": Severity.FATAL}.get(on_problem)
    if severity is not None and refuses is not None and severity >= refuses:
        with pytest.raises(TableError):
            assign(table, gigpo, on_problem, group_size=4)
        return
    assigned = assign(table, gigpo, on_problem, group_size=4)
    keep = assigned.selection.keep
    assert len(assigned.credit) == len(table)
    # What is kept is credited as if the rest had never been there.
    alone = gigpo(table.take(keep))
    kept = assigned.credit.rows(keep)
    assert kept.advantage.tolist() == alone.advantage.tolist()
    assert kept.reason.tolist() == alone.reason.tolist()
    padding = table.flag("padding", default=False)
    dropped = ~keep & ~padding
    for part in (assigned.credit, *assigned.credit.terms.values()):
        values = part.advantage if part is assigned.credit else part.values
        assert (part.reason[padding] == Reason.PADDING).all()
        assert (part.reason[dropped] == Reason.DROPPED).all()
        assert (part.reason[keep & ~padding] < Reason.PADDING).all()
        assert (values[padding | dropped] == 0).all()
        if part is not assigned.credit:
            assert (part.labels[padding | dropped] == -1).all()


def test_padding_of_a_dropped_group_stays_padding():
    rows = good_rows()
    rows.append(rows[SPOILT] | {"padding": True})
    rows[SPOILT]["reward"] = float("inf")
    assigned = assign(StepTable.from_dicts(rows), recipe("gigpo"), "drop")
    reason = assigned.credit.reason
    assert [Reason(code) for code in reason[-3:]] == [Reason.PADDING] * 3
    assert reason[SPOILT] == Reason.DROPPED
    assert not assigned.selection.keep[-1]


def test_assign_refuses_when_nothing_is_left():
    rows = good_rows()
    for group in range(3):
        rows[next(i for i, row in enumerate(rows) if row["group"] == f"tâche {group}")][
            "reward"
        ] = float("inf")
    with pytest.raises(TableError) as refused:
        assign(StepTable.from_dicts(rows), recipe("gigpo"), "drop")
    assert [problem.kind for problem in refused.value.problems] == [ProblemKind.NON_FINITE_REWARD]


@pytest.mark.parametrize("on_problem", get_args(OnProblem))
@pytest.mark.parametrize("padded", [False, True])
def test_assign_refuses_an_empty_table(on_problem: OnProblem, padded: bool):
    rows = [row | {"padding": True} for row in good_rows()] if padded else []
    columns = {name: [row[name] for row in rows] for name in good_rows()[0]}
    with pytest.raises(TableError, match="empty_table"):
        assign(StepTable.from_columns(columns), recipe("gigpo"), on_problem)


def test_drop_counts_every_row_under_each_reason():
    """Three groups fall for three reasons; one of them for two."""
    rows = good_rows(groups=5)
    numbers = {g: [i for i, row in enumerate(rows) if row["group"] == f"tâche {g}"] for g in (0, 1)}
    rows[numbers[0][0]]["reward"] = float("inf")
    rows[numbers[0][3]]["group"] = None
    rows[numbers[1][0]]["step"] = None
    rows = [row for row in rows if row["trajectory"] != "tâche 2/1"]
    table = StepTable.from_dicts(rows)
    selection = assign(table, recipe("gigpo"), "drop", group_size=4).selection
    first = len(numbers[0])  # with the row whose group is gone, through its trajectory
    third = sum(row["group"] == "tâche 2" for row in rows)
    assert selection.dropped == {
        "tâche 0": "non_finite_reward",
        "tâche 1": "missing_step",
        "tâche 2": "partial_group",
    }
    assert int((~selection.keep).sum()) == first + len(numbers[1]) + third
    assert selection.dropped_rows == {
        "non_finite_reward": first - 1,
        "missing_group": first,
        "missing_step": len(numbers[1]),
        "late_start": len(numbers[1]),
        "partial_group": third,
    }


def test_a_fatal_problem_does_not_shield_a_partial_group():
    """A fatal row in one group must not let another group through with a trajectory lost."""
    rows = [row for row in good_rows() if row["trajectory"] != "tâche 2/1"]
    rows[0]["reward"] = float("inf")
    assigned = assign(StepTable.from_dicts(rows), recipe("gigpo"), "drop", group_size=4)
    left = {row["group"] for row, keep in zip(rows, assigned.selection.keep, strict=True) if keep}
    assert left == {"tâche 1", "filler"}
    assert set(assigned.selection.dropped_rows) == {"non_finite_reward", "partial_group"}


# Any table at all.

NAMES = st.sampled_from(["a", "b", "c", None])
MESSY_ROW = st.fixed_dictionaries(
    {
        "group": st.sampled_from(["g", "h", "i"]) | NAMES,
        "trajectory": NAMES,
        "step": st.sampled_from([0, 0, 1, 1, 2, 3, -1, None, 2**63 - 1]),
        "state": NAMES,
        "action": st.just("x") | NAMES,
        "reward": st.sampled_from([0.0, 0.0, 1.0, 0.25, None, float("inf"), 1e200]),
        "terminated": st.sampled_from([False, False, False, True]),
        "truncated": st.sampled_from([False, False, False, True]),
        "padding": st.sampled_from([False, False, False, True]),
    }
)


@st.composite
def messy_tables(draw: Any) -> list[Row]:
    """Sound trajectories, with rows spoilt, lost, doubled and strewn in."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 5))):
        length = draw(st.integers(1, 3))
        rows += [
            {
                "group": f"g{number % 3}",
                "trajectory": f"t{number}",
                "step": step,
                "state": draw(st.sampled_from(["s", "r", None])),
                "action": "x",
                "reward": draw(st.sampled_from([0.0, 1.0])),
                "terminated": step == length - 1,
                "truncated": False,
                "padding": draw(st.integers(0, 9)) == 9,
            }
            for step in range(length)
        ]
    for _ in range(draw(st.integers(0, 2))):
        rows.insert(draw(st.integers(0, len(rows))), draw(MESSY_ROW))
    if rows:
        for _ in range(draw(st.integers(0, 2))):
            name = draw(st.sampled_from(sorted(rows[0])))
            row = draw(st.integers(0, len(rows) - 1))
            rows[row] = rows[row] | {name: draw(MESSY_ROW)[name]}
    return rows


def table_of(rows: list[Row]) -> StepTable:
    names = ("group", "trajectory", "step", "state", "action", "reward")
    flags = ("terminated", "truncated", "padding")
    return StepTable.from_columns({name: [row[name] for row in rows] for name in names + flags})


@given(messy_tables())
def test_recipes_refuse_exactly_the_tables_with_fatal_problems_or_without_a_reward(rows: list[Row]):
    table = table_of(rows)
    report = check(table)
    fatal = [problem for problem in report.problems if problem.severity is Severity.FATAL]
    unlabelled = any(problem.kind is MISSING_REWARD for problem in report.problems)
    for problem in report.problems:
        assert (np.diff(problem.rows) > 0).all()
        assert problem.rows.size == 0 or 0 <= problem.rows[0] <= problem.rows[-1] < len(table)
    if not fatal and not unlabelled:
        assert len(recipe("gigpo")(table)) == len(table)
        return
    with pytest.raises(TableError) as refused:
        recipe("gigpo")(table)
    kinds = [p.kind for p in report.problems if p in fatal or p.kind is MISSING_REWARD]
    assert [p.kind for p in refused.value.problems] == kinds


@given(messy_tables(), st.sampled_from([None, 1, 2]), st.sampled_from(Severity))
def test_drop_leaves_whole_sound_groups(rows: list[Row], size: int | None, at: Severity):
    table = table_of(rows)
    report = check(table, group_size=size)
    try:
        selection = select(table, "drop", severity=at, group_size=size)
    except TableError:
        assert report.worst is not None
        assert report.worst >= at
        return
    unlabelled = any(problem.kind is MISSING_REWARD for problem in report.problems)
    if not selection.keep.any():
        assert report.worst is not None
        assert report.worst >= at or unlabelled
        return
    groups = group_of(table)
    kept, gone = set(groups[selection.keep]), set(groups[~selection.keep])
    assert kept & gone <= {None} or unlabelled
    assert gone - kept - {None} == set(selection.dropped)
    assert bool(selection.dropped_rows) == bool((~selection.keep).any())
    if selection.dropped_rows:
        assert max(selection.dropped_rows.values()) <= (~selection.keep).sum()
        assert sum(selection.dropped_rows.values()) >= (~selection.keep).sum()
    left = check(table.take(selection.keep), group_size=None if unlabelled else size)
    worst = max((p.severity for p in left.problems), default=Severity.NOTE)
    assert worst < max(at, Severity.WARNING)
    assert len(recipe("gigpo")(table.take(selection.keep))) == int(selection.keep.sum())
