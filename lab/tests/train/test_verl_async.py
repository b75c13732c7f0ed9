"""verl's asynchronous trainers on the CPU, with processes that are killed while they run."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lab.tests.train import verl_toys as toys
from lab.tests.train.trl_games import HALL

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]

LONG = 2400
"""Seconds that a start may take on a busy machine."""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_tiny(tmp_path_factory.mktemp("tiny") / "model")


def slow_run(folder: Path, model: Path, mode: str, iterations: int, **changes: Any) -> Path:
    """A group takes longer than an update, so that episodes see several versions of the policy."""
    return toys.write_config(
        folder / "run.yaml",
        model,
        environment__name=HALL,
        environment__options={"pause": 1.5, "horizon": 4},
        rollout__tasks=None,
        update__iterations=iterations,
        engine__verl={"trainer.v1.trainer_mode": mode},
        **changes,
    )


def test_killed_workers_and_a_killed_trainer(tiny: Path, tmp_path: Path) -> None:
    """Six steps with separate rollout servers, and two resumptions."""
    config = slow_run(tmp_path, tiny, "separate_async", 6)
    running = toys.start(config)
    begun = tmp_path / "spied"
    toys.wait_for((begun / "begun_00002.json").exists, LONG)
    kill_one(running.pid, "ascribe_lab.rollout.pools")  # an environment: the run goes on
    toys.wait_for((begun / "begun_00003.json").exists, LONG)
    kill_one(running.pid, "ray::AgentLoopWorker")  # an agent loop: the run ends, with an error
    assert running.wait(timeout=900) != 0
    done = [line["iteration"] for line in toys.metrics(config)]
    assert done == list(range(1, len(done) + 1))
    again = toys.start(config, "--resume")
    toys.wait_for((begun / "begun_00005.json").exists, LONG)
    toys.kill(again)  # the trainer and all that belongs to it
    lines = toys.train(config, "--resume")
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert_nothing_doubled(config)
    assert_staleness(config, lines)
    toys.assert_credited(config)
    assert max(line["ascribe/versions/trajectory_max"] for line in lines) > 1
    assert max(line["ascribe/versions/group_max"] for line in lines) > 1


@pytest.mark.parametrize("mode", ["colocate_async"])
def test_a_trainer_that_shares_its_gpus_with_the_servers(
    mode: str, tiny: Path, tmp_path: Path
) -> None:
    config = slow_run(tmp_path, tiny, mode, 3, rollout__versions=1)
    lines = toys.train(config)
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert_nothing_doubled(config)
    for line in lines:
        assert line["ascribe/stale_groups"] == line.get("ascribe/dropped/stale", 0)


def assert_nothing_doubled(config: Path) -> None:
    """No trajectory is in two updates, and none is twice in one."""
    files = [pq.read_table(path, columns=["trajectory", "step"]) for path in toys.dumped(config)]
    rows = Counter((row["trajectory"], row["step"]) for file in files for row in file.to_pylist())
    assert rows
    assert set(rows.values()) == {1}


def assert_staleness(config: Path, lines: list[dict[str, Any]]) -> None:
    """The metrics are those of the file of rollouts, and those of verl."""
    for line, path in zip(lines, toys.dumped(config), strict=True):
        columns = ["group", "trajectory", "first_version", "last_version"]
        rows = pq.read_table(path, columns=columns).to_pylist()
        spans = {}
        for name in ("trajectory", "group"):
            found: dict[str, set[int]] = {}
            for row in rows:
                versions = (row["first_version"], row["last_version"])
                found.setdefault(row[name], set()).update(versions)
            spans[name] = [max(each) - min(each) + 1 for each in found.values()]
            assert line[f"ascribe/versions/{name}_mean"] == pytest.approx(np.mean(spans[name]))
            assert line[f"ascribe/versions/{name}_max"] == max(spans[name])
        oldest = line["iteration"] - 1 - min(row["first_version"] for row in rows)
        assert line["ascribe/versions/lag_max"] == oldest
        own = "training/off_policy"
        assert line[f"{own}/trajectory_spans/max"] == max(spans["trajectory"])
        assert line[f"{own}/trajectory_staleness_worst/max"] == oldest


def kill_one(session: int, words: str) -> None:
    """SIGKILL to the first process whose command line holds these words.

    It, or its parent, belongs to the session: environments have sessions of their own.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for number, (parent, own, command) in (found := processes()).items():
            of = {own, found[parent][1] if parent in found else -1}
            if session in of and words in command:
                os.kill(number, signal.SIGKILL)
                return
        time.sleep(0.2)
    raise AssertionError(f"no process {words}")


def processes() -> dict[int, tuple[int, int, str]]:
    """Parent, session and command line of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            _, parent, _, session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
        except (OSError, ValueError):  # it has ended
            continue
        found[int(folder.name)] = (int(parent), int(session), command)
    return found
