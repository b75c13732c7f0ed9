"""Figures and tables as files."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ascribe
from ascribe import StepTable, recipe, write_table
from ascribe.cli import app
from ascribe.reports import picture
from ascribe.reports.figures import draw
from ascribe.reports.write import write_figures, write_tables
from tests.conftest import write_jsonl
from tests.report.toys import facts, sound


def test_a_report_from_python_is_the_one_of_the_command(tmp_path: Path) -> None:
    rows = StepTable.from_dicts(sound())
    out, tables = tmp_path / "a.html", tmp_path / "tables"
    page = ascribe.report(rows, out, "gigpo", compare="grpo", tables=tables)
    assert repr(page) == f"Picture({len(rows)} rows by GiGPO())"
    assert page.comparison is not None
    assert page.comparison.first == "gigpo"
    assert (tmp_path / "tables" / "verdict.csv").exists()
    write_table(rows, tmp_path / "rows.parquet")
    file, other = str(tmp_path / "rows.parquet"), str(tmp_path / "b.html")
    command = ["report", file, "--out", other, "--recipe", "gigpo", "--compare", "grpo"]
    assert CliRunner().invoke(app, command).exit_code == 0
    size = (tmp_path / "a.html").stat().st_size
    assert (
        abs((tmp_path / "b.html").stat().st_size - size) < 1000
    )  # the name of the table, and what was seen of the file


def test_a_report_overwrites_no_data(tmp_path: Path) -> None:
    """A second file in the place of the page is a mistake."""
    rows = StepTable.from_dicts(sound())
    write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"the suffix \.html"):
        ascribe.report(rows, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="no recipe 'gigpoo'; did you mean gigpo"):
        ascribe.report(rows, tmp_path / "a.html", "gigpoo")
    assert ascribe.read(tmp_path / "rows.parquet").table.to_dicts() == rows.to_dicts()


def test_every_table_is_written_twice_alike(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", sound())
    made = picture([file], recipe("gigpo"), compare=recipe("grpo"))
    written = write_tables(made.tables(), tmp_path / "tables")
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
    rows = [row | {"reward": 0.0} if row["group"] == "task 0" else row for row in sound()]
    figures = draw(facts(rows))
    assert figures
    written = write_figures(figures, tmp_path)
    assert len(written) == 2 * len(figures) == 2 * len({figure.name for figure in figures})
    for path in written:
        head = path.read_bytes()[:8]
        assert head.startswith(b"<svg" if path.suffix == ".svg" else b"\x89PNG")


def test_figures_hold_plain_numbers() -> None:
    for figure in draw(facts(sound())):
        json.dumps(figure.spec, allow_nan=False)
        assert figure.title
        assert figure.caption.endswith(".")
