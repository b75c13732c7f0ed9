"""The figures as SVG and PNG, the tables as CSV and Parquet."""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ascribe.report.figures import Figure, theme
from ascribe.report.page import charts

WIDTH = 640
"""Of an exported figure, in pixels; PNGs have twice as many."""


def write_figures(figures: Iterable[Figure], folder: str | Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every figure, on white.

    Raises:
        ImportError: without the extra ``report``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vega = charts()
    written = []
    look = {**theme(dark=False), "background": "white", "font": "sans-serif"}
    for figure in figures:
        spec = {**figure.spec, "width": WIDTH, "title": figure.title, "config": look}
        spec["padding"] = 12
        written += [folder / f"{figure.name}.svg", folder / f"{figure.name}.png"]
        text = json.dumps(spec)
        written[-2].write_text(vega.vegalite_to_svg(text), encoding="utf-8")
        written[-1].write_bytes(vega.vegalite_to_png(text, scale=2))
    return written


def write_tables(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], folder: str | Path
) -> list[Path]:
    """Write ``NAME.csv`` and ``NAME.parquet`` of every table that has rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, rows in tables.items():
        if not rows:
            continue
        written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        with written[-2].open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), written[-1])
    return written


_FORMULA = re.compile(r" *[\t\r]|\s*[=+\-@]")


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins so for a formula, and runs it."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value
