"""A disk that is full: old files stay as they were, and journals keep whole records."""

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.engines.metrics import read_metrics
from ascribe_lab.train.metrics_file import MetricsFile
from benchmarks.attack.full_disk import WRITERS, attack, journal, room_by_limit
from tests.attack.test_outputs_overwritten import names, rollouts


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_credit_on_a_full_disk_leaves_the_only_copy(tmp_path: Path, suffix: str, size: int) -> None:
    path = rollouts(tmp_path / f"a{suffix}", 2_000)
    before = path.read_bytes()
    with room_by_limit(tmp_path, size):
        result = CliRunner().invoke(app, ["credit", str(path), "--out", str(path), "--force"])
    assert result.exit_code == 2, result.output
    assert path.read_bytes() == before
    assert names(tmp_path) == [path.name]
    assert "cannot write" in result.stderr


@pytest.mark.parametrize("writer", ["config", "pivots", "history", "metrics", "conversations"])
def test_every_writer_on_a_full_disk_leaves_the_old_file(tmp_path: Path, writer: str) -> None:
    counts = attack(WRITERS[writer](), tmp_path, room_by_limit, 5, random.Random(0))
    assert counts["refused"]
    assert not counts["torn"]


def test_a_journal_on_a_full_disk_keeps_whole_records(tmp_path: Path) -> None:
    assert journal(tmp_path, room_by_limit, 3, random.Random(0)) == 0


def test_metrics_on_a_full_disk_keep_whole_lines(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path)
    metrics.add(1, {"loss": 1.0})
    with room_by_limit(tmp_path, 50), pytest.raises(OSError, match="too large"):
        metrics.add(2, {"loss": 1.0, "text": "x" * 100})
    metrics.add(2, {"loss": 2.0})
    assert [line["iteration"] for line in read_metrics(tmp_path)] == [1, 2]
