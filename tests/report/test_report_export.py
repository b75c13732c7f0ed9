"""Figures and tables as files."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ascribe import recipe
from ascribe.report import picture
from ascribe.report.figures import draw
from ascribe.report.write import write_figures, write_tables
from tests.conftest import write_jsonl
from tests.report.toys import facts, sound


def test_every_table_is_written_twice_alike(tmp_path: Path) -> None:
    made = picture([write_jsonl(tmp_path / "rows.jsonl", sound())], recipe("gigpo"), recipe("grpo"))
    written = made.write_tables(tmp_path / "tables")
    tables = {name: rows for name, rows in made.tables().items() if rows}
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in tables for kind in ("csv", "parquet")
    }
    for name, rows in tables.items():
        assert pq.read_table(tmp_path / "tables" / f"{name}.parquet").to_pylist() == rows
        with (tmp_path / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            cells = list(csv.DictReader(file))
        assert [list(row) for row in cells] == [list(row) for row in rows]
        for read, row in zip(cells, rows, strict=True):
            assert read == {key: "" if value is None else str(value) for key, value in row.items()}


def test_a_table_without_rows_is_not_written(tmp_path: Path) -> None:
    assert write_tables({"none": []}, tmp_path / "tables") == []


@pytest.mark.slow
def test_every_figure_is_written_as_svg_and_png(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra report")
    rows = [row | {"family": f"<b>{row['family']}</b> & co"} for row in sound()]
    figures = draw(facts(rows))
    written = write_figures(figures, tmp_path)
    assert len(written) == 2 * len(figures) == 2 * len({figure.name for figure in figures})
    for path in written:
        head = path.read_bytes()[:8]
        assert head.startswith(b"<svg" if path.suffix == ".svg" else b"\x89PNG")
    assert "<b>" not in (tmp_path / "success_by_family.svg").read_text(encoding="utf-8")


def test_figures_hold_plain_numbers() -> None:
    for figure in draw(facts(sound())):
        json.dumps(figure.spec, allow_nan=False)
        assert figure.title
        assert figure.caption.endswith(".")
