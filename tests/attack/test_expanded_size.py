"""A small file cannot fill the memory, and columns that nobody knows are not read."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe import StepTable, check, table_to_arrow
from ascribe.steps import lines
from ascribe.steps.files import read, read_rows
from ascribe.steps.problems import TableError
from ascribe.steps.table import KNOWN_COLUMNS
from tests.conftest import good_rows


def bomb(path: Path, name: str, column: pa.Array) -> Path:
    """The good rows many times over, with a column that compresses to nothing."""
    table = table_to_arrow(StepTable.from_dicts(good_rows()))
    table = table.take(pa.array(np.arange(len(column)) % len(table))).drop_columns("fingerprint")
    pq.write_table(table.append_column(name, column), path, compression="zstd")
    return path


@pytest.mark.parametrize("name", ["notes", "prompt"])
def test_a_text_that_repeats_is_refused_before_it_is_in_memory(tmp_path: Path, name: str) -> None:
    texts = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(20_000, dtype=np.int32)), pa.array(["x" * 1_000_000])
    )
    path = bomb(tmp_path / "a.parquet", name, texts)
    assert path.stat().st_size < 100_000  # and 20 GB in memory
    with pytest.raises(TableError, match="would fill the memory"):
        read(path)
    with pytest.raises(TableError, match="would fill the memory"):
        read_rows(path, [name], np.arange(3))
    assert len(read(path, wanted=KNOWN_COLUMNS.__contains__).table) == 20_000


def test_lists_that_repeat_are_refused_before_they_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = pa.array(np.zeros(2_000_000, dtype=np.int64))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 2_000_001, 100, dtype=np.int32)), flat)
    path = bomb(tmp_path / "a.parquet", "ids", lists)
    assert len(read(path).table) == 20_000  # 16 MB are allowed
    monkeypatch.setattr(lines, "SMALLEST_LIMIT", 1 << 20)
    assert lines.expansion_limit(path.stat().st_size) < 16_000_000
    with pytest.raises(TableError, match="would fill the memory"):
        read(path)


def test_a_compressed_bomb_of_json_lines_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SMALLEST_LIMIT", 1 << 20)
    path = tmp_path / "a.jsonl.gz"
    line = json.dumps(good_rows()[0] | {"notes": " " * 10_000}).encode() + b"\n"
    with gzip.open(path, "wb") as file:
        for _ in range(1000):
            file.write(line)
    assert path.stat().st_size < 100_000  # and 10 MB of text
    with pytest.raises(TableError, match="expand to more than"):
        read(path)
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    with pytest.raises(TableError, match="line 1 has more than"):
        read(path)


def test_columns_that_a_command_does_not_know_are_named_and_not_read(tmp_path: Path) -> None:
    rows = [row | {"notes": "a", "advantage": 1.0} for row in good_rows()]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path in (tmp_path / "a.parquet", tmp_path / "a.jsonl"):
        rollouts = read(path, wanted=KNOWN_COLUMNS.__contains__)
        assert not check(rollouts.table).problems
        assert rollouts.carried.column_names == rollouts.credit.column_names == []
        (note,) = rollouts.notes
        assert "'notes'" in note.detail
