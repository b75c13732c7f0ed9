"""What several tests start from: a clean file of rollouts."""

import json
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import settings

# Without a deadline: a machine that is busy with other things is no reason for a test to fail. CI
# draws the same examples each time, so that a change is judged by what it changed.
settings.register_profile("quick", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Ray gives its workers a low priority. Beside other tests they would hardly run.
os.environ.setdefault("RAY_worker_niceness", "0")

Row = dict[str, Any]

COVERED_SECONDS = 1.0
"""Processor time at the start of each test in which coverage is measured: tracing doubles the time
of tests that compute, and the lines of a long test run in its first second or in other tests."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage for the first ``COVERED_SECONDS`` of a test only."""
    cov = Coverage.current()
    if cov is None:
        return (yield)
    before = signal.signal(signal.SIGVTALRM, lambda *_: cov.stop())
    signal.setitimer(signal.ITIMER_VIRTUAL, COVERED_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        if Coverage.current() is not cov:
            cov.start()


@pytest.fixture(scope="session")
def ray_cluster() -> Any:
    """Ray on this machine, on the loopback address; it runs until the tests end."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    if not ray.is_initialized():
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # else it listens everywhere
        ray.init(include_dashboard=False)
    return ray


def good_rows(groups: int = 3, trajectories: int = 4) -> list[Row]:
    """Rows in which ``check`` finds nothing: every optional column, revisits, padding.

    Each group starts in one state and visits few. Rewards are multiples of 1/8, so that their sums
    are exact. The last trajectory of a group is cut by a limit; two padding rows come last.
    """
    rows = []
    for g in range(groups):
        for t in range(trajectories):
            length = 3 + (g + t) % 3
            for step in range(length):
                last = step == length - 1
                rows.append(
                    {
                        "group": f"tâche {g}",
                        "trajectory": f"tâche {g}/{t}",
                        "step": step,
                        "state": f"hall {g}" if step == 0 else f"room {g}.{(step + t) % 2}",
                        "action": f"go {(step + t) % 3}",
                        "reward": (step + t % 2) / 8 + (last and t % 2 == 0),
                        "agent": ("planner", "actor")[step % 2],
                        "family": ("pick", "clean")[g % 2],
                        "valid": step != 1 or t == 0,
                        "terminated": last and t < trajectories - 1,
                        "truncated": last and t == trajectories - 1,
                        "padding": False,
                        "fingerprint": [1.0, step / 4, -0.5 * (t % 2)],
                    }
                )
    filler = {"group": "filler", "trajectory": "filler", "step": 0, "state": "", "action": ""}
    filler |= {"reward": 0.0, "agent": None, "family": None, "valid": True, "terminated": False}
    filler |= {"truncated": False, "padding": True, "fingerprint": [0.0, 0.0, 0.0]}
    return [*rows, dict(filler), dict(filler)]


INPUTS = {"value": 0.5, "score": 0.25, "step_score": 1.0, "entropy": 0.75}
"""Columns that some recipes need."""


def write_jsonl(path: Path, rows: list[Row]) -> Path:
    """The rows as plain JSON lines, whatever they hold."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def good_file(tmp_path: Path) -> Path:
    """A clean file of JSON lines."""
    return write_jsonl(tmp_path / "good.jsonl", good_rows())
