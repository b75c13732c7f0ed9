"""Write a report: one HTML page, figures as SVG and PNG, tables as CSV and Parquet.

The page is one file that needs no server, no network and no other file. Text from the table goes
into it as data and is shown as text, never as HTML. A content security policy allows only the one
script that the page was written with, and allows nothing to be fetched.
"""

import csv
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

from ascribe.reports.figures import Figure
from ascribe.reports.text import compressed, embedded
from ascribe.steps.atomic import replacing, write_file
from ascribe.steps.errors import InputError, MissingPackageError
from ascribe.steps.hints import install
from ascribe.steps.problems import one_line

SCRIPTS = ("base", "store", "overview", "session", "charts", "training", "main")
WIDTH = 640
"""Of an exported figure, in pixels; PNGs have twice as many."""

_FORMULA = re.compile(r"""^(?= *[\t\r])|(?:^|(?<=[;,|\t]))(?=["'\s]*[=+\-@＝＋－＠])""")
"""Where a spreadsheet would begin a cell and run it as a formula, whatever separates its cells."""


def write_page(data: Mapping[str, Any], path: str | Path) -> int:
    """Write the page that shows ``data``; returns its size in bytes.

    What the first screen does not show is compressed, and stands behind it.
    """
    style = _asset("style.css")
    scripts = "".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{scripts}}})();\n'
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    shown, packed = dict(data), {}
    if "answers" in data:
        answers, browser = dict(data["answers"]), dict(data["browser"])
        packed["sessions"] = compressed(answers.pop("sessions"))
        packed |= {f"chunk-{place}": each for place, each in enumerate(browser.pop("chunks"))}
        shown |= {"answers": answers, "browser": browser, "chunks": len(packed) - 1}
    parts = {
        "policy": policy,
        "style": style,
        "data": embedded(shown),
        "script": script,
        "packed": "\n".join(
            f'<script type="application/gzip" id="packed-{name}">{content}</script>'
            for name, content in packed.items()
        ),
    }
    # One pass: what was inserted is never searched again.
    html = re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], _asset("page.html"))
    return write_file(path, html.encode("utf-8", "replace"))


def write_figures(figures: Iterable[Figure], folder: str | Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every figure, on white.

    Raises:
        ImportError: without the extra ``report``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vega = _vega()
    paths = []
    config = {**json.loads(_asset("theme.json")), "background": "white", "font": "sans-serif"}
    for figure in figures:
        layout = {"width": WIDTH, "title": figure.title, "config": config, "padding": 12}
        spec = json.dumps(figure.spec | layout)
        paths += [folder / f"{figure.name}.svg", folder / f"{figure.name}.png"]
        write_file(paths[-2], vega.vegalite_to_svg(spec))
        write_file(paths[-1], vega.vegalite_to_png(spec, scale=2))
    return paths


def write_picture(svg: str, path: str | Path) -> int:
    """Write an SVG as PNG; returns its size in bytes.

    Raises:
        ImportError: without the extra ``report``.
        ValueError: if the file has another suffix.
    """
    if Path(path).suffix != ".png":
        raise InputError(f"a picture is a PNG: give {one_line(path)} the suffix .png")
    return write_file(Path(path), _vega().svg_to_png(svg))


def write_tables(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], folder: str | Path
) -> list[Path]:
    """Write ``NAME.csv`` and ``NAME.parquet`` of every table that has rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, rows in tables.items():
        if not rows:
            continue
        paths += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        text = StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        for row in rows:
            texts = {k: _FORMULA.sub("'", v) for k, v in row.items() if isinstance(v, str)}
            writer.writerow({**row, **texts})
        write_file(paths[-2], text.getvalue().encode("utf-8", "replace"))
        with replacing(paths[-1]) as file:
            pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return paths


def _vega() -> Any:
    """The package that draws, or an error that names the extra that brings it."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise MissingPackageError(f"figures need Vega-Lite: {install('report')}") from error


def _asset(name: str) -> str:
    return (files("ascribe.reports") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
