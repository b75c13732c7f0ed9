"""Tinker cookbook 0.5.8 and 0.6.1: its own objects in, its own functions take what comes out."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tinker_cookbook")

import torch
from tinker import ModelInput
from tinker_cookbook.rl import data_processing, metrics, train
from tinker_cookbook.rl.types import EnvGroupBuilder, Trajectory, TrajectoryGroup

from ascribe.engines.adapters import credit_batch
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.tinker import OPTIONS, TinkerAdapter, assemble_with
from tests.engines.adapter_toys import run_snippet
from tests.engines.option_lists import check_lists

ADAPTER = TinkerAdapter()


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_credit_of_whole_trajectories_equals_the_cookbooks_own() -> None:
    groups = ADAPTER.example(EPISODES)
    own, where = data_processing.assemble_training_data(
        groups, data_processing.compute_advantages(groups)
    )
    (data, metadata), _ = credit_batch(ADAPTER, groups, "dr_grpo")
    assert metadata == where
    for one, other in zip(data, own, strict=True):
        assert one.model_input == other.model_input
        assert one.loss_fn_inputs.keys() == other.loss_fn_inputs.keys()
        for name, values in other.loss_fn_inputs.items():
            torch.testing.assert_close(one.loss_fn_inputs[name].to_torch(), values.to_torch())


def test_its_loop_prepares_a_minibatch_and_its_metrics_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = ADAPTER.example(EPISODES)
    own = train.assemble_training_data
    monkeypatch.setattr(train, "assemble_training_data", own)  # as it was, after the test
    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
    run_snippet("tinker", tokenizer=tokenizer)
    monkeypatch.setattr(train, "print_group", lambda *_: None)  # prints in colour

    class Builder(EnvGroupBuilder):
        async def make_envs(self) -> list:
            return []

    data, *_ = asyncio.run(  # since 0.6 what was used, too
        train.prepare_minibatch([Builder(), Builder()], groups, None, None, 0.0, 0.0)
    )
    expected, credited = credit_batch(ADAPTER, groups, "gigpo")
    assert list(map(repr, data)) == list(map(repr, expected[0]))
    assert len(set(np.round(credited.advantage, 6))) > 4  # turns differ inside of a trajectory
    sampled = [each.loss_fn_inputs["logprobs"].to_torch() for each in data]
    assert metrics.compute_kl_sample_train(data, sampled)["optim/kl_sample_train_v1"] == 0.0


def test_a_turn_that_the_cookbook_masks_has_no_advantage_and_the_others_keep_theirs() -> None:
    groups = ADAPTER.example(EPISODES)
    groups[0].trajectories_G[0].transitions[1].metrics["parse_error_masked"] = 1.0
    table, places = ADAPTER.steps(groups)
    data, _ = ADAPTER.put(groups, places, np.arange(1.0, len(table) + 1))
    values = data[0].loss_fn_inputs["advantages"].tolist()
    assert [round(value) for value in values if value] == [1, 3, 3, 3]


def test_a_rewritten_history_gives_several_data() -> None:
    groups = ADAPTER.example(EPISODES)
    first = groups[0].trajectories_G[0].transitions
    first[2].ob = first[0].ob
    table, places = ADAPTER.steps(groups)
    assert table.to_dicts()[2]["state"] == table.to_dicts()[0]["state"]
    data, metadata = ADAPTER.put(groups, places, np.arange(1.0, len(table) + 1))
    assert [each["traj_idx"] for each in metadata[:3]] == [0, 0, 1]
    assert [round(v) for v in data[1].loss_fn_inputs["advantages"].tolist() if v] == [3, 3, 3]


def test_states_by_a_key() -> None:
    groups = ADAPTER.example(EPISODES)
    table, _ = TinkerAdapter(key=lambda transition: "here", decode=str).steps(groups)
    assert table.state.values.tolist() == ["here"]
    assert table.to_dicts()[0]["action"] == "[11]"


def test_every_option_of_the_cookbook_has_an_answer() -> None:
    check_lists(OPTIONS)


def test_a_member_without_a_transition_counts_with_its_reward() -> None:
    """As in the cookbook's own mean."""
    groups = ADAPTER.example(EPISODES)
    groups[0].trajectories_G.insert(1, Trajectory([], ModelInput.empty(), "rollout_timeout"))
    groups[0].final_rewards_G.insert(1, -2.0)
    groups[0].metrics_G.insert(1, {})
    own, where = data_processing.assemble_training_data(
        groups, data_processing.compute_advantages(groups)
    )
    (data, metadata), credited = credit_batch(ADAPTER, groups, "dr_grpo")
    assert metadata == where
    for one, other in zip(data, own, strict=True):
        values = [each.loss_fn_inputs["advantages"].to_torch() for each in (one, other)]
        torch.testing.assert_close(*values)
    assert credited.table.truncated.sum() == 1
    assert credited.table.reward.sum() == sum(e.reward for e in EPISODES) - 2


@pytest.mark.parametrize("groups", [[], [TrajectoryGroup([], [], [])]])
def test_a_batch_without_members_has_no_data(groups: list) -> None:
    assert assemble_with("gigpo")(groups, []) == ([], [])


def test_an_empty_group_changes_no_other() -> None:
    groups = ADAPTER.example(EPISODES)
    expected, _ = credit_batch(ADAPTER, groups, "gigpo")
    groups.insert(1, TrajectoryGroup([], [], []))
    (data, metadata), _ = credit_batch(ADAPTER, groups, "gigpo")
    assert list(map(repr, data)) == list(map(repr, expected[0]))
    assert [each["group_idx"] for each in metadata] == [0] * 4 + [2] * 3
