"""A report on many steps: how long it takes, what memory it needs, how soon its page is open.

``seconds`` and ``peak_bytes`` are those of the whole command ``ascribe report``, from its start to
the written page, Arrow's memory included. ``open_seconds`` is from asking a headless Chromium for
the page until every figure is drawn; it needs the package playwright and a Chromium (the variable
CHROMIUM names one that is not on the path). The steps have states of 300 characters.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import common
from playwright.sync_api import sync_playwright

from ascribe.steps.files import write_table

OPENINGS = 3
PAGE_STEPS = 10_000
"""Steps at which the size of the page has a goal."""


def main() -> None:
    """Measure and print."""
    with common.Figures("report") as figures, tempfile.TemporaryDirectory() as folder:
        sizes = [10**4, 10**5] if figures.quick else [10**4, 10**5, 10**6]
        for size in sizes:
            case = f"{size:,} steps"
            file, page = Path(folder) / f"{size}.parquet", Path(folder) / f"{size}.html"
            write_steps(file, size)
            seconds, peak = command(file, page)
            largest = size == 10**6
            figures.emit(case, "seconds", seconds, "s", "lower", 60.0 if largest else None)
            figures.emit(case, "peak_bytes", peak, "bytes", "lower", 2e9 if largest else None)
            goal = 5e6 if size == PAGE_STEPS else None
            figures.emit(case, "page_bytes", page.stat().st_size, "bytes", "lower", goal)
            figures.emit(case, "open_seconds", opened(page), "s", "lower", 3.0)


def write_steps(file: Path, size: int) -> None:
    """Invented steps, in a process of its own, so that its memory is given back."""
    child = os.fork()
    if child == 0:
        write_table(common.steps(round(size / common.ROWS_OF_GROUP)), file)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the steps could not be written")


def command(file: Path, page: Path) -> tuple[float, int]:
    """Seconds of ``ascribe report`` and the most memory that it held."""
    program = "from ascribe.cli import main; main()"
    arguments = [sys.executable, "-c", program, "report", str(file), "--out", str(page)]
    started = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        arguments,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit("ascribe report failed")
    return time.perf_counter() - started, 1024 * used.ru_maxrss


def opened(page: Path) -> float:
    """Median seconds until the page has drawn everything."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(OPENINGS):
            tab = browser.new_page()
            started = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready=yes]", timeout=60_000)
            times.append(time.perf_counter() - started)
            tab.close()
        browser.close()
    return statistics.median(times)


if __name__ == "__main__":
    main()
