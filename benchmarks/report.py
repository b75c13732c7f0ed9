"""A report on many steps: how long it takes, what memory it needs, how soon its page answers.

``seconds`` and ``peak_bytes`` are those of the whole command ``ascribe report``, from its start to
the written page, Arrow's memory included. ``open_seconds`` is from asking a headless Chromium for
the page until every figure is drawn; it needs the package playwright and a Chromium (the variable
CHROMIUM names one that is not on the path). ``search_seconds`` is from typing a letter that nearly
every state holds until the matching steps are marked. ``open_cpu_seconds`` is the processor time of
the page's main thread until all is drawn, which does not depend on what else the machine does, and
``cpu_seconds`` that of the command. The steps have states of 300 characters. The case of 22,000
steps has two recipes, and all of its steps are in the browser.
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
BROWSED = 22_000
"""Steps of the case with two recipes."""
SEARCH = """() => {
  const box = document.getElementById("search"), started = performance.now();
  box.value = "e";
  box.dispatchEvent(new Event("input"));
  document.body.offsetHeight;  // the browser has laid the page out again
  return (performance.now() - started) / 1000;
}"""


def main() -> None:
    """Measure and print."""
    with common.Figures("report") as figures, tempfile.TemporaryDirectory() as folder:
        sizes = [10**4, BROWSED] if figures.quick else [10**4, BROWSED, 10**5, 10**6]
        for size in sizes:
            both, largest = size == BROWSED, size == 10**6
            case = f"{size:,} steps{', two recipes' if both else ''}"
            file, page = Path(folder) / f"{size}.parquet", Path(folder) / f"{size}.html"
            write_steps(file, size)
            seconds, processor, peak = command(file, page, *(["--against", "grpo"] if both else []))
            goal = 15.0 if both else 60.0 if largest else None
            figures.emit(case, "seconds", seconds, "s", "lower", goal)
            figures.emit(case, "cpu_seconds", processor, "s", "lower")
            figures.emit(case, "peak_bytes", peak, "bytes", "lower", 2e9 if largest else None)
            figures.emit(case, "page_bytes", page.stat().st_size, "bytes", "lower", 5e6)
            opening, working, searching = opened(page)
            figures.emit(case, "open_seconds", opening, "s", "lower", 1.5)
            figures.emit(case, "open_cpu_seconds", working, "s", "lower", 1.5)
            figures.emit(case, "search_seconds", searching, "s", "lower", 0.2)


def write_steps(file: Path, size: int) -> None:
    """Invented steps, in a process of its own, so that its memory is given back."""
    child = os.fork()
    if child == 0:
        write_table(common.steps(round(size / common.ROWS_OF_GROUP)), file)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("the steps could not be written")


def command(file: Path, page: Path, *options: str) -> tuple[float, float, int]:
    """Seconds of ``ascribe report``, processor seconds, and the most memory that it held."""
    program = "from ascribe.cli import main; main()"
    arguments = [sys.executable, "-c", program, "report", str(file), "--out", str(page), *options]
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
    seconds = time.perf_counter() - started
    return seconds, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss


def opened(page: Path) -> tuple[float, float, float]:
    """Medians: seconds until all is drawn, of the processor meanwhile, and of a search."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    times, processor, searches = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(OPENINGS):
            tab = browser.new_page()
            session = tab.context.new_cdp_session(tab)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            started = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready=yes]", timeout=60_000)
            times.append(time.perf_counter() - started)
            metrics = session.send("Performance.getMetrics")["metrics"]
            processor.append(sum(m["value"] for m in metrics if m["name"] == "TaskDuration"))
            searches.append(tab.evaluate(SEARCH))
            if not int(tab.locator("#found").inner_text().split()[0].replace(",", "")):
                sys.exit("the search found nothing")
            tab.close()
        browser.close()
    return tuple(map(statistics.median, (times, processor, searches)))


if __name__ == "__main__":
    main()
