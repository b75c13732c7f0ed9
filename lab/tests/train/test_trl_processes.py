"""Two processes over gloo learn what one does, from the same rollouts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

import torch

from ascribe.steps.files import read
from lab.tests.train import trl_games as toys
from lab.tests.train.trl_run import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.QUIET]

FSDP = {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}


def logs(folder: Path) -> list[dict[str, Any]]:
    """What was logged of the held-out tasks at the start, and of the first iteration."""
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    found: list[dict[str, Any]] = state["log_history"][:2]
    return found


@pytest.mark.parametrize(
    ("loss_type", "layout", "recipe"),
    [("dapo", "step", "bipace_q"), ("grpo", "trajectory", "sbc")],
)
def test_two_processes_learn_what_one_does(
    loss_type: str, layout: str, recipe: str, tmp_path: Path
) -> None:
    """Twelve episodes in three groups: the middle group is played by both processes.

    Of ten held-out tasks in batches of eight, the second batch is filled up with six that were
    played already.
    """
    args: dict[str, Any] = {"loss_type": loss_type, "max_steps": 2, "optim": "sgd"}
    args |= {"learning_rate": 0.1, "save_strategy": "steps", "save_steps": 2}
    args |= {"num_generations_eval": 1, "per_device_eval_batch_size": 4, "eval_on_start": True}
    args |= {"eval_strategy": "steps", "eval_steps": 9}
    weights, files = [], []
    for processes, size in ((1, 6), (2, 3)):
        folder = tmp_path / str(processes)
        wide = {"args": args | {"per_device_train_batch_size": size}, "eval_tasks": [*range(10)]}
        run(folder, processes, layout=layout, recipe=recipe, fingerprints=-1, **wide)
        weights.append(torch.load(folder / "weights.pt"))
        files.append([read(file) for file in sorted((folder / "rollouts").glob("*.parquet"))])
    for one, two in zip(*files, strict=True):
        assert one.table.group.values.size == 3
        ids = [t.carried.select(["prompt_ids", "response_ids"]).to_pylist() for t in (one, two)]
        assert ids[0] == ids[1]
        trained = [t.carried.column("trained_advantage").to_numpy() for t in (one, two)]
        np.testing.assert_allclose(*trained, rtol=0, atol=1e-6)
    before = toys.tiny().state_dict()
    moved = max(float((before[name] - weights[0][name]).abs().max()) for name in before)
    assert moved > 1e-3
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-6)
    (held_out, alone), (too, together) = logs(tmp_path / "1"), logs(tmp_path / "2")
    for name in ("success", "return", "episodes", "rows", "rows_skipped", "signal_share"):
        assert together[f"ascribe/{name}"] == pytest.approx(alone[f"ascribe/{name}"])
    assert held_out["eval_ascribe/episodes"] == 10
    names = ["eval_reward", *(name for name in held_out if name.startswith("eval_ascribe/"))]
    assert {name: too[name] for name in names} == {name: held_out[name] for name in names}


def test_two_processes_credit_trl_s_own_episodes_as_one_does(tmp_path: Path) -> None:
    """TRL's loop, ours only the credit; the middle group lies with both processes.

    The third run splits the weights too, by FSDP: the pass for fingerprints is made by all.
    """
    args: dict[str, Any] = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1}
    fsdp = {"fsdp": "full_shard", "fsdp_config": FSDP}
    weights, files = [], []
    for name, processes, more in (("one", 1, {}), ("two", 2, {}), ("fsdp", 2, fsdp)):
        folder = tmp_path / name
        wide = {"args": args | more | {"per_device_train_batch_size": 6 // processes}}
        run(folder, processes, own=True, recipe="bipace_q", fingerprints=-1, **wide)
        weights.append(torch.load(folder / "weights.pt"))
        files.append([read(file) for file in sorted((folder / "rollouts").glob("*.parquet"))])
    for one, *others in zip(*files, strict=True):
        assert one.table.group.values.size == 3
        trained = one.carried.column("trained_advantage").to_numpy()
        assert np.abs(trained).max() > 0.1
        for other in others:
            assert one.table.state.texts() == other.table.state.texts()
            again = other.carried.column("trained_advantage").to_numpy()
            np.testing.assert_allclose(again, trained, rtol=0, atol=1e-6)
    for other in weights[1:]:
        for name, value in weights[0].items():
            torch.testing.assert_close(other[name], value, rtol=0, atol=1e-6)
