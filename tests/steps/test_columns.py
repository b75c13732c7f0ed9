"""Columns of Python and numpy values: what is read, and what has no one meaning."""

from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, TableError
from ascribe.steps.table import KNOWN_COLUMNS, MISSING_STEP
from tests.conftest import good_rows

pytestmark = pytest.mark.unit


def columns(**changes: Any) -> dict[str, Any]:
    """Three rows of one trajectory, column by column."""
    plain = {
        "group": ["g", "g", "g"],
        "trajectory": ["t", "t", "t"],
        "step": [0, 1, 2],
        "state": ["a", "b", "a"],
        "action": ["x", "y", "x"],
        "reward": [0.0, 0.0, 1.0],
    }
    return plain | changes


def refusal(**changes: Any) -> tuple[ProblemKind, list[int], str]:
    with pytest.raises(TableError) as refused:
        StepTable.from_columns(columns(**changes))
    [problem] = refused.value.problems
    assert problem.count == problem.rows.size
    return problem.kind, problem.rows.tolist(), problem.detail


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["a", None, ""], ["a", None, ""]),
        ([None, None, None], [None, None, None]),
        ([1, None, -2], ["1", None, "-2"]),
        ([2**80, 0, 1], [str(2**80), "0", "1"]),
        ([np.int8(1), 2, np.uint64(3)], ["1", "2", "3"]),
        ([np.str_("a"), "b", "a"], ["a", "b", "a"]),
        (np.array(["a", "bb", "a"]), ["a", "bb", "a"]),
        (np.array([3, 1, 3]), ["3", "1", "3"]),
        (np.array(["a", None, "b"], dtype=object), ["a", None, "b"]),
        (("a", "b", "c"), ["a", "b", "c"]),
    ],
)
def test_text(values: Any, texts: list[str | None]):
    for name in ("group", "trajectory", "state", "action", "agent", "family"):
        table = StepTable.from_columns(columns(**{name: values}))
        assert getattr(table, name).texts() == texts


@pytest.mark.parametrize(
    ("values", "kind", "rows"),
    [
        (["a", 1, "b"], ProblemKind.MIXED_TYPES, [1]),
        (["1", 1, 2], ProblemKind.MIXED_TYPES, [0]),
        (["a", 1.0, None], ProblemKind.WRONG_TYPE, [1]),
        (["a", True, None], ProblemKind.WRONG_TYPE, [1]),
        ([1, True, 2], ProblemKind.WRONG_TYPE, [1]),
        ([b"a", "b", b"c"], ProblemKind.WRONG_TYPE, [0, 2]),
        ([["a"], {"b": 1}, ()], ProblemKind.WRONG_TYPE, [0, 1, 2]),
        (["a", "\ud800", "b\udfff"], ProblemKind.MALFORMED_TEXT, [1, 2]),
        (np.array([0.5, 1.0, 2.0]), ProblemKind.WRONG_TYPE, [0, 1, 2]),
        (np.array([[1, 2], [3, 4], [5, 6]]), ProblemKind.WRONG_TYPE, [0, 1, 2]),
    ],
)
def test_text_refused(values: Any, kind: ProblemKind, rows: list[int]):
    for name in ("group", "trajectory", "state", "action", "agent", "family"):
        found, where, detail = refusal(**{name: values})
        assert (found, where) == (kind, rows)
        assert f"column {name} " in detail


@pytest.mark.parametrize(
    "values", [[0, 1, 2], np.arange(3, dtype=np.uint8), [np.int64(0), 1, 2], (0, 1, 2)]
)
def test_step(values: Any):
    assert StepTable.from_columns(columns(step=values)).step.tolist() == [0, 1, 2]


def test_step_missing_or_extreme():
    table = StepTable.from_columns(columns(step=[None, 2**63 - 1, -(2**63) + 1]))
    assert table.step.tolist() == [MISSING_STEP, 2**63 - 1, -(2**63) + 1]
    assert table.to_dicts()[0]["step"] is None


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([0, 1.0, 2], [1]),
        ([0, "1", 2], [1]),
        ([False, 1, 2], [0]),
        ([0, 1, 2**63], [2]),
        ([-(2**63) - 1, 1, 2**64], [0, 2]),
        (np.array([0, 1, 2**63 + 9], dtype=np.uint64), [2]),
        (np.array([0.0, 1.0, 2.0]), [0, 1, 2]),
    ],
)
def test_step_refused(values: Any, rows: list[int]):
    assert refusal(step=values)[:2] == (ProblemKind.WRONG_TYPE, rows)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([0, 1, 0.5], [0.0, 1.0, 0.5]),
        ([np.float32(0.5), np.int8(1), 0], [0.5, 1.0, 0.0]),
        (np.array([1, 2, 3], dtype=np.uint64), [1.0, 2.0, 3.0]),
        (np.array([1, 2, 3], dtype=np.float16), [1.0, 2.0, 3.0]),
        ([2**70, -1, 1e300], [2.0**70, -1.0, 1e300]),
    ],
)
def test_reward(values: Any, numbers: list[float]):
    table = StepTable.from_columns(columns(reward=values))
    assert table.reward.tolist() == numbers
    assert table.reward.dtype == np.float64


def test_missing_reward_is_not_a_number():
    assert np.isnan(StepTable.from_columns(columns(reward=[None, 0, 1])).reward[0])


@pytest.mark.parametrize(
    ("values", "kind", "rows"),
    [
        ([0.0, "1.0", 0.0], ProblemKind.WRONG_TYPE, [1]),
        ([0.0, True, 0.0], ProblemKind.WRONG_TYPE, [1]),
        ([0.0, 1j, 0.0], ProblemKind.WRONG_TYPE, [1]),
        (np.array([True, False, True]), ProblemKind.WRONG_TYPE, [0, 1, 2]),
        ([0.0, -(10**400), 0.0], ProblemKind.REWARD_TOO_LARGE, [1]),
    ],
)
def test_reward_refused(values: Any, kind: ProblemKind, rows: list[int]):
    assert refusal(reward=values)[:2] == (kind, rows)


@pytest.mark.parametrize(
    "values", [[True, False, True], np.array([1, 0, 1], dtype=bool), [np.True_, False, np.True_]]
)
def test_flag(values: Any):
    for name in ("valid", "terminated", "truncated", "padding"):
        table = StepTable.from_columns(columns(**{name: values}))
        assert getattr(table, name).tolist() == [True, False, True]
        assert table.flag(name, default=False).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "kind", "rows"),
    [
        ([True, 1, False], ProblemKind.WRONG_TYPE, [1]),
        ([True, "false", False], ProblemKind.WRONG_TYPE, [1]),
        ([0.0, 1.0, 0.0], ProblemKind.WRONG_TYPE, [0, 1, 2]),
        ([True, None, None], ProblemKind.PARTIAL_FLAG, [1, 2]),
    ],
)
def test_flag_refused(values: Any, kind: ProblemKind, rows: list[int]):
    for name in ("valid", "terminated", "truncated", "padding"):
        assert refusal(**{name: values})[:2] == (kind, rows)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([[1, 2], [0.5, 0], None], [[1.0, 2.0], [0.5, 0.0], [0.0, 0.0]]),
        (np.eye(3, dtype=np.float16), np.eye(3).tolist()),
        (list(np.eye(3)), np.eye(3).tolist()),
        ([(1.0,), [2.0], np.array([3.0])], [[1.0], [2.0], [3.0]]),
    ],
)
def test_fingerprint(values: Any, numbers: list[list[float]]):
    table = StepTable.from_columns(columns(fingerprint=values))
    assert table.fingerprint is not None
    assert table.fingerprint.tolist() == numbers
    half = isinstance(values, np.ndarray) and values.dtype == np.float16
    assert table.fingerprint.dtype == (np.float16 if half else np.float32)


def test_fingerprint_given_nowhere_is_absent():
    assert StepTable.from_columns(columns(fingerprint=[None] * 3)).fingerprint is None


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([[1.0], [1.0, 2.0], [1.0]], []),
        ([[], [], []], []),
        ([0.5, 0.5, 0.5], []),
        (["abc", "abc", "abc"], []),
        ([["a"], ["b"], ["c"]], []),
        ([[True], [False], [True]], []),
        ([[1.0], [None], [1.0]], []),
        ([[[1.0]], [[1.0]], [[1.0]]], []),
        ([{"a": 1}, {"a": 1}, {"a": 1}], []),
        ([[10**400], [1], [1]], []),
        ([[1.0], [float("nan")], [float("-inf")]], [1, 2]),
        ([[1.0], [1.0], [1e39]], [2]),
    ],
)
def test_fingerprint_refused(values: Any, rows: list[int]):
    with pytest.raises(TableError) as refused:
        StepTable.from_columns(columns(fingerprint=values))
    [problem] = refused.value.problems
    assert problem.kind is ProblemKind.BAD_FINGERPRINT
    assert problem.rows.tolist() == rows
    assert problem.count == (len(rows) or 3)


def test_absent_flag_has_its_default():
    table = StepTable.from_columns(columns())
    assert table.valid is None
    assert table.flag("valid", default=True).all()
    assert not table.flag("padding", default=False).any()


def test_other_columns_are_not_read():
    table = StepTable.from_columns(columns(note=[object()] * 99))
    assert set(table.columns()) == set(columns())


def test_columns_of_different_lengths():
    with pytest.raises(ValueError, match=r"columns differ in length: .*'state': 2"):
        StepTable.from_columns(columns(state=["a", "b"]))
    table = StepTable.from_columns(columns())
    with pytest.raises(ValueError, match="columns differ in length"):
        StepTable(**table.columns() | {"valid": np.ones(2, dtype=bool)})


def test_missing_columns_are_named():
    with pytest.raises(TableError, match="no column step or reward"):
        StepTable.from_columns({k: v for k, v in columns().items() if k not in ("step", "reward")})


def test_rows_may_lack_keys():
    rows = good_rows()[:3]
    del rows[1]["state"], rows[2]["agent"]
    table = StepTable.from_dicts(rows)
    assert table.state.texts()[1] is None
    assert table.agent is not None
    assert table.agent.texts()[2] is None


def test_columns_come_in_the_order_of_the_format():
    shuffled = [dict(reversed(row.items())) for row in good_rows()]
    assert list(StepTable.from_dicts(iter(shuffled)).columns()) == [
        name for name in KNOWN_COLUMNS if name in good_rows()[0]
    ]
