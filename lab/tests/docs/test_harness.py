"""The tutorial on harnesses: its programs run behind a gateway, and their logs become reports."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ascribe.sessions.reading import import_files

ROOT = Path(__file__).parents[3]
HARNESS = ROOT / "examples" / "harness"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini", "team"])
def test_a_harness_becomes_a_report(name: str, tmp_path: Path) -> None:
    pytest.importorskip("minisweagent", reason="needs the packages of scripts/locks/formats.txt")
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    subprocess.run([HARNESS / "run.sh", name], check=True, cwd=tmp_path, env=environment)
    rewards = read_rewards(tmp_path)
    assert rewards.keys() == read_rewards(HARNESS / name).keys()
    table = import_files([tmp_path / "gateway.jsonl"], reward=str(tmp_path / "rewards.csv")).table
    assert table.trajectory.values.size == 16
    assert table.reward.sum() == sum(rewards.values())
    report = "ascribe report gateway.jsonl --reward rewards.csv --out report.html"
    subprocess.run(report.split(), check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "report.html").stat().st_size > 100_000


def read_rewards(folder: Path) -> dict[str, float]:
    with (folder / "rewards.csv").open() as file:
        return {row["session"]: float(row["reward"]) for row in csv.DictReader(file)}


def test_sub_agents_and_summaries_of_the_kept_run() -> None:
    """Of each session: the lead writes, a helper answers, a summary, an answer from it."""
    folder = HARNESS / "team"
    imported = import_files([folder / "gateway.jsonl"], reward=str(folder / "rewards.csv"))
    sessions: dict[str, dict[int, tuple[str, int | None]]] = {}
    for row in imported.table.to_dicts():
        steps = sessions.setdefault(row["trajectory"], {})
        steps[row["step"]] = row["agent"], row["parent"]
    assert len(sessions) == 16
    made = {0: ("main", None), 1: ("sub-agent 1", 0), 2: ("main", None), 3: ("main", None)}
    assert [name for name, steps in sessions.items() if steps != made] == []
