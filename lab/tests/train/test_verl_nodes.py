"""A run of verl over three nodes of a Ray cluster: one is killed, and another goes on for it."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.engines import training_recipe
from ascribe.estimators.assign import assign
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys
from tests.raylets import raylets, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]

ROOT = Path(__file__).parents[3]
OF_RAY = ("num_cpus", "num_gpus", "object_store_memory", "include_dashboard")
"""What a run says of a Ray that it starts; this one is there."""


def start(folder: Path, address: str) -> "subprocess.Popen[bytes]":
    """Four updates, two ranks with a server each; goes on from the last checkpoint."""
    keys = {
        **{f"ray_kwargs.ray_init.{name}": "null" for name in OF_RAY},
        "trainer.nnodes": 2,
        "trainer.total_training_steps": 4,
        "trainer.save_freq": 1,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": folder / "checkpoints",
    }
    words = [str(ROOT / "examples" / "verl_rooms" / "cpu.sh")]
    words += [f"{name}={value}" for name, value in keys.items()]
    # The nodes have another working directory.
    variables = {**os.environ, "RAY_ADDRESS": address, "DATA": str(folder / "data")}
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            words, stdout=log, stderr=log, cwd=folder, env=variables, start_new_session=True
        )


def test_a_run_whose_node_is_killed_goes_on_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The nodes hand this on to their workers.
    folders = [str(ROOT), str(ROOT / "examples" / "verl_rooms"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    latest, notes = tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt", []

    def note(what: str) -> None:
        notes.append(f"{time.strftime('%X')} {what}")
        (tmp_path / "notes.txt").write_text("\n".join(notes) + "\n")

    with raylets(1, num_cpus=16, num_gpus=0) as nodes:
        first, second = (nodes.start(num_gpus=1) for _ in range(2))
        running = start(tmp_path, nodes.address)
        try:
            wait_for(lambda: latest.exists() and latest.read_text() == "2", running, 1200)
            ranks = ranks_on(nodes)
            assert {first.node_id, second.node_id} <= ranks.keys()
            note(f"after update 2, ranks and servers by node: {json.dumps(ranks)}")
            nodes.kill(second)
            note(f"killed the node {second.node_id}")
            note(f"the run ended with code {running.wait(600)}")
        finally:
            if running.poll() is None:
                toys.kill(running)
        assert running.returncode != 0
        assert steps_of(tmp_path) == [1, 2]
        third = nodes.start(num_gpus=1)
        note(f"started the node {third.node_id}")
        running = start(tmp_path, nodes.address)
        code = toys.end_of(running)
        note(f"the resumed run ended with code {code}")
    said = (tmp_path / "log.txt").read_text(errors="replace")
    assert code == 0, said[-6000:]
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    for number in range(4):
        steps = read(tmp_path / "steps" / f"rollouts_{number:05d}.parquet")
        credit = assign(steps.table, training_recipe("gigpo")).credit
        trained = steps.carried["trained_advantage"].to_numpy()
        np.testing.assert_allclose(trained, credit.advantage, atol=1e-6)


def ranks_on(nodes: Any) -> dict[str, list[str]]:
    """The classes of the actors that live on each node."""
    found: dict[str, list[str]] = {}
    for actor in nodes.cluster.global_state.actor_table(None).values():
        if actor["State"] == "ALIVE":
            found.setdefault(actor["Address"]["NodeID"], []).append(actor["ActorClassName"])
    return {node: sorted(names) for node, names in found.items()}


def steps_of(folder: Path) -> list[int]:
    """The steps whose metrics the run has printed."""
    said = (folder / "log.txt").read_text(errors="replace")
    return [int(number) for number in re.findall(r"\bstep:(\d+) - ", said)]
