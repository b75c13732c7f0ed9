"""Check that a report says the same on its page, in the terminal and as JSON.

    python scripts/same_answers.py [FILE_OR_FOLDER...]
    python scripts/same_answers.py NEW --against OLD

Each report is made twice, for people and with ``--json``. The answers in the page must be those of
the JSON document; the terminal must print its sentences, three findings and the reasons of one
session; and where Chromium is found, the open page must show its sentence, every share of a
version with its interval, the cells of the grid and every listed finding. Without a file, that is
done with the example and, where ``ASCRIBE_TEST_DATA`` names the test data, with real logs. The exit
code is 1 if something differs.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REAL = ("tau_bench", "tau_bench_retail", "tau2_airline", "intercode_sql", "mint_alfworld")
VERSIONS = ("tau2_telecom/telecom_gpt41.json", "tau2_telecom/telecom_gpt41_sft.json")
CELLS = 20
"""Cells of the grid, and findings, that are looked for on the page."""


def ascribe(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "ascribe", *arguments]
    environment = {**os.environ, "COLUMNS": "200", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def words(text: str) -> str:
    """The text on one line."""
    return re.sub(r"\s+", " ", text)


def of_page(page: Path) -> dict[str, Any]:
    """The answers that a page holds."""
    html = page.read_text(encoding="utf-8")
    found = dict(re.findall(r'<script type="application/\w+" id="([\w-]+)">(.*?)</script>', html))
    answers = json.loads(found["data"])["answers"]
    answers["sessions"] = json.loads(gzip.decompress(b64decode(found["packed-sessions"])))
    return dict(answers)


def percent(value: float) -> str:
    """A share as everybody writes it."""
    return f"{100 * value:.0f} %"


def for_terminal(answers: dict[str, Any], session: dict[str, Any]) -> Iterator[str]:
    """What the terminal must print."""
    if answers["changed"] is None:
        yield answers["happened"]["sentence"]
        yield answers["separates"]["sentence"]
        for row in [row for row in answers["separates"]["rows"] if not row["turned"]][:3]:
            yield f"{row['sentence']} {row['sure']}"
    else:
        yield f"Verdict: {answers['changed']['verdict']}."
        for name in ("lost", "gained"):
            if answers["changed"][name]:
                yield f"{name.capitalize()}: {len(answers['changed'][name]):,} task"
        yield f"The same: {answers['changed']['same']:,} task"
    for name in ("costliest", "best"):
        if session[name]:
            yield f" step is {session[name]['step']}: {session[name]['why']}."


def for_page(answers: dict[str, Any]) -> Iterator[str]:
    """What the open page must show."""
    happened, changed = answers["happened"], answers["changed"]
    yield happened["sentence"]
    if changed:
        yield changed["verdict"]
    if happened["outcome"] == "won":
        for each in happened["versions"]:
            yield percent(each["share"])
            yield f"{percent(each['low'])[:-2]} to {percent(each['high'])}"
        for task in happened["grid"]["tasks"][:CELLS]:
            yield from (f"{won}/{size}" for won, size in filter(None, task["cells"]))
    rows = answers["separates"]["rows"]
    for row in [row for row in rows if row["certain"] and not row["turned"]][:CELLS]:
        yield row["sentence"]


def shown(page: Path) -> str | None:
    """What the open page shows; None without Chromium."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only with Chromium)

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-sessions=yes]", timeout=120_000)
        text = str(tab.evaluate("document.querySelector('main').textContent"))
        browser.close()
    return text


def differences(files: list[str], folder: Path) -> Iterator[str]:
    """What is not the same in the three."""
    page, other = folder / "report.html", folder / "json.html"
    document = json.loads(ascribe("report", *files, "--out", str(other), "--json"))
    answers = document["answers"]
    marked = [each for each in answers["sessions"] if each["costliest"] and each["best"]]
    session = (marked or answers["sessions"])[0]
    named = ["--session", session["session"]]
    terminal = words(ascribe("report", *files, "--out", str(page), *named))
    if of_page(page) != answers:
        yield "the answers in the page are not those of the document"
    for text in for_terminal(answers, session):
        if words(text)[:1900] not in terminal:
            yield f"the terminal lacks: {text}"
    text = shown(page)
    if text is None:
        print("  without Chromium, what the page shows was not read")
        return
    text = words(text).replace("`", "")  # the page sets code in another font instead
    for each in for_page(answers):
        if words(each).replace("`", "") not in text:
            yield f"the page lacks: {each}"


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="files or folders of sessions")
    parser.add_argument("--against", help="an old version, for one new file")
    arguments = parser.parse_args()
    reports = [[each] for each in arguments.files]
    if arguments.against:
        reports = [[*each, "--against", arguments.against] for each in reports]
    if not reports:
        reports = [[str(ROOT / "examples/conversations.jsonl")]]
        real = Path(os.environ.get("ASCRIBE_TEST_DATA", "none"), "real")
        reports += [[str(real / name)] for name in REAL if (real / name).exists()]
        new, old = (real / name for name in VERSIONS)
        reports += [[str(new), "--against", str(old)]] if new.exists() else []
    failed = False
    for files in reports:
        print(" ".join(Path(each).name if "/" in each else each for each in files))
        with tempfile.TemporaryDirectory() as folder:
            for each in differences(files, Path(folder)):
                failed = True
                print(f"  {each}")
    print("something differs" if failed else "page, terminal and JSON say the same")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
