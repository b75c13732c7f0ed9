"""A run that is killed and taken up again plays the tasks that an unbroken run plays."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

import torch
from transformers import TrainerCallback

from ascribe.engines.trl import last_checkpoint
from ascribe.steps.files import read
from tests.engines import trl_run
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, toys.QUIET]

ROOT = Path(__file__).parents[2]
ITERATIONS, KILLS = 8, 5


def options(folder: Path) -> dict[str, Any]:
    """Of a run of eight iterations with a checkpoint after each."""
    folder.mkdir(exist_ok=True)
    args = {"max_steps": ITERATIONS, "save_strategy": "steps", "save_steps": 1}
    return {"folder": str(folder), "recipe": "bipace_q", "fingerprints": -1, "args": args}


def start(folder: Path) -> subprocess.Popen[bytes]:
    """The run in a process of its own, with pauses in which it can be killed."""
    told = json.dumps(options(folder) | {"slow": 0.3})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engines.trl_run", told],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def log(folder: Path) -> list[str]:
    file = folder / "log.txt"
    return file.read_text().splitlines() if file.exists() else []


def tasks(folder: Path) -> list[list[tuple[str, str]]]:
    """For every iteration its groups, and the task that each played."""
    found = []
    for number, file in enumerate(sorted((folder / "rollouts").glob("*.parquet"))):
        assert file.name == f"rollouts_{number:05d}.parquet"
        rows = read(file).table.to_dicts()
        found.append(sorted({(row["group"], row["state"].split(",")[0]) for row in rows}))
    return found


@pytest.mark.slow
def test_killed_in_the_fourth_iteration(tmp_path: Path) -> None:
    unbroken = tmp_path / "unbroken"
    trl_run.main(options(unbroken))
    want = tasks(unbroken)
    assert len(want) == ITERATIONS
    random = np.random.default_rng(0)
    for kill in range(KILLS):
        folder = tmp_path / f"killed {kill}"
        run = start(folder)
        while "play 3" not in log(folder):  # the fourth iteration
            assert run.poll() is None
            time.sleep(0.01)
        time.sleep(random.uniform(0, 2.0))
        run.send_signal(signal.SIGKILL)
        assert run.wait(timeout=60) == -signal.SIGKILL
        before = log(folder)
        # A checkpoint that is only begun must not be taken for one.
        (folder / "checkpoint-900").mkdir()
        whole = last_checkpoint(folder)
        assert whole is not None
        done = int(whole.name.removeprefix("checkpoint-"))
        assert done in (3, 4)
        trl_run.main(options(folder))
        after = log(folder)[len(before) :]
        played = [line for line in after if line.startswith("play")]
        assert played == [f"play {number}" for number in range(done, ITERATIONS)]
        assert after[-1] == f"done {ITERATIONS}"
        assert tasks(folder) == want
        weights = [torch.load(run / "weights.pt") for run in (unbroken, folder)]
        for name, value in weights[0].items():
            torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-5)


def test_a_checkpoint_between_updates_of_an_iteration(tmp_path: Path) -> None:
    """Two updates on each iteration's rollouts, and a resume between them: no task is skipped."""
    args = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "num_iterations": 2}
    whole = toys.trainer(tmp_path, dump_dir=tmp_path / "whole", args=args)
    whole.train()
    again = toys.trainer(tmp_path, dump_dir=tmp_path / "again", args=args)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    names = [f"rollouts_{number:05d}.parquet" for number in range(3)]
    assert sorted(file.name for file in (tmp_path / "whole").iterdir()) == names
    assert sorted(file.name for file in (tmp_path / "again").iterdir()) == names[1:]
    for name in names[1:]:
        groups = [
            sorted(read(tmp_path / run / name).table.group.values) for run in ("whole", "again")
        ]
        assert groups[0] == groups[1]


def test_an_interrupted_trainer_forgets_what_it_was_at(tmp_path: Path) -> None:
    """Stopped in the third iteration, and taken up amid the second, by the same trainer."""

    class Interrupt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 5:
                raise KeyboardInterrupt

    args = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "num_iterations": 2}
    same = toys.trainer(tmp_path, args=args)
    same.add_callback(Interrupt)
    with pytest.raises(KeyboardInterrupt):
        same.train()
    same.remove_callback(Interrupt)
    found = []
    for made in (same, toys.trainer(tmp_path, args=args)):
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        names = ("loss", "entropy", "grad_norm", "ascribe/return", "ascribe/rows")
        found.append([toys.logged(made, name) for name in names])
    assert found[0] == found[1]


def test_a_longer_run_goes_on_with_other_tasks(tmp_path: Path) -> None:
    args = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    toys.trainer(tmp_path, dump_dir=tmp_path, args=args).train()
    longer = toys.trainer(tmp_path, dump_dir=tmp_path, args=args | {"max_steps": 2})
    longer.train(resume_from_checkpoint=True)
    files = sorted(tmp_path.glob("rollouts_*"))
    groups = [set(read(file).table.group.values) for file in files]
    assert groups == [{"train/0", "train/1"}, {"train/2", "train/3"}]


def test_without_a_whole_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    half = tmp_path / "checkpoint-1"
    half.mkdir()
    (half / "trainer_state.json").write_text('{"global_step": 1')
    (tmp_path / "checkpoint-notes").mkdir()
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(ValueError, match="holds no complete checkpoint"):
        toys.trainer(tmp_path).train(resume_from_checkpoint=True)
