"""A trajectory that was copied under another name is told, and honest repetition is not blamed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, check, read_table, recipe, select

TWIN, EQUAL = ProblemKind.TWIN_TRAJECTORIES, ProblemKind.EQUAL_TRAJECTORIES
Row = dict[str, Any]


def walk(
    length: int, random: np.random.Generator, greed: float = 0.0, trajectories: int = 8
) -> list[Row]:
    """One task; in every state there are four actions, and the action leads to a new state."""
    rows = []
    for index in range(trajectories):
        path = ""
        for step in range(length):
            action = 0 if random.random() < greed else int(random.integers(4))
            row = {"group": "g", "trajectory": f"t{index}", "step": step, "state": f"at {path}"}
            path += str(action)
            rows.append(row | {"action": f"go {action}", "reward": float(step == length - 1)})
    return rows


def copied(rows: list[Row]) -> list[Row]:
    return [*rows, *(row | {"trajectory": "t0x"} for row in rows if row["trajectory"] == "t0")]


def found(rows: list[Row], **columns: Any) -> dict[ProblemKind, list[int]]:
    table = StepTable.from_columns(
        {name: [row[name] for row in rows] for name in rows[0]} | columns
    )
    problems = check(table).problems
    return {p.kind: p.rows.tolist() for p in problems if p.kind in (TWIN, EQUAL)}


def test_the_copy_moves_the_baseline_and_is_found() -> None:
    rows = walk(12, np.random.default_rng(0))
    rows[11]["reward"] = 9.0
    before = recipe("dr_grpo")(StepTable.from_dicts(rows)).advantage[0]
    table = StepTable.from_dicts(copied(rows))
    assert recipe("dr_grpo")(table).advantage[0] < before - 0.5
    assert found(rows) == {}
    assert found(copied(rows)) == {TWIN: list(range(96, 108))}
    assert select(table).keep.all()  # a warning, since the check cannot be sure
    problem = next(p for p in check(table).problems if p.kind is TWIN)
    assert problem.detail.startswith("trajectory 't0x' repeats another one of its group")


def test_a_short_copy_is_a_note() -> None:
    rows = copied(walk(5, np.random.default_rng(0)))
    assert found(rows) == {EQUAL: list(range(40, 45))}


def test_a_single_long_text_is_enough() -> None:
    random = np.random.default_rng(0)
    rows = walk(1, random)
    assert found(copied(rows)) == {}  # one short answer, which anyone may give twice
    for row in rows:
        row["action"] = "".join(random.choice(list("abc "), 600))
    assert found(rows) == {}
    assert found(copied(rows)) == {TWIN: [8]}


@pytest.mark.parametrize(
    "change", [{"reward": 0.5}, {"action": "another"}, {"state": "another"}, {"step": None}]
)
def test_one_difference_makes_two_trajectories(change: Row) -> None:
    rows = copied(walk(12, np.random.default_rng(0)))
    if "step" in change:
        rows[-1] |= {"step": 12}
        rows.append(rows[-1] | {"step": 11})
    else:
        rows[-1] |= change
    assert found(rows) == {}


def test_another_group_or_iteration_is_no_twin() -> None:
    rows = copied(walk(12, np.random.default_rng(0)))
    other = [row | {"group": "other"} if row["trajectory"] == "t0x" else row for row in rows]
    assert found(other) == {}
    assert found(rows, iteration=[int(row["trajectory"] == "t0x") for row in rows]) == {}


def test_fingerprints_that_differ_show_two_rollouts() -> None:
    rows = copied(walk(12, np.random.default_rng(0)))
    vectors = np.ones((len(rows), 4), dtype=np.float32)
    assert list(found(rows, fingerprint=vectors)) == [TWIN]
    vectors[-1, 2] += 1e-6
    assert list(found(rows, fingerprint=vectors)) == [EQUAL]


@pytest.mark.parametrize("greed", [0.0, 0.5, 0.7, 0.9, 0.97, 1.0])
@pytest.mark.parametrize("length", [3, 5, 12, 30])
def test_honest_policies_are_not_blamed(length: int, greed: float) -> None:
    """Groups of eight by a random policy, a greedy one, and between them."""
    honest = [walk(length, np.random.default_rng(seed), greed) for seed in range(20)]
    blamed = sum(TWIN in found(rows) for rows in honest)
    assert blamed <= 1
    caught = sum(TWIN in found(copied(rows)) for rows in honest)
    if length >= 12 and greed <= 0.5:
        assert caught >= 14
    if greed == 1.0:
        assert caught == blamed == 0  # a greedy policy cannot be told from a copy
        assert all(EQUAL in found(rows) for rows in honest)


def test_real_rollouts_are_not_blamed() -> None:
    """A small model on short tasks repeats itself: a note, and no warning."""
    for name in ("textcraft", "trl", "verl"):
        table = read_table(Path(__file__).parents[2] / f"docs/examples/{name}.parquet")
        kinds = {problem.kind for problem in check(table).problems}
        assert EQUAL in kinds
        assert TWIN not in kinds
