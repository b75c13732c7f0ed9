"""Damaged files of other tools are refused or imported; no damage ends in a traceback."""

import json
import subprocess
import sys
from pathlib import Path

from tests.sessions import make_traces
from tests.sessions.test_formats import FILES

ROOT = Path(__file__).parents[2]


def test_damaged_imports() -> None:
    run = subprocess.run(
        [sys.executable, "benchmarks/attack/mutated_imports.py", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    figures = [json.loads(line) for line in run.stdout.splitlines()]
    crashed = [figure for figure in figures if figure["metric"] == "crashed"]
    assert len(crashed) == len(FILES) + 1 + len(make_traces.FILES), "of Harbor, two files"
    assert [figure for figure in crashed if figure["value"]] == []
