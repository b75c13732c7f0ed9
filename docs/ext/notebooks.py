"""Write what readers download: tutorials as notebooks, the examples, and the format's JSON Schema.

A link to the notebook goes under the page's title.

``python`` and ``console`` blocks become cells, with what the page shows as their output; the rest
is Markdown. The tests run the blocks (``executed.py``), so nothing is run here.
"""

import json
import re
from pathlib import Path
from shutil import copy
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from executed import BLOCK, FILE
from install_lines import shown
from sphinx.errors import SphinxError
from tables import schema

FOLDER = "tutorials/"
LINK = '<p><a href="{0}.ipynb" download>Download as a notebook</a></p>'


def notebook(page: str) -> dict[str, Any]:
    """The page as a document of Jupyter's format 4."""
    cells: list[dict[str, Any]] = []
    end = 0
    for block in BLOCK.finditer(page):
        _add_markdown(cells, page[end : block.start()])
        end = block.end()
        if block[1] == "python":
            name = FILE.match(block[2])
            _add_code(cells, (f"%%writefile {name[1]}\n" if name else "") + block[2])
        elif block[1] == "console":
            lines = block[2].splitlines(keepends=True)
            _add_code(cells, "".join(f"!{line[2:]}" for line in lines if line.startswith("$ ")))
            _add_output(cells[-1], "".join(line for line in lines if not line.startswith("$ ")))
        else:
            _add_output(cells[-1], block[2])
    _add_markdown(cells, page[end:])
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


def _add_markdown(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text.strip()})


def _add_code(cells: list[dict[str, Any]], source: str) -> None:
    cells.append(
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        | {"source": source.rstrip()}
    )


def _add_output(cell: dict[str, Any], text: str) -> None:
    if text:
        cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})


def _on_read(_app: Any, page: str, source: list[str]) -> None:
    if page.startswith(FOLDER):
        link = LINK.format(page.removeprefix(FOLDER))
        source[0] = re.sub(r"^(# .+\n)", rf"\1\n{link}\n", source[0], count=1)


def _on_finish(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for page in Path(app.srcdir, FOLDER).glob("*.md"):
            out = Path(app.outdir, FOLDER, page.stem).with_suffix(".ipynb")
            out.write_text(json.dumps(notebook(shown(page.read_text("utf-8"))), indent=1), "utf-8")
        examples = Path(app.srcdir).parent / "examples"
        with ZipFile(Path(app.outdir, "examples.zip"), "w", ZIP_DEFLATED) as archive:
            for file in sorted(examples.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(examples.parent))
        Path(app.outdir, "step_table.schema.json").write_text(schema(), "utf-8")
        copy(Path(app.srcdir, "report.schema.json"), app.outdir)
        preview = app.config.myst_html_meta["property=og:image"]
        if not Path(app.outdir, preview.removeprefix(app.config.html_baseurl)).is_file():
            raise SphinxError(f"the preview image is not in the site: {preview}")


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us for every page, and at the end."""
    app.connect("source-read", _on_read)
    app.connect("build-finished", _on_finish)
    return {"parallel_read_safe": True}
