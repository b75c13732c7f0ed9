"""Reports on real logs, against what plain reading of the files says."""

import json
import os
import re
from pathlib import Path

import pytest

from ascribe.reports import picture


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("ASCRIBE_TEST_DATA")
    if not folder or not (Path(folder) / "real").is_dir():
        pytest.skip("ASCRIBE_TEST_DATA names no folder with real sessions")
    return Path(folder) / "real"


@pytest.mark.parametrize(
    "folder", ["tau_bench", "tau_bench_retail", "tau2_airline", "tau2_telecom"]
)
def test_errors_are_those_of_the_log(data: Path, folder: str) -> None:
    """Results that begin with ``Error``, as the log has them, whatever the page counts besides."""
    found = expected = 0
    for file in sorted((data / folder).glob("*.json")):
        document = json.loads(file.read_text())
        for session in document["simulations"] if isinstance(document, dict) else document:
            messages = session.get("messages") or session.get("traj") or []
            results = [
                each["content"].removeprefix("API output: ")
                for each in messages
                if each["role"] == "tool" or str(each["content"]).startswith("API output: ")
            ]
            expected += sum(text.startswith(("Error", "Unknown action")) for text in results)
    found = sum(each["errors"] for each in picture(data / folder).browser["tools"])
    assert found == expected


@pytest.mark.parametrize(
    "folder", ["tau_bench", "tau_bench_retail", "tau2_airline", "mint_alfworld"]
)
def test_no_reason_argues_against_its_mark(data: Path, folder: str) -> None:
    """Where a reason has two shares, they differ as the mark says."""
    compared = 0
    for session in picture(data / folder).answers["sessions"]:
        for side in ("costliest", "best"):
            why = session[side]["why"].rpartition(": the ")[2] if session[side] else ""
            shares = [float(each) for each in re.findall(r"([\d.]+) %", why)]
            if len(shares) == 2:
                compared += 1
                assert (shares[0] < shares[1]) == (side == "costliest"), (session["session"], why)
    assert compared


def test_the_headline_says_how_many_crashed(data: Path) -> None:
    folder, sessions = data / "tau_bench_retail", []
    for file in sorted(folder.glob("*.json")):
        sessions += json.loads(file.read_text())
    crashed = sum(bool(each["info"].get("error")) and not each["traj"] for each in sessions)
    rest = [each["reward"] for each in sessions if each["traj"]]
    said = picture(folder).answers["happened"]["sentence"]
    assert f"{crashed} of them crashed without a response and count as lost" in said
    assert f"the other {len(rest)} won {100 * sum(rest) / len(rest):.0f} %." in said


def test_a_finding_says_what_is_compared(data: Path) -> None:
    """Each version tried a task of this log once, so that versions are compared with others."""
    rows = picture(data / "tau2_airline").answers["separates"]["rows"]
    assert rows
    assert all(
        "at the same task, after subtracting how the versions differ" in r["sure"] for r in rows
    )
    rows = picture(data / "tau_bench").answers["separates"]["rows"]
    assert rows
    assert not any("subtracting" in row["sure"] for row in rows)


def test_calls_written_as_text_are_read(data: Path) -> None:
    """Those of one agent of this log, and the errors that were returned to it."""
    (file,) = (data / "tau_bench_retail").glob("act-*.json")
    returned = [
        message["content"]
        for session in json.loads(file.read_text())
        for message in session["traj"]
        if message["role"] == "user" and message["content"].startswith("API output: ")
    ]
    tools = picture(file).browser["tools"]
    assert sum(each["calls"] for each in tools) == len(returned)
    errors = sum(text.startswith("API output: Error") for text in returned)
    assert errors <= sum(each["errors"] for each in tools) <= errors + 20, "and unknown actions"
