"""One rollout per task on TRL: advantages against what earlier iterations measured.

Page: docs/engines/trl.md.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ascribe import recipe
from ascribe.engines import crediting
from ascribe.steps.files import read_table
from tests.engines import trl_toys as toys
from tests.engines.by_hand import against_memory

pytest.importorskip("trl")
pytestmark = [pytest.mark.engine, toys.QUIET]

MEMORY, GAMMA = 0.8, 0.9
RECIPES = {
    "returns": recipe("returns", memory=MEMORY, gamma=GAMMA),
    "sbc": recipe("sbc", states="exact", memory=MEMORY),
}
FOUR = {
    "shuffle_dataset": False,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "num_generations": 1,
}
"""Each iteration plays all four tasks; TRL shuffles those of a resumed run in another order."""


def trainer(folder: Path, method: Any, args: dict[str, Any], **options: Any) -> Any:
    return toys.own_trainer(folder, args=FOUR | args, recipe=method, **options)


def dumped(folder: Path, number: int) -> tuple[Any, Any]:
    """The steps of an iteration, and their advantages in training."""
    path = folder / f"rollouts_{number:05d}.parquet"
    return read_table(path), pq.read_table(path)["trained_advantage"].to_numpy()


@pytest.mark.parametrize("name", RECIPES)
def test_credit_is_that_of_the_recipe_also_after_a_checkpoint(name: str, tmp_path: Path) -> None:
    """Nothing in the first iteration; from the second on, as on the table, in a resumed run too."""
    method, steps = RECIPES[name], {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    made = trainer(tmp_path / "run", method, steps, dump_dir=tmp_path / "whole")
    made.train()
    assert toys.logged(made, "ascribe/credit/memory_share") == [0, 1, 1, 1]
    again = trainer(tmp_path / "run", method, steps, dump_dir=tmp_path / "resumed")
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    history, tasks, every = None, set(), []
    for number in range(4):
        table, trained = dumped(tmp_path / "whole", number)
        credit = method(table, history=history)
        history = credit.history
        every += trained.tolist()
        np.testing.assert_array_equal(trained, credit.advantage)
        assert trained.any() == (number > 0)
        tasks |= set(table.task.texts())
        assert (len(table.group.values), len(tasks)) == (4, 4)
        if number > 1:
            other, resumed = dumped(tmp_path / "resumed", number)
            assert other.action.texts() == table.action.texts()
            np.testing.assert_array_equal(resumed, trained)
    state = json.loads((tmp_path / "run/checkpoint-4/trainer_state.json").read_text())
    assert state["stateful_callbacks"]["ascribe_history"] == history
    assert len(list((tmp_path / "resumed").iterdir())) == 2
    # A file of all iterations passes the memory on, as ascribe credit does.
    pq.write_table(pq.read_table(tmp_path / "whole"), tmp_path / "all.parquet")
    assert method(read_table(tmp_path / "all.parquet")).advantage.tolist() == every


def test_returns_are_compared_with_those_of_earlier_iterations(tmp_path: Path) -> None:
    made = trainer(tmp_path, RECIPES["returns"], {"max_steps": 3}, dump_dir=tmp_path)
    made.train()
    tables, trained = zip(*(dumped(tmp_path, number) for number in range(3)), strict=True)
    for number, by_hand in enumerate(against_memory(tables, MEMORY, GAMMA)):
        np.testing.assert_allclose(trained[number], by_hand, atol=1e-12)
        assert by_hand.any() == (number > 0)


def test_one_rollout_without_a_memory_is_refused(tmp_path: Path) -> None:
    for name in ("grpo", "gigpo", "sbc"):
        with pytest.raises(ValueError, match=f"num_generations: {name} compares .* memory=0.8"):
            trainer(tmp_path, name, {})
    trainer(tmp_path, "reinforce_pp", {})


def test_tasks_that_do_not_come_again_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crediting, "MANY_BATCHES", 2)
    made = trainer(tmp_path, recipe("returns", memory=0.3), {"max_steps": 5})
    made.train_dataset = toys.prompts(20)
    made.train()
    assert toys.logged(made, "ascribe/credit/memory_share") == [0] * 5
    assert caplog.text.count("hardly any comes again") == 1
