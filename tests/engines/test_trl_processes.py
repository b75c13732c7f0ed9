"""Two processes over gloo learn what one does, from the same rollouts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

import torch

from ascribe.steps.files import read
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.QUIET]

ROOT = Path(__file__).parents[2]

FSDP = {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}


def run(folder: Path, processes: int, **options: Any) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    told = json.dumps({"folder": str(folder), **options})
    done = subprocess.run(
        [sys.executable, *launch, "-m", "tests.engines.trl_run", told],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def logs(folder: Path) -> dict[str, Any]:
    """What was logged of the first iteration: the state is saved with the checkpoint."""
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    found: dict[str, Any] = state["log_history"][0]
    return found


def test_two_processes_find_what_one_does_in_held_out_tasks(tmp_path: Path) -> None:
    """Ten tasks in batches of eight: the second is filled up with six that were played already."""
    args = {"num_generations_eval": 1, "per_device_eval_batch_size": 4, "eval_on_start": True}
    args |= {"eval_strategy": "steps", "eval_steps": 9, "save_strategy": "steps", "save_steps": 2}
    run(tmp_path, 2, eval_tasks=[*range(10)], args=args | {"max_steps": 2})
    together = logs(tmp_path)
    alone = toys.trainer(tmp_path, eval_tasks=range(10), args=args).evaluate()
    names = ["eval_reward", *(name for name in alone if name.startswith("eval_ascribe/"))]
    assert alone["eval_ascribe/episodes"] == 10
    assert {name: together[name] for name in names} == {name: alone[name] for name in names}


@pytest.mark.parametrize(
    ("loss_type", "layout", "recipe"),
    [("dapo", "step", "bipace_q"), ("grpo", "trajectory", "sbc")],
)
def test_two_processes_learn_what_one_does(
    loss_type: str, layout: str, recipe: str, tmp_path: Path
) -> None:
    """Twelve episodes in three groups: the middle group is played by both processes."""
    args: dict[str, Any] = {"loss_type": loss_type, "max_steps": 2, "optim": "sgd"}
    args |= {"learning_rate": 0.1, "save_strategy": "steps", "save_steps": 1}
    weights, files = [], []
    for processes, size in ((1, 6), (2, 3)):
        folder = tmp_path / str(processes)
        folder.mkdir()
        wide = {"args": args | {"per_device_train_batch_size": size}}
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
    alone, together = logs(tmp_path / "1"), logs(tmp_path / "2")
    for name in ("success", "return", "episodes", "rows", "rows_skipped", "signal_share"):
        assert together[f"ascribe/{name}"] == pytest.approx(alone[f"ascribe/{name}"])


def test_two_processes_credit_trl_s_own_episodes_as_one_does(tmp_path: Path) -> None:
    """TRL's loop, ours only the credit; the middle group lies with both processes.

    The third run splits the weights too, by FSDP: the pass for fingerprints is made by all.
    """
    args: dict[str, Any] = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1}
    fsdp = {"fsdp": "full_shard", "fsdp_config": FSDP}
    weights, files = [], []
    for name, processes, more in (("one", 1, {}), ("two", 2, {}), ("fsdp", 2, fsdp)):
        folder = tmp_path / name
        folder.mkdir()
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
