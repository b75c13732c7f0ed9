"""The files of the example reports, and the picture of one for the README.

    python scripts/example_reports.py keep verl runs/verl/rollouts/*.parquet
    python scripts/example_reports.py picture

``keep`` makes ``docs/examples/NAME.parquet`` from files of rollouts, one iteration each: what a
report reads of them, without prompts and tokens. The site has a page of every such file
(``docs/ext/reports.py``). ``picture`` takes a picture of the report on
``examples/conversations.jsonl``; it needs the packages playwright and pillow, and a Chromium on the
path.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from ascribe import recipe
from ascribe.engines.crediting import TRAINED
from ascribe.reports import picture
from ascribe.reports.reading import TRANSCRIPT, WON
from ascribe.steps.table import KNOWN_COLUMNS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
SHOWN = {
    "light": ROOT / "docs" / "figures" / "report.png",
    "dark": ROOT / "docs" / "figures" / "report_dark.png",
}
KEPT = {*KNOWN_COLUMNS, *TRANSCRIPT, WON, TRAINED} - {"prompt"}
CLIP = """(() => {
  const high = document.querySelector(".finding").getBoundingClientRect().bottom;
  return {x: 0, y: 0, width: innerWidth, height: high + 12};
})()"""
"""From the top to the end of the first difference between attempts that won and lost."""


def kept(files: Sequence[Path]) -> pa.Table:
    """The columns that a report reads, of all files; several files are numbered."""
    parts = []
    for number, file in enumerate(files):
        part = pq.read_table(file)
        part = part.select([name for name in part.column_names if name in KEPT])
        if len(files) > 1:
            part = part.append_column("iteration", pa.array([number] * part.num_rows, pa.int32()))
        parts.append(part)
    return pa.concat_tables(parts).unify_dictionaries().replace_schema_metadata(None)


def take_picture(page: Path, out: Path, scheme: str) -> None:
    """A picture of what happened, and of the first thing that separates won from lost."""
    from PIL import Image  # noqa: PLC0415 (only the picture needs it)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = chromium.new_page(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-sessions=yes]")
        tab.screenshot(path=out, clip=tab.evaluate(CLIP), full_page=True)
        chromium.close()
    with Image.open(out) as shot:  # 256 colours look the same, in half of the bytes
        small = shot.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(out, optimize=True)


def main(command: str, *arguments: str) -> None:
    """Run one of the two commands."""
    if command == "keep":
        name, *files = arguments
        EXAMPLES.mkdir(exist_ok=True)
        table = kept([Path(file) for file in files])
        pq.write_table(table, EXAMPLES / f"{name}.parquet", compression="zstd")
    elif command == "picture":
        with TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            picture(ROOT / "examples" / "conversations.jsonl", recipe("sbc")).write(page)
            for scheme, out in SHOWN.items():
                take_picture(page, out, scheme)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
