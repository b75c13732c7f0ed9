"""Damaged files are refused, or read as they were; no damage ends the reader.

``tests/fuzz`` compares more of them with an oracle.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_damaged_files_with_carried_columns() -> None:
    run = subprocess.run(
        [sys.executable, "benchmarks/attack/mutated_files.py", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    figures = [json.loads(line) for line in run.stdout.splitlines()]
    assert len({figure["case"] for figure in figures}) == 5
    missed = [figure for figure in figures if figure["goal"] == 0.0 and figure["value"]]
    assert missed == []
