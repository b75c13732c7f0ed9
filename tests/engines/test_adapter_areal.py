"""AReaL 1.0.4: its own actor with a recipe's advantages, in this process and in a worker's.

Nightly: to import AReaL takes 40 seconds of CPU time, here and in the worker. In the environment
``trainers``: ``pytest -m nightly tests/engines/test_adapter_areal.py``.
"""

import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

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
from areal.utils.data import concat_batch
from transformers import Qwen2Config

from ascribe import recipe
from ascribe.engines.adapters import ExampleEpisode, credit_batch
from ascribe.engines.adapters.areal import ArealAdapter, CreditedActor
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from tests.engines.adapter_toys import snippet

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
        reward_norm=NormConfig(mean_level="group", std_level="group", group_size=3),
        reward_scaling=1.0,
        reward_bias=0.0,
    )


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_grpo_equals_areals_group_normalisation(config: PPOActorConfig) -> None:
    class Grpo(CreditedActor, FSDPPPOActor):
        method = recipe("grpo", std_epsilon=1e-5)

    own = FSDPPPOActor(config).compute_advantages(ADAPTER.example(SAME_SIZE))
    ours = Grpo(config).compute_advantages(ADAPTER.example(SAME_SIZE))
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


def test_kl_in_the_reward_is_refused(config: PPOActorConfig) -> None:
    config.kl_ctl = 0.1
    with pytest.raises(ValueError, match="kl_ctl"):
        Actor(config)


def test_the_worker_of_a_controller_credits(
    config: PPOActorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AReaL's default mode: the controller is here, the actor in a worker process."""
    (tmp_path / "credit.py").write_text(snippet("AReaL"))
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
