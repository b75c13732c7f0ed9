"""Hostile texts in a report: 48 of them in each of 9 places, opened in a browser.

    python benchmarks/attack/report_injections.py [--quick] [--payloads 48]

Every text tries to run a script, to fetch something, to open a dialog or to break the page. One
page is made for each text, which has it as the name of a group, of a trajectory, of a family and of
a file, and as a state, an action, an observation, a response and a prompt; each sets another mark.
With Chromium (on the path, or named by the variable CHROMIUM) and playwright, the page is opened
without network, every group is chosen and every step shown. Without them the page is parsed, and
must have the elements and attributes of a page about harmless text, and no others.
``harmful`` counts injections that did something.
"""

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import common

from ascribe import recipe
from ascribe.reports import picture
from tests.conftest import write_jsonl
from tests.report.injections import INJECTIONS, SCRIPT

PLACES = (
    *("group", "trajectory", "family", "state", "action", "observation", "response"),
    *("file name", "prompt"),
)
MARK = "window.hacked="


def page_with(text: str, folder: Path) -> Path:
    """A report with the text in every place, marked with the number of the place."""
    marked = [text.replace(SCRIPT, f"{MARK}{place + 1}") for place in range(len(PLACES))]
    rows = [
        {
            "group": f"{marked[0]}{group}",
            "trajectory": f"{marked[1]}{group}/{run}",
            "step": step,
            "family": marked[2],
            "state": f"{marked[3]}{step}",
            "action": f"{marked[4]}{run}",
            "observation": marked[5],
            "response": marked[6],
            "prompt": json.dumps([{"role": marked[8], "content": marked[8]}]),
            "reward": float(run == 0 and step == 1),
        }
        for group in range(2)
        for run in range(3)
        for step in range(2)
    ]
    name = marked[7].replace("/", "∕").replace("\0", "")
    name = name.encode()[:200].decode(errors="ignore")
    file = write_jsonl(folder / f"{name}.jsonl", rows)
    picture([file], recipe("gigpo"), compare=recipe("grpo")).write(folder / "report.html")
    file.unlink()
    return folder / "report.html"


# In a browser.

SHOW_ALL = """() => {
  const pick = document.getElementById("pick");
  for (const option of [...pick.options]) {
    pick.value = option.value;
    pick.dispatchEvent(new Event("change"));
    for (const box of document.querySelectorAll(".lane-name input")) box.click();
    for (const cell of document.querySelectorAll(".cell")) {
      cell.focus();
      cell.click();
      cell.dispatchEvent(new MouseEvent("mousemove", {bubbles: true}));
    }
    const recipe = document.getElementById("recipe");
    recipe.value = recipe.value === "0" ? "1" : "0";
    recipe.dispatchEvent(new Event("change"));
    document.getElementById("wider").click();
  }
  for (const summary of document.querySelectorAll("summary")) summary.click();
}"""
"""Shows every step of every group, and opens every table."""

STATE = """() => ({
  mark: window.hacked ?? null,
  title: document.title,
  polluted: ({}).polluted ?? null,
  elements: [...document.querySelectorAll("*")].map(e => e.localName),
  handlers: [...document.querySelectorAll("*")].flatMap(e => e.getAttributeNames())
    .filter(name => name.startsWith("on")),
})"""
STRANGE = {
    *("iframe", "object", "embed", "link", "base"),
    *("img", "video", "audio", "dialog", "marquee"),
}


@contextmanager
def browser() -> Iterator[Callable[[Path], list[str]] | None]:
    """A function that opens a page and says what it did; None without a browser."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None or find_spec("playwright") is None:
        yield None
        return
    with import_module("playwright.sync_api").sync_playwright() as started:
        # Root has no sandbox in Chromium.
        chromium = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield lambda page: _opened(chromium, page)
        chromium.close()


def _opened(chromium: Any, page: Path) -> list[str]:
    context = chromium.new_context(offline=True)
    tab = context.new_page()
    seen: list[str] = []
    tab.on("console", lambda message: seen.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: seen.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
    tab.on("popup", lambda _: seen.append("window"))
    tab.on("request", lambda r: None if r.url == page.as_uri() else seen.append(f"to {r.url}"))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready=yes]", timeout=60_000)
    tab.evaluate(SHOW_ALL)
    tab.wait_for_timeout(50)
    state = tab.evaluate(STATE)
    context.close()
    counts = Counter(state["elements"])
    seen += [f"element {name}" for name in STRANGE & set(counts)]
    seen += [f"handler {name}" for name in state["handlers"]]
    if counts["script"] != 3 or counts["meta"] != 4:
        seen.append(f"{counts['script']} scripts and {counts['meta']} metas")
    if state["title"] != "Ascribe: where the credit went":
        seen.append(f"title {state['title']}")
    for key in ("mark", "polluted"):
        if state[key] is not None:
            seen.append(f"{key} {state[key]}")
    return seen


# Without one.


class _Elements(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag, *sorted(name for name, _ in attrs)] += 1


def parsed(page: Path, harmless: Counter[tuple[str, ...]]) -> list[str]:
    """How the elements of a page differ from those of a harmless one."""
    found = _Elements(page).found
    return [f"element {name}" for name in (found - harmless) + (harmless - found)]


def main() -> None:
    """Try every text."""
    options = {"payloads": {"type": int, "default": 48, "help": "texts, of those of the tests"}}
    with common.Figures("attack/report_injections", **options) as figures, browser() as opened:
        count = 6 if figures.quick else min(figures.options.payloads, len(INJECTIONS))
        chosen = [INJECTIONS[index * len(INJECTIONS) // count] for index in range(count)]
        harmful = 0
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            harmless = _Elements(page_with("a harmless text", folder)).found
            for text in chosen:
                page = page_with(text, folder)
                complaints = parsed(page, harmless) + (opened(page) if opened else [])
                if complaints:
                    print(f"{text[:80]!r}: {complaints[:5]}", file=sys.stderr)
                harmful += len(complaints)
        case = "in Chromium" if opened else "parsed"
        figures.emit(case, "injections", count * len(PLACES), "injections", "higher")
        figures.emit(case, "harmful", harmful, "complaints", "lower", 0.0)


if __name__ == "__main__":
    main()
