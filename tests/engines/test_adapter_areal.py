"""AReaL 1.0.4: its own actor, engine and worker with a recipe's advantages, and its own loss.

Nightly: to import AReaL takes 40 seconds of CPU time. In the environment ``trainers``:
``pytest -m nightly tests/engines/test_adapter_areal.py``.
"""

import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that AReaL imports
    pytest.importorskip("areal.trainer.ppo.actor")
    from areal.engine.fsdp_engine import FSDPPPOActor

import httpx
import torch
from areal.api.cli_args import NormConfig, PPOActorConfig
from areal.infra.rpc.rtensor import RTensor
from areal.infra.rpc.serialization import deserialize_value, serialize_value
from areal.trainer.ppo import actor as actor_module
from areal.trainer.ppo.actor import PPOActor, grpo_loss_fn
from areal.utils.data import concat_batch
from transformers import Qwen2Config

from ascribe import recipe
from ascribe.engines.adapters import ExampleEpisode, credit_batch
from ascribe.engines.adapters.areal import ArealAdapter, actor_with
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from tests.engines.adapter_toys import run_snippet

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("spmd")]
ADAPTER = ArealAdapter()
SAME_SIZE = [*EPISODES[:3], *EPISODES[4:]]
"""AReaL's own normalisation takes groups of one size."""


@pytest.fixture
def spmd(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of AReaL's launchers, and its own class after the test."""
    monkeypatch.setenv("AREAL_SPMD_MODE", "1")
    monkeypatch.setattr(actor_module, "PPOActor", PPOActor)


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


def test_its_loss_takes_the_advantages() -> None:
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


@pytest.fixture
def engine_config(tmp_path: Path) -> PPOActorConfig:
    """The config of an engine; to create one takes the config of a model, not its weights."""
    Qwen2Config(hidden_size=16, num_hidden_layers=1, vocab_size=64).save_pretrained(tmp_path)
    return config(path=str(tmp_path), experiment_name="test", trial_name="test")


def test_the_engine_of_a_launcher_uses_it(engine_config: PPOActorConfig) -> None:
    run_snippet("AReaL", tokenizer=SimpleNamespace(decode=str))
    engine = FSDPPPOActor(engine_config)
    result = engine.compute_advantages(ADAPTER.example(EPISODES))
    expected = credit_batch(ADAPTER, ADAPTER.example(EPISODES), "gigpo")[0]
    for one, other in zip(result, expected, strict=True):
        assert torch.equal(one["advantages"], other["advantages"])


def test_the_worker_of_the_default_mode_does_not_and_so_the_mode_is_refused(
    engine_config: PPOActorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor_module.PPOActor = actor_with("gigpo")
    with worker(tmp_path) as post:
        name = f"{FSDPPPOActor.__module__}.{FSDPPPOActor.__name__}"  # as TrainController sends it
        post("create_engine", engine=name, init_args=[engine_config], init_kwargs={})
        batch = ADAPTER.example(SAME_SIZE)
        result = post("call", method="compute_advantages", args=[batch], kwargs={})["result"]
        received = RTensor.localize(deserialize_value(result))
    stock = PPOActor(engine_config, None).compute_advantages(ADAPTER.example(SAME_SIZE))
    for one, other in zip(received, stock, strict=True):
        assert torch.equal(one["advantages"], other["advantages"])
    monkeypatch.delenv("AREAL_SPMD_MODE")
    with pytest.raises(ValueError, match="AREAL_SPMD_MODE"):
        run_snippet("AReaL", tokenizer=SimpleNamespace(decode=str))


@contextmanager
def worker(folder: Path) -> Iterator[Callable[..., Any]]:
    """A worker process of AReaL; gives a function that calls it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"{sys.executable} -m areal.infra.rpc.rpc_server --host 127.0.0.1 --port {port}"
    command += " --experiment-name test --trial-name test --role actor --worker-index 0"
    command += f" --fileroot {folder} --nfs-record-root {folder}"
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)

    def post(path: str, **values: Any) -> Any:
        body = {key: serialize_value(value) for key, value in values.items()}
        response = client.post(f"/{path}", json={"engine_name": "actor/0", **body})
        return response.raise_for_status().json()

    def serves() -> bool:
        try:
            return client.get("/health").is_success
        except httpx.TransportError:  # it does not listen yet
            return False

    with client, subprocess.Popen(command.split()) as process:
        try:
            last = time.monotonic() + 300
            while not serves() and time.monotonic() < last:
                time.sleep(1)
            yield post
        finally:
            process.terminate()
