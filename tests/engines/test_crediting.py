"""Files of the steps of an iteration."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ascribe.engines.crediting import credit_steps, write_steps
from ascribe.estimators import recipe
from ascribe.steps.files import read
from ascribe.steps.table import StepTable


def test_a_file_without_groups_that_count_has_the_columns_of_steps(tmp_path: Path) -> None:
    """All episodes of an iteration have a reward that is no number: nothing is left."""
    steps = {"group": ["a", "a"], "trajectory": ["0", "1"], "step": [0, 0], "state": ["s", "s"]}
    table = StepTable.from_columns(steps | {"action": ["x", "y"], "reward": [np.nan, np.nan]})
    credited = credit_steps(table, recipe("gigpo"))
    assert (credited.credit, list(credited.dropped)) == (None, ["a"])
    again = read(write_steps(credited, tmp_path, 0))
    assert len(again.table) == 0
    assert again.carried.column_names == ["trained_advantage"]


def test_a_folder_of_iterations_has_the_advantages_of_training(tmp_path: Path) -> None:
    """Also where a recipe compares over a batch, and groups of two iterations share a name."""
    whole = recipe("reinforce_pp")
    for number, rewards in enumerate(([1.0, 0.0], [3.0, 2.0])):
        steps = {"group": ["a", "a"], "trajectory": ["0", "1"], "step": [0, 0], "state": ["s", "s"]}
        table = StepTable.from_columns(steps | {"action": ["x", "y"], "reward": rewards})
        write_steps(credit_steps(table, whole), tmp_path / "rollouts", number)
    pq.write_table(pq.read_table(tmp_path / "rollouts"), tmp_path / "all.parquet")
    found = read(tmp_path / "all.parquet")
    assert found.table.iteration.tolist() == [1, 1, 2, 2]  # as in metrics.jsonl
    trained = found.carried.column("trained_advantage").to_numpy()
    np.testing.assert_allclose(whole(found.table).advantage, trained)
    assert trained.tolist()[:2] == trained.tolist()[2:] != [0.0, 0.0]


def test_the_first_batch_of_a_recipe_says_what_its_discount_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = np.tile(np.arange(90), 8)
    trajectory = np.repeat(np.arange(8), 90)
    table = StepTable.from_columns(
        {
            "group": trajectory // 4,
            "trajectory": trajectory,
            "step": steps,
            "state": steps,
            "action": trajectory,
            "reward": ((steps == 89) & (trajectory % 2 == 0)).astype(float),
        }
    )
    by = recipe("returns", gamma=0.951)
    for _ in range(2):
        credit_steps(table, by)
    credit_steps(table, recipe("grpo"))  # has no discount
    assert caplog.messages == [
        f"{by!r}. With discount 0.951, a step gets 0.011 of a reward 90 steps later (the median "
        "length). Proposed from 4 successes: 0.9926, which gives 0.51."
    ]
