"""Three processes over gloo that credit a batch together, against one that has all of it."""

import multiprocessing
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe import recipe
from ascribe.engines.metrics import credit_metrics
from ascribe.engines.trl.turns import credit_gathered
from ascribe.steps.table import StepTable
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, toys.QUIET]

RANKS, ROWS, SIZE = 3, 8, 6
"""Groups of six in processes of eight episodes: two of the four lie with two processes."""
RECIPES = {
    "sbc": recipe("sbc", scale="equal"),
    "sbc, plain": recipe("sbc"),
    "gigpo": recipe("gigpo", scale="equal"),
    "bipace": recipe("bipace_q", radius=0.3),
    "online": recipe("bipace_q", radius_rule="online"),
    "batch": recipe("reinforce_pp"),
}


def table(episodes: range) -> StepTable:
    """Turns of these episodes; the fourth has no reward, and one of the last group is infinite."""
    rows = []
    for number in episodes:
        random = np.random.default_rng(number)
        length = int(random.integers(1, 5))
        for step in range(length):
            room = int(random.integers(3))
            rows.append(
                {
                    "group": f"0/{number // SIZE}",
                    "trajectory": f"0/{number // SIZE}/{number % SIZE}",
                    "step": step,
                    "state": f"You are in room {room}." if step else "start",
                    "action": f"<action>go {int(random.integers(3))}</action>",
                    "reward": float(random.integers(3)) / 3 if step == length - 1 else 0.0,
                    "fingerprint": (np.eye(4)[room] + random.normal(0, 0.1, 4)).tolist(),
                }
            )
        if number == 3:
            rows[-1]["reward"] = np.nan
        if number == RANKS * ROWS - 1:
            rows[-1]["reward"] = np.inf
    return StepTable.from_dicts(rows)


def credited(name: str, episodes: range) -> tuple[Any, Any, Any]:
    """The credit of a process that played these episodes."""
    # Told by the process that has the end of the group.
    failed = {"0/1": "bad_turn_rewards"} if 11 in episodes else {}
    local = table(episodes)
    done, advantage = credit_gathered(local, RECIPES[name], "drop", failed=failed)
    assert done.credit is not None
    carried = sorted(set(done.table.group.texts())), done.credit.history
    return advantage, credit_metrics(done), carried


def work(rank: int, port: int, folder: str) -> None:
    """One of the processes."""
    from accelerate import PartialState

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(RANKS)}
    PartialState(cpu=True)
    episodes = range(rank * ROWS, (rank + 1) * ROWS)
    told = {name: credited(name, episodes) for name in RECIPES}
    (Path(folder) / str(rank)).write_bytes(pickle.dumps(told))


def test_each_process_has_the_bits_of_one(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    start = multiprocessing.get_context("spawn").Process
    runs = [start(target=work, args=(rank, port, str(tmp_path))) for rank in range(RANKS)]
    for run in runs:
        run.start()
    alone = {name: credited(name, range(RANKS * ROWS)) for name in RECIPES}
    for run in runs:
        run.join(timeout=120)
    assert [run.exitcode for run in runs] == [0] * RANKS
    shares = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(RANKS)]
    for name, (advantage, metrics, carried) in alone.items():
        assert carried[0] == ["0/0", "0/2"]
        assert metrics["ascribe/dropped_groups"] == 2
        assert np.abs(advantage).max() > 0.1
        parts = [share[name] for share in shares]
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), advantage)
        assert [part[1:] for part in parts] == [(metrics, carried)] * RANKS
