"""A trajectory that was copied under another name is told, and honest repetition is not blamed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, check, recipe, select
from ascribe.steps.check import twins
from ascribe.steps.files import read_table

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


def wander(seed: int, originals: int, copies: int) -> StepTable:
    """Sessions of eight steps through one series of rooms, and copies of them."""
    random, rows = np.random.default_rng(seed), list[Row]()
    for index in range(originals + copies):
        if index < originals:
            doors = random.integers(4, size=8).tolist()
            reward = float(random.random() < 0.5)
            rows += [
                {"group": "g", "trajectory": f"t{index}", "step": step, "state": f"room {step}"}
                | {"action": f"door {door}", "reward": reward * (step == 7)}
                for step, door in enumerate(doors)
            ]
        else:
            model = f"t{random.integers(originals)}"
            rows += [
                row | {"trajectory": f"t{index}"} for row in rows if row["trajectory"] == model
            ]
    return StepTable.from_dicts(rows)


@pytest.mark.parametrize(("originals", "copies"), [(27, 3), (15, 15), (3, 27)])
def test_copies_are_told_however_many_there_are(originals: int, copies: int) -> None:
    for seed in range(10):
        table = wander(seed, originals, copies)
        equal, copied = twins(table)
        assert copied.sum() == copies
        assert equal.sum() <= 2 * copies
        assert (copied & ~equal).sum() == 0


@pytest.mark.parametrize("greed", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("length", [2, 3, 12])
def test_honest_repetitions_are_no_copies(length: int, greed: float) -> None:
    """Luck decides, so equal sessions earn differently; or a policy repeats itself in any task."""
    blamed = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        rows = walk(length, random, greed, trajectories=30)
        won = {f"t{n}": float(random.random() < 0.5) for n in range(30)}
        for row in rows:
            row["reward"] *= won[row["trajectory"]]
        blamed += int(twins(StepTable.from_dicts(rows))[1].sum() > 0)
    assert blamed <= 1


def test_two_plans_in_many_tasks_are_no_copies() -> None:
    rows = [
        {"group": f"g{group}", "trajectory": f"{group}/{number}", "step": step, "state": f"{step}"}
        | {"action": ("left", "right")[number % 2], "reward": float(step == 4 and number % 2)}
        for group in range(5)
        for number in range(8)
        for step in range(5)
    ]
    equal, copied = twins(StepTable.from_dicts(rows))
    assert equal.all()
    assert not copied.any()


def test_fingerprints_that_differ_are_no_copies() -> None:
    table = wander(0, 3, 27)
    vectors = np.random.default_rng(0).normal(size=(len(table), 4)).astype(np.float32)
    assert not twins(replace(table, fingerprint=vectors))[1].any()
