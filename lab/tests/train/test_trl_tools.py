"""Environments of the laboratory as TRL takes them."""

from pathlib import Path

import numpy as np
import pytest

from ascribe.estimators import recipe
from ascribe.steps.files import read_table
from ascribe_lab.envs import make
from ascribe_lab.train.trl.tools import OVER, environment_factory, tool_tasks
from lab.tests.train import trl_games as toys


def test_an_episode_by_tool_calls() -> None:
    environment = environment_factory("ezpoints")()
    (row,) = tool_tasks(1, seed=5)
    first = environment.reset(**row)
    bare = make("ezpoints")
    observation, info = bare.reset(seed=row["seed"])
    assert info["task"] in first
    assert observation in first
    total, over = 0.0, False
    while not over:
        action = info["admissible_actions"][0]
        observation, reward, terminated, truncated, info = bare.step(action)
        assert environment.act(action).startswith(observation)
        total, over = total + reward, terminated or truncated
    assert environment.get_reward() == total
    assert environment.act("1") == OVER
    assert environment.get_reward() == total


def test_members_of_a_group_begin_the_same_episode() -> None:
    factory = environment_factory("sokoban")
    rows = tool_tasks(3, tasks=[4, 7])
    assert [row["task"] for row in rows[:2]] in ([4, 7], [7, 4])
    assert factory().reset(**rows[0]) == factory().reset(**rows[0]) != factory().reset(**rows[1])
    assert tool_tasks(3) == tool_tasks(4)[:3] != tool_tasks(3, seed=1)


@toys.QUIET
def test_ascribe_s_environments_in_trl_s_loop(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """TRL's own loop calls the tool; turns, states and credit follow from its mask."""
    pytest.importorskip("trl", reason="needs the extra trl")
    from datasets import Dataset

    from ascribe.engines.trl.trainer import AscribeTrainer
    from tests.engines.test_trl_credit import batches
    from tests.engines.trl_tools import tool_model

    model, tokenizer = tool_model(tmp_path_factory)
    made = AscribeTrainer(
        str(model),
        args=toys.config(tmp_path, max_steps=2, max_completion_length=160, num_iterations=2),
        train_dataset=Dataset.from_list(tool_tasks(2)),
        processing_class=tokenizer,
        environment_factory=environment_factory(toys.HALL, horizon=6),
        recipe=recipe("bipace_q", radius=0.2),
        fingerprints=-1,
        state="tool",
        dump_dir=tmp_path,
    )
    (batch,) = batches(made)  # two updates on one rollout
    table = read_table(tmp_path / "rollouts_00000.parquet")
    assert table.fingerprint is not None
    credit = recipe("bipace_q", radius=0.2)(table)
    mask = (batch["completion_mask"] * batch["tool_mask"]).numpy()
    starts = (mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]).astype(bool)
    np.testing.assert_allclose(batch["advantages"].numpy()[starts], credit.advantage, atol=1e-6)
    assert any(state.startswith("You are in room") for state in table.state.values)
    assert (table.step > 0).sum() >= 4
    assert toys.logged(made, "tools/call_frequency")[0] > 0.5
    assert toys.logged(made, "tools/failure_frequency")[0] < 0.2
    first = {state for state in table.state.values if "leave hall" in state}
    assert len(first) == 2  # a group is a task
