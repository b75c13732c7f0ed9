"""Kills and signals at random moments: a few of those of ``benchmarks/attack/kill_rollout.py``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("case", ["kills", "signals", "workers"])
def test_a_rollout_survives_a_campaign(case: str) -> None:
    command = [sys.executable, "benchmarks/attack/kill_rollout.py", "--quick", "--only", case]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = [json.loads(line) for line in run.stdout.splitlines()]
    assert {figure["metric"]: figure["value"] for figure in figures}["signals"] > 3
    assert [figure for figure in figures if figure["goal"] is not None and figure["value"]] == []
