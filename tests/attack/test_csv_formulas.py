"""No text in a CSV file of a report is run by a spreadsheet, whatever separates its cells."""

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ascribe.reports.write import write_tables


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        *((text, f"'{text}") for text in ("=1+1", "+cmd", "-2", "@SUM(A1)", "  =1", "\n=1")),
        *((text, f"'{text}") for text in (" \r\n@x", "\tx", " \rx", "＝1+1", "＋1", "－1", "＠A1")),
        ("\t=1", "'\t'=1"),
        ("go;=1+1", "go;'=1+1"),
        ('a, b; "=1', "a, b;' \"=1"),
        ("x\t＝1|@A1", "x\t'＝1|'@A1"),
        ("a = b; c - d", "a = b; c - d"),
        ("", ""),
    ],
)
def test_a_spreadsheet_runs_nothing(tmp_path: Path, text: str, marked: str) -> None:
    write_tables({"x": [{"name": text, "value": -2.5}]}, tmp_path)
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file))[1] == [marked, "-2.5"]
    line = (tmp_path / "x.csv").read_bytes().removeprefix(b'"name","value"\r\n')
    assert line.startswith(b'"')  # every cell is quoted
    assert line.endswith(b'","-2.5"\r\n')
    assert pq.read_table(tmp_path / "x.parquet").to_pylist()[0]["name"] == text
