"""Reports of real files: seconds of CPU, bytes of the page, first paint, and opening a session.

``ascribe report FOLDER`` is a process of its own for each folder, with compiled modules; its time
is the best of three, or of one that takes long. Folders are those of ``--folders FOLDER FOLDER``,
or in ``ASCRIBE_TEST_DATA``; without them, the example of the repository is read. Where there is a
Chromium on the path, or named by the variable CHROMIUM, and the package playwright, it opens each
page and ten sessions on it, of which the slowest counts.
"""

import gzip
import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import COMMAND, ROOT, Figures
from reading import REAL
from scale import run

FOUR, SEVEN = 10.0, 45.0
"""Seconds of the reports of the first four of ``REAL``, and of all."""
LONG = 12.0
"""Seconds after which a report is not made again."""
BYTES_OF_FOUR, BYTES = 5e6, 8e6
PAINT, OPEN = 1.5, 0.3
OPENED = 10
OPENING = """async (name) => {
  const started = performance.now(), frame = () => new Promise(requestAnimationFrame);
  location.hash = `session/${encodeURIComponent(name)}`;
  while (!document.querySelector("#reader h2")?.textContent.includes(name)) await frame();
  await frame();
  return (performance.now() - started) / 1000;
}"""


def main() -> None:
    """Measure and print."""
    given = {"type": Path, "nargs": "*", "default": []}
    with Figures("reports", folders=given) as figures, TemporaryDirectory() as made:
        data = os.environ.get("ASCRIBE_TEST_DATA")
        folders = figures.options.folders or [Path(data, "real", name) for name in REAL if data]
        folders = folders or [ROOT / "examples" / "conversations.jsonl"]
        os.environ["PYTHONPYCACHEPREFIX"] = made
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        run([*COMMAND, "report", "--help"])  # compiles the modules
        spent: dict[str, float] = {}
        with chromium() as browser:
            for folder in folders[:4] if figures.quick else folders:
                page, name = Path(made, f"{folder.stem}.html"), folder.name
                command = [*COMMAND, "report", str(folder), "--quiet", "--out", str(page)]
                times = [run(command)[0]]
                while len(times) < 3 and sum(times) < LONG and not figures.quick:
                    times.append(run(command)[0])
                spent[name], most = min(times), BYTES_OF_FOUR if name in REAL[:4] else BYTES
                figures.emit(name, "cpu", spent[name], "s", "lower")
                figures.emit(name, "page", page.stat().st_size, "bytes", "lower", most)
                if browser is not None:
                    paint, opening = seen(browser, page)
                    figures.emit(name, "first paint", paint, "s", "lower", PAINT)
                    figures.emit(name, "opening a session", opening, "s", "lower", OPEN)
        for names, goal in ((REAL[:4], FOUR), (REAL, SEVEN)):
            if spent.keys() >= {*names}:
                total = sum(spent[name] for name in names)
                figures.emit(f"{len(names)} folders", "cpu", total, "s", "lower", goal)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; None if there is none."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None or find_spec("playwright") is None:
        yield None
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (not everybody has it)

    with sync_playwright() as started:
        # As root, the sandbox does not start.
        yield started.chromium.launch(executable_path=path, args=["--no-sandbox"])


def seen(browser: Any, page: Path) -> tuple[float, float]:
    """Seconds until the first paint, and those that the slowest of some sessions takes to open."""
    packed = re.search(r'id="packed-sessions">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert packed is not None
    names = [row["session"] for row in json.loads(gzip.decompress(b64decode(packed[1])))]
    tab = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True).new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-sessions=yes]")
    paint = tab.evaluate("performance.getEntriesByType('paint')[0].startTime / 1000")
    opening = [tab.evaluate(OPENING, name) for name in names[:: -(-len(names) // OPENED)]]
    tab.context.close()
    return paint, max(opening)


if __name__ == "__main__":
    main()
