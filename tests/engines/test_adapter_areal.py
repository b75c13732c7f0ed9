"""AReaL 1.0.4: its own actor with a recipe's advantages, and its own loss.

Nightly: to import AReaL takes 40 seconds of CPU time. In the environment ``trainers``:
``pytest -m nightly tests/engines/test_adapter_areal.py``.
"""

import warnings
from types import SimpleNamespace

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that AReaL imports
    pytest.importorskip("areal.trainer.ppo.actor")

import torch
from areal.api.cli_args import NormConfig, PPOActorConfig
from areal.trainer.ppo import actor as actor_module
from areal.trainer.ppo.actor import PPOActor, grpo_loss_fn
from areal.utils.data import concat_batch

from ascribe import recipe
from ascribe.engines.adapters import ExampleEpisode, credit_batch
from ascribe.engines.adapters.areal import ArealAdapter, actor_with
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from tests.engines.adapter_toys import run_snippet

pytestmark = pytest.mark.nightly
ADAPTER = ArealAdapter()
SAME_SIZE = [*EPISODES[:3], *EPISODES[4:]]
"""AReaL's own normalisation takes groups of one size."""


def config(**changes: object) -> PPOActorConfig:
    norm = NormConfig(mean_level="group", std_level="group", group_size=3)
    values = {"kl_ctl": 0.0, "adv_norm": None, "reward_norm": norm, "reward_scaling": 1.0}
    return PPOActorConfig(**{**values, "reward_bias": 0.0, **changes})


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_grpo_equals_areals_group_normalisation() -> None:
    own = PPOActor(config(), None).compute_advantages(ADAPTER.example(SAME_SIZE))
    method = recipe("grpo", std_epsilon=1e-5)
    ours = actor_with(method)(config(), None).compute_advantages(ADAPTER.example(SAME_SIZE))
    for one, other in zip(ours, own, strict=True):
        assert one.keys() == other.keys()
        written = other["loss_mask"].bool()
        torch.testing.assert_close(one["advantages"][written], other["advantages"][written])
        assert not one["advantages"][~written].any()
        for name in ("loss_mask", "logprobs", "input_ids"):
            assert torch.equal(one[name], other[name])


def test_its_loss_takes_the_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_module, "PPOActor", PPOActor)  # as it was, after the test
    tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
    run_snippet("AReaL", tokenizer=tokenizer)
    actor = actor_module.PPOActor(config(), None)
    batch, _ = concat_batch(actor.compute_advantages(ADAPTER.example(EPISODES)))
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


def test_kl_in_the_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="kl_ctl"):
        actor_with("gigpo")(config(kl_ctl=0.1), None)
