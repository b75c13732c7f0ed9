"""AReaL 1.0.4: its own actor with a recipe's advantages, in this process and in a worker's.

Nightly: to import AReaL takes 40 seconds of CPU time, here and in the worker. In the environment
``trainers``: ``pytest -m nightly tests/engines/test_adapter_areal.py``.
"""

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that AReaL imports
    pytest.importorskip("areal.trainer.ppo.actor")
    from areal.engine.fsdp_engine import FSDPPPOActor

import areal.engine
import torch
from areal.api import FinetuneSpec, ModelAllocation
from areal.api.cli_args import NormConfig, OptimizerConfig, PPOActorConfig, SchedulingSpec
from areal.infra.rpc.rtensor import RTensor
from areal.infra.scheduler.local import LocalScheduler
from areal.trainer.ppo.actor import PPOActorController, grpo_loss_fn
from areal.trainer.rl_trainer import PPOTrainer
from areal.utils import stats_tracker
from areal.utils.data import concat_batch
from transformers import Qwen2Config

from ascribe import recipe
from ascribe.engines.adapters import ExampleEpisode, credit_batch
from ascribe.engines.adapters.areal import OPTIONS, ArealAdapter, CreditedActor
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from tests.engines.adapter_toys import snippet
from tests.engines.option_lists import check_lists

pytestmark = pytest.mark.nightly
ADAPTER = ArealAdapter()
SAME_SIZE = [*EPISODES[:3], *EPISODES[4:]]
"""AReaL's own normalisation takes groups of one size."""


class Actor(CreditedActor, FSDPPPOActor):
    method = "gigpo"


@pytest.fixture
def config(tmp_path: Path) -> PPOActorConfig:
    """The config of an actor; to create one takes the config of a model, not its weights."""
    model = Qwen2Config(
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=1,
        vocab_size=64,
    )
    model.save_pretrained(tmp_path)
    return PPOActorConfig(
        experiment_name="test",
        trial_name="test",
        path=str(tmp_path),
        init_from_scratch=True,
        attn_impl="sdpa",
        dtype="float32",
        backend="fsdp:d1",
        optimizer=OptimizerConfig(),
        kl_ctl=0.0,
        adv_norm=None,
        reward_norm=None,
        reward_scaling=1.0,
        reward_bias=0.0,
    )


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_grpo_equals_areals_group_normalisation(config: PPOActorConfig) -> None:
    class Grpo(CreditedActor, FSDPPPOActor):
        method = recipe("grpo", std_epsilon=1e-5)

    ours = Grpo(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    config.reward_norm = NormConfig(mean_level="group", std_level="group", group_size=3)
    own = FSDPPPOActor(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    for one, other in zip(ours, own, strict=True):
        assert one.keys() == other.keys()
        written = other["loss_mask"].bool()
        torch.testing.assert_close(one["advantages"][written], other["advantages"][written])
        assert not one["advantages"][~written].any()
        for name in ("loss_mask", "logprobs", "input_ids"):
            assert torch.equal(one[name], other[name])


def test_its_loss_takes_the_advantages(config: PPOActorConfig) -> None:
    batch, _ = concat_batch(Actor(config).compute_advantages(ADAPTER.example(EPISODES)))
    expected, _ = concat_batch(credit_batch(ADAPTER, ADAPTER.example(EPISODES), "gigpo")[0])
    assert torch.equal(batch["advantages"], expected["advantages"])
    logprobs = batch["logprobs"].clone().requires_grad_()
    loss = grpo_loss_fn(logprobs, torch.zeros_like(logprobs), batch, 0.2, None, None)
    loss.backward()
    mask = batch["loss_mask"]
    torch.testing.assert_close(logprobs.grad, -batch["advantages"] * mask / mask.sum())


def test_a_group_of_one_sample_has_no_credit() -> None:
    alone = ExampleEpisode(group="alone", turns=EPISODES[0].turns, reward=1.0)
    result, credited = credit_batch(ADAPTER, ADAPTER.example([*EPISODES, alone]), "gigpo")
    assert not result[-1]["advantages"].any()
    assert result[0]["advantages"].any()
    assert len(credited.dropped) <= 1


def test_every_option_of_areal_has_an_answer() -> None:
    check_lists(OPTIONS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kl_ctl", 0.1),
        ("reward_norm", NormConfig(mean_level="group", std_level="group", group_size=3)),
        ("adv_norm", NormConfig()),
        ("importance_sampling_level", "sequence"),
        ("discount", 0.9),
        ("gae_lambda", 0.9),
    ],
)
def test_what_would_be_wrong_is_refused(config: PPOActorConfig, name: str, value: Any) -> None:
    setattr(config, name, value)
    with pytest.raises(ValueError, match=f"actor.{name} is "):
        Actor(config)


def test_ratios_of_whole_samples_average_their_advantages() -> None:
    """Why they are refused."""
    old = torch.full((1, 4), -0.5)
    batch = {
        "logprobs": old,
        "prox_logp": old,
        "advantages": torch.tensor([[1.0, 1.0, -1.0, -1.0]]),
        "loss_mask": torch.ones(1, 4),
    }
    for level, moved in {"token": True, "sequence": False}.items():
        logprobs = old.clone().requires_grad_()
        grpo_loss_fn(
            *(logprobs, torch.zeros_like(old), batch, 0.2, None, None),
            importance_sampling_level=level,
        ).backward()
        assert bool(logprobs.grad.any()) == moved


@pytest.mark.parametrize(
    "changes",
    [
        {"reward_scaling": 3.0},
        {"reward_bias": -0.5, "reward_clip": 0.75},
        {"overlong_reward_penalty": True, "overlong_tokens": 2, "overlong_penalty_factor": 0.5},
    ],
)
def test_rewards_are_what_areal_makes_of_them(
    config: PPOActorConfig, changes: dict[str, Any]
) -> None:
    """AReaL's own advantages are rewards, from which it subtracts the mean of the group."""

    class DrGrpo(CreditedActor, FSDPPPOActor):
        method = "dr_grpo"

    config.max_new_tokens = 5
    plain = DrGrpo(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    for name, value in changes.items():
        setattr(config, name, value)
    ours = DrGrpo(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    config.reward_norm = NormConfig(mean_level="group", std_level=None, group_size=3)
    own = FSDPPPOActor(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    moved = 0.0
    for one, other, before in zip(ours, own, plain, strict=True):
        written = other["loss_mask"].bool()
        torch.testing.assert_close(one["advantages"][written], other["advantages"][written])
        moved += float((one["advantages"] - before["advantages"]).abs().sum())
    assert moved > 0.1


def test_a_sample_as_long_as_the_batch_has_no_reward_if_areal_says_so(
    config: PPOActorConfig,
) -> None:
    config.mask_no_eos_with_zero = True
    masked = Actor(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    without = [replace(e, reward=0.0) if len(e.turns) == 4 else e for e in SAME_SIZE]
    expected = credit_batch(ADAPTER, ADAPTER.example(without), "gigpo")[0]
    for one, other in zip(masked, expected, strict=True):
        torch.testing.assert_close(one["advantages"], other["advantages"])
    assert masked[0]["advantages"].any()


@pytest.mark.parametrize("whole", [False, True])
def test_a_masked_response_keeps_its_turn(config: PPOActorConfig, whole: bool) -> None:
    """Its tokens have versions of the policy, as in AReaL's workflows."""

    def example() -> list[dict[str, Any]]:
        batch = ADAPTER.example(SAME_SIZE)
        for item in batch:
            item["versions"] = torch.where(item["loss_mask"].bool(), 4, -1)
        return batch

    plain = Actor(config).compute_advantages(example())
    batch = example()
    look = slice(9, 12)  # the last response of the first sample
    assert batch[0]["loss_mask"][0, look].tolist() == [1, 1, 1]
    hidden = look if whole else slice(10, 11)
    batch[0]["loss_mask"][0, hidden] = 0
    stats_tracker.export_all()
    masked = Actor(config).compute_advantages(batch)
    assert stats_tracker.export_all()["ascribe/masked_tokens"] == (3 if whole else 1)
    shown = masked[0]["loss_mask"].bool()
    assert not masked[0]["advantages"][~shown].any()
    torch.testing.assert_close(masked[0]["advantages"][shown], plain[0]["advantages"][shown])
    torch.testing.assert_close(masked[1]["advantages"], plain[1]["advantages"])


def test_the_worker_of_a_controller_credits(
    config: PPOActorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AReaL's default mode: the controller is here, the actor in a worker process."""
    (tmp_path / "credit.py").write_text(snippet("areal"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    import credit

    monkeypatch.setattr(areal.engine, "FSDPPPOActor", credit.Actor)  # the line of the page
    command = "python -m areal.infra.rpc.rpc_server"
    config.scheduling_spec = (SchedulingSpec(cpu=1, gpu=0, cmd=command),)
    scheduler = LocalScheduler(
        gpu_devices=[0],
        experiment_name="test",
        trial_name="test",
        fileroot=str(tmp_path),
        nfs_record_root=str(tmp_path),
        startup_timeout=300,
    )
    trainer = SimpleNamespace(scheduler=scheduler)
    allocation = ModelAllocation.from_str(config.backend, name="actor")
    controller = PPOTrainer._create_train_engine(trainer, config, allocation)
    assert type(controller) is PPOActorController
    try:
        spec = FinetuneSpec(total_train_epochs=1, dataset_size=8, train_batch_size=4)
        controller.initialize(role="actor", ft_spec=spec, addr=None)
        (worker,) = scheduler._workers["actor"]
        received = controller.compute_advantages(ADAPTER.example(EPISODES))
        controller.ppo_update(received)
        result = RTensor.localize(received)
    finally:
        controller.destroy()
    assert worker.process.wait(60) is not None  # AReaL sends a signal and does not wait
    expected = credit_batch(ADAPTER, ADAPTER.example(EPISODES), "gigpo")[0]
    for one, other in zip(result, expected, strict=True):
        assert torch.equal(one["advantages"], other["advantages"])
