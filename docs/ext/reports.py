"""Write the example reports, ``examples/NAME.html``, from the ``NAME.parquet`` beside the pages.

They hold the script that draws their figures, a megabyte, so they are made with the site and not
kept in the repository.
"""

from pathlib import Path
from typing import Any

from ascribe import recipe
from ascribe.reports import picture

FOLDER = "examples"
RECIPE, COMPARE = "gigpo", "grpo"


def write_report(file: Path, folder: Path) -> Path:
    """Write the report on a file of steps to ``folder/NAME.html``."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{file.stem}.html"
    picture([file], recipe(RECIPE), compare=recipe(COMPARE)).write(page)
    return page


def _on_finish(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        for file in sorted(Path(app.srcdir, FOLDER).glob("*.parquet")):
            write_report(file, Path(app.outdir, FOLDER))


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us at the end."""
    app.connect("build-finished", _on_finish)
    return {"parallel_read_safe": True}
