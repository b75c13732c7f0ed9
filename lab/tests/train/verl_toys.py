"""Runs of verl with a tiny model that plays two goals of TextCraft, sometimes well."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.crediting import History
from ascribe.engines.metrics import read_metrics
from ascribe.estimators.assign import assign
from ascribe.steps.files import read
from ascribe_lab.train.load import load_config
from lab.tests.craft_model import OPTIONS, TASKS, write_tiny  # noqa: F401 (for the tests)
from tests.engines.needs import NEEDS_VERL  # noqa: F401 (likewise)


def write_config(path: Path, model: Path, **changes: Any) -> Path:
    """Two groups of four on the two goals; ``changes`` by section, or section__key."""
    import yaml

    document: dict[str, Any] = {
        "model": {"path": str(model)},
        "environment": {"name": "textcraft", "options": OPTIONS, "style": "plain"},
        "recipe": {"name": "gigpo"},
        "rollout": {
            "groups": 2,
            "size": 4,
            "max_turns": 4,
            "max_tokens": 24,
            "context": 320,
            "tasks": list(TASKS),
        },
        "update": {"iterations": 1, "learning_rate": 1e-3, "kl": 0, "rows_per_pass": 8},
        "output": {"folder": str(path.parent / "run"), "save_every": 1, "rollouts": True},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            document.setdefault(section, {})[key] = value
        else:
            document[section] = value
    path.write_text(yaml.safe_dump(document))
    return path


def start(
    config: Path, *options: str, command: Sequence[str] = ("train",), **environment: str
) -> "subprocess.Popen[bytes]":
    """``ascribe train --engine verl`` in a process group of its own, once Ray has started.

    It talks to ``log.txt``.
    """
    ascribe = Path(sys.executable).parent / "ascribe"
    words = [str(ascribe), *command, "--engine", "verl", str(config), *options]
    # The workers find the toys of the tests by this path.
    root = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    spy = {
        "VERL_USE_EXTERNAL_MODULES": "lab.tests.train.verl_spy",
        "SPY": str(config.parent / "spied"),
    }
    found = {**os.environ, "PYTHONPATH": root, **spy, **environment}
    found.pop("OMP_NUM_THREADS", None)
    return when_ray_runs(words, config.parent, found)


def when_ray_runs(
    words: Sequence[str], folder: Path, environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """Start verl, and again if Ray was late: it gives itself 30 seconds, which nothing can change.

    On a busy machine that may be too little. Nothing was computed yet.
    """
    path = folder / "log.txt"
    for _ in range(3):
        with path.open("ab") as log:
            begin = log.tell()
            running = subprocess.Popen(
                words, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder
            )
        deadline = time.monotonic() + 300
        while True:
            ended = running.poll() is not None
            said = path.read_bytes()[begin:]
            if ended or b"Started a local Ray instance" in said or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if b"The current node timed out during startup" not in said:
            break
        if "train" in words and "--resume" not in words:  # its folder is there now
            words = [*words, "--resume"]
    return running


def run_rooms(folder: Path, keys: dict[str, Any], **environment: str) -> None:
    """The example's run of stock verl on the CPU, to its end; it talks to ``log.txt``."""
    script = Path(__file__).parents[3] / "examples" / "verl_rooms" / "cpu.sh"
    run_typed(
        [str(script), *(f"{name}={value}" for name, value in keys.items())], folder, **environment
    )


def run_typed(words: Sequence[str], folder: Path, **environment: str) -> None:
    """A command that starts verl, to its end; it talks to ``log.txt``."""
    root = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"RAY_USAGE_STATS_ENABLED": "0", "HYDRA_FULL_ERROR": "1"}
    found = {**os.environ, "PYTHONPATH": root, "PATH": path, **own, **environment}
    found.pop("OMP_NUM_THREADS", None)
    code = end_of(when_ray_runs(words, folder, found))
    assert code == 0, (folder / "log.txt").read_text(errors="replace")[-6000:]


def train(config: Path, *options: str, **how: Any) -> list[dict[str, Any]]:
    """Run to the end, and give the lines of ``metrics.jsonl``; ``how`` as in ``start``."""
    running = start(config, *options, **how)
    code = end_of(running)
    said = (config.parent / "log.txt").read_text(errors="replace")
    assert code == 0, said[-6000:]
    return metrics(config)


def metrics(config: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return read_metrics(config.parent / "run")


def end_of(running: "subprocess.Popen[bytes]") -> int:
    """The exit code; a run that takes too long is killed."""
    try:
        return running.wait(timeout=1200)
    except subprocess.TimeoutExpired:
        kill(running)
        raise


def kill(running: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to the whole process group."""
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=60)


def wait_for(what: Any, seconds: float = 600) -> None:
    """Until something is true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


def dumped(config: Path) -> list[Path]:
    """The files of rollouts, in order."""
    return sorted((config.parent / "run" / "rollouts").glob("rollouts_*.parquet"))


def tasks_played(config: Path) -> list[tuple[str, str]]:
    """Group and goal of each trajectory, in order."""
    import pyarrow.parquet as pq

    found: dict[tuple[str, str], None] = {}
    for path in dumped(config):
        rows = pq.read_table(path, columns=["trajectory", "step", "observation"]).to_pylist()
        first = (row for row in rows if row["step"] == 0)
        found |= dict.fromkeys((row["trajectory"], row["observation"]) for row in first)
    return list(found)


def assert_credited(config: Path) -> list[History]:
    """What every update was given is what ``ascribe`` gives to the rollouts in the files.

    Returns what the recipe handed on after each.
    """
    made = load_config(config).config.recipe.recipe()
    files = dumped(config)
    assert files
    histories: list[History] = []
    for number, path in enumerate(files, start=1):
        steps = read(path)
        inputs = {"history": (histories or [None])[-1]} if made.has_history else {}
        credit = assign(steps.table, made, **inputs).credit
        histories.append(credit.history)
        again = credit.advantage
        np.testing.assert_allclose(steps.carried["trained_advantage"].to_numpy(), again, atol=1e-6)
        assert_rows(config, number, steps, again)
    return histories


def assert_rows(config: Path, number: int, steps: Any, advantages: Any) -> None:
    """An update's rows hold these advantages on each sampled token, and padding holds nothing."""
    left = sorted(
        (tuple(row["prompt_ids"]), tuple(row["response_ids"]), value)
        for row, value in zip(steps.carried.to_pylist(), advantages, strict=True)
    )
    found = []
    for row in given(config, number):
        mask = np.array(row["loss_mask"])
        assert row["loss_mask"] == row["response_mask"]
        if row["padding"]:
            assert not mask.any()
            continue
        assert mask.all()
        assert np.ptp(row["advantages"]) == 0
        found.append((tuple(row["prompts"]), tuple(row["responses"]), row["advantages"][0]))
    for one, other in zip(sorted(found), left, strict=True):
        assert one[:2] == other[:2]
        assert abs(one[2] - other[2]) < 1e-6


def given(config: Path, number: int) -> list[dict[str, Any]]:
    """The rows that an update was given, counted from 1."""
    text = (config.parent / "spied" / f"begun_{number:05d}.json").read_text()
    found: list[dict[str, Any]] = json.loads(text)
    return found
