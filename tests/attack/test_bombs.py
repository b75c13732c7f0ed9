"""Files of a few kilobytes that hold gigabytes are refused, or read a little at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ascribe import TableError
from ascribe.sessions.formats import import_files
from tests.sessions.test_formats import lines, node, trace

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the addresses of another process")
def test_small_files_stay_below_a_gibibyte() -> None:
    command = [sys.executable, "benchmarks/attack/bombs.py", "--quick"]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = [json.loads(line) for line in run.stdout.splitlines()]
    assert len({figure["case"] for figure in figures}) == 7
    goals = [figure for figure in figures if figure["goal"] is not None]
    assert [figure for figure in goals if figure["value"] > figure["goal"]] == []
    sizes = {figure["case"]: figure["value"] for figure in figures if figure["metric"] == "size"}
    assert max(sizes.values()) < 250_000


def test_branches_that_share_little_are_read(tmp_path: Path) -> None:
    """A branch at each of 60 turns; with 700, the conversations would be 500,000 messages."""

    def branched(turns: int) -> Path:
        nodes = [node(None, "user", "task")]
        for turn in range(turns):
            nodes += [node(2 * turn, "assistant", "try"), node(2 * turn, "assistant", "go")]
        return lines(tmp_path, trace(nodes))

    assert len(import_files([branched(60)]).table) == 120
    with pytest.raises(TableError, match="share each node 50 times"):
        import_files([branched(700)])
