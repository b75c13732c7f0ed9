"""A run that is killed and taken up again plays the tasks that an unbroken run plays."""

import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

import torch
from transformers import TrainerCallback

from ascribe.engines.trl import last_checkpoint
from ascribe.steps.files import read
from lab.tests.train import trl_games as toys
from lab.tests.train import trl_run

pytestmark = [pytest.mark.engine, toys.QUIET]

ITERATIONS = 6


def options(folder: Path) -> dict[str, Any]:
    """Of a run of six iterations with a checkpoint after each."""
    folder.mkdir(exist_ok=True)
    args = {"max_steps": ITERATIONS, "save_strategy": "steps", "save_steps": 1}
    return {"folder": str(folder), "recipe": "bipace_q", "fingerprints": -1, "args": args}


def tasks(folder: Path) -> list[list[tuple[str, str]]]:
    """For every iteration its groups, and the task that each played."""
    found = []
    for number, file in enumerate(sorted((folder / "rollouts").glob("*.parquet"))):
        assert file.name == f"rollouts_{number:05d}.parquet"
        rows = read(file).table.to_dicts()
        found.append(sorted({(row["group"], row["state"].split(",")[0]) for row in rows}))
    return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody kills."""
    folder = tmp_path_factory.mktemp("run") / "unbroken"
    trl_run.main(options(folder))
    return folder


def check_resumed(unbroken: Path, folder: Path, run: BaseProcess) -> None:
    """A run that was killed, and is resumed, ends as one that was not."""
    # A checkpoint that is only begun must not be taken for one.
    (folder / "checkpoint-900").mkdir()
    done = int(trl_run.killed(run, folder).name.removeprefix("checkpoint-"))
    assert done in (3, 4)
    before = trl_run.log(folder)
    trl_run.main(options(folder))
    after = trl_run.log(folder)[len(before) :]
    played = [line for line in after if line.startswith("play")]
    assert played == [f"play {number}" for number in range(done, ITERATIONS)]
    assert after[-1] == f"done {ITERATIONS}"
    want = tasks(unbroken)
    assert len(want) == ITERATIONS
    assert tasks(folder) == want
    weights = [torch.load(run / "weights.pt") for run in (unbroken, folder)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["play 3", "learn 3"])
def test_killed_in_the_fourth_iteration(line: str, unbroken: Path, tmp_path: Path) -> None:
    (run,) = trl_run.start(options(tmp_path) | {"killed_at": line})
    check_resumed(unbroken, tmp_path, run)


@pytest.mark.nightly
def test_killed_at_any_time(unbroken: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for kill in range(5):
        folder = tmp_path / str(kill)
        (run,) = trl_run.start(options(folder) | {"slow": 0.3})
        while "play 3" not in trl_run.log(folder):
            assert run.is_alive()
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5))
        run.kill()
        check_resumed(unbroken, folder, run)


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
