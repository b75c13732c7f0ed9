"""A column that is no plain sequence is read right, or refused: never its keys or hidden values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, TableError
from ascribe.estimators import BiGPO

MASK = [False, True, False, False]
COLUMNS: dict[str, Any] = {
    "group": ["g"] * 4,
    "trajectory": ["a", "b", "c", "d"],
    "step": [0] * 4,
    "state": ["s"] * 4,
    "action": ["x", "y", "x", "y"],
    "reward": [0.0, 9.0, 1.0, 0.0],
}


def refused(**columns: Any) -> list[ProblemKind]:
    with pytest.raises(TableError) as error:
        StepTable.from_columns(COLUMNS | columns)
    return [problem.kind for problem in error.value.problems]


def test_a_masked_value_is_missing() -> None:
    table = StepTable.from_columns(
        COLUMNS
        | {
            "reward": np.ma.masked_array([0.0, 9.0, 1.0, 0.0], MASK),
            "step": np.ma.masked_array([0, 7, 0, 0], MASK),
            "state": np.ma.masked_array(["s", "hidden", "s", "s"], MASK),
            "without": np.ma.masked_array([1.0, 2.0, 3.0, 4.0], MASK),
        }
    )
    assert np.isnan(table.reward).tolist() == MASK
    assert table.to_dicts()[1]["step"] is None
    assert table.state.texts()[1] is None
    assert "hidden" not in table.state.values
    assert table.without is not None
    assert np.isnan(table.without).tolist() == MASK


def test_a_mask_over_nothing_changes_nothing() -> None:
    reward = np.ma.masked_array(COLUMNS["reward"], False)
    vectors = np.eye(4, dtype=np.float32)
    table = StepTable.from_columns(
        COLUMNS | {"reward": reward, "fingerprint": np.ma.masked_array(vectors, False)}
    )
    assert table.reward.tolist() == COLUMNS["reward"]
    assert (table.fingerprint == vectors).all()


def test_a_masked_flag_is_an_empty_one() -> None:
    assert refused(valid=np.ma.masked_array([True] * 4, MASK)) == [ProblemKind.PARTIAL_FLAG]


@pytest.mark.parametrize("rows", [False, True])
def test_masked_numbers_of_a_fingerprint_are_refused(*, rows: bool) -> None:
    vectors = np.ma.masked_array(np.eye(4), np.eye(4, dtype=bool))
    column = list(vectors) if rows else vectors
    assert refused(fingerprint=column) == [ProblemKind.BAD_FINGERPRINT]


def test_masked_fingerprints_are_no_input() -> None:
    table = StepTable.from_columns(COLUMNS)
    vectors = np.ma.masked_array(np.eye(4), np.eye(4, dtype=bool))
    with pytest.raises(ValueError, match="masked"):
        BiGPO()(table, fingerprints=vectors)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: dict(enumerate(values)),
        lambda values: dict.fromkeys(map(str, range(4)), 0.5),
        lambda values: {0.0, 1.0, 2.0, 3.0},
        iter,
        lambda values: "0000",
        lambda values: b"0000",
        lambda values: 4,
        lambda values: None,
    ],
)
@pytest.mark.parametrize("name", ["reward", "step", "state", "valid", "fingerprint"])
def test_what_is_no_sequence_of_values_is_refused(name: str, make: Callable[[Any], Any]) -> None:
    values = COLUMNS.get(name, [True] * 4)
    assert refused(**{name: make(values)}) == [ProblemKind.WRONG_TYPE]
