"""Results that others published: sessions, rewards and responses as counted without Ascribe."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ascribe.sessions import action_of_text
from ascribe.sessions.reading import Imported, import_files
from ascribe.steps.check import arrange, no_response, starts_of

pytestmark = pytest.mark.slow

FOLDERS = {
    "tau_bench": 0,
    "tau_bench_retail": 0,
    "tau2_airline": 434,
    "tau2_telecom": 80,
    "intercode_sql": 0,
    "intercode_bash": 0,
    "mint_alfworld": 0,
}
"""The folders, and messages that open a session of tau2: scripted, and no response. An agent that
plays without a user has none."""


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("ASCRIBE_TEST_DATA")
    if not folder or not (Path(folder) / "real").is_dir():
        pytest.skip("ASCRIBE_TEST_DATA names no folder with real sessions")
    return Path(folder) / "real"


def returns(imported: Imported) -> np.ndarray:
    steps = arrange(imported.table)
    return np.bincount(steps.trajectory, steps.reward)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_what_its_files_hold(data: Path, folder: str) -> None:
    totals = json.loads((data / "totals.json").read_text())
    files = [each for name, each in totals.items() if name.startswith(f"{folder}/")]
    imported = import_files([data / folder])
    total = Counter({name: sum(each[name] for each in files) for name in files[0]})
    earned = sum(each["mean_reward"] * each["sessions"] for each in files)
    found = returns(imported)
    assert found.size == imported.balance.used("session") == total["sessions"]
    rounded = sum(5e-5 * each["sessions"] for each in files)  # of means with four digits
    assert found.sum() == pytest.approx(earned, abs=rounded)
    assert (found == 1).sum() == total["won"]
    responses = int((~no_response(imported.table)).sum())
    assert responses == imported.balance.used("response") == total["responses"] - FOLDERS[folder]
    assert imported.balance.silent >= total["without_a_response"]
    assert not imported.balance.reasons("session")
    assert starts_of(imported.table).same.all(), "the benchmark names its tasks"


TASKS = {"tau_bench": (50, 1), "tau_bench_retail": (115, 5), "intercode_sql": (1034, 6)}
TASKS |= {"intercode_bash": (200, 3), "mint_alfworld": (134, 8), "tau2_telecom": (40, 4)}
"""Tasks and versions of a folder."""


@pytest.mark.parametrize("folder", TASKS)
def test_a_folder_is_one_batch(data: Path, folder: str) -> None:
    imported = import_files([data / folder], state="observation")
    assert (imported.table.group.values.size, len(imported.balance.versions)) == TASKS[folder]


def test_every_file_opens_alone(data: Path) -> None:
    totals = json.loads((data / "totals.json").read_text())
    for name, total in totals.items():
        imported = import_files([data / name], state="observation")
        found = returns(imported)
        assert (found.size, (found == 1).sum()) == (total["sessions"], total["won"]), name
        assert found.mean() == pytest.approx(total["mean_reward"], abs=1e-4), name
        if not name.startswith("tau2"):
            assert imported.table.group.values.size == total["tasks"], name
            assert imported.balance.used("response") == total["responses"], name


@pytest.mark.parametrize(("folder", "named"), [("Algorithm-Generated", 123), ("Hand-Crafted", 55)])
def test_a_mistake_of_a_team_lands_on_its_row(data: Path, folder: str, named: int) -> None:
    """Two are the terminal's, and in four who is named did not speak then."""
    found = 0
    for path in sorted((data / "whowhen" / folder).glob("*.json")):
        told = json.loads(path.read_text())
        table = import_files([path], unrewarded=True, state="observation").table
        history = [action_of_text(each["content"]) for each in told["history"]]
        left = iter(history)
        actions = table.action.texts()
        assert all(any(action == said for said in left) for action in actions), "in order"
        assert not table.agent or table.step.tolist() == list(range(len(table)))
        wrong = history[int(told["mistake_step"])]
        agents = table.agent.texts() if table.agent else []
        found += (told["mistake_agent"], wrong) in zip(agents, actions, strict=False)
    assert found == named


def test_nested_spans_open_and_their_errors_land_on_calls(data: Path) -> None:
    imported = import_files([data / "trail"], unrewarded=True, state="observation")
    calls = 0
    for path in (data / "trail").glob("*.json"):
        spans = json.loads(path.read_text()).get("spans", [])
        while spans:
            span = spans.pop()
            spans += span["child_spans"]
            calls += span["span_attributes"].get("openinference.span.kind") == "LLM"
    assert len(imported.table) == calls
    assert imported.balance.used("session") == 10


def test_what_crashed_is_counted(data: Path) -> None:
    imported = import_files([data / "tau_bench_checked"])
    crashed = sum(
        "error" in each["info"]
        for path in (data / "tau_bench_checked").glob("*.json")
        for each in json.loads(path.read_text())
    )
    assert imported.balance.crashed == crashed == 39
    dropped = import_files([data / "tau_bench_checked"], crashed="drop")
    assert returns(dropped).size == returns(imported).size - crashed


# Files that reproduce faults of an earlier commit.


@pytest.fixture(scope="module")
def faults(data: Path) -> Path:
    folder = data.parents[1] / "reference" / "faults"
    if not folder.is_dir():
        pytest.skip("there is no folder with files of faults")
    return folder


def test_rewards_of_calls(faults: Path) -> None:
    rows = [json.loads(line) for line in (faults / "gw3.jsonl").read_text().splitlines()]
    imported = import_files([faults / "gw3.jsonl"])
    assert returns(imported).sum() == sum(row["reward"] for row in rows)


def test_the_last_reward_of_a_state(faults: Path) -> None:
    rows = [json.loads(line) for line in (faults / "lg3.jsonl").read_text().splitlines()]
    last = {row["config"]["configurable"]["thread_id"]: row["values"]["reward"] for row in rows}
    found = returns(import_files([faults / "lg3.jsonl"], reward="values.reward"))
    assert (found.size, found.sum()) == (len(last), sum(last.values())) == (20, 10)


@pytest.mark.parametrize("name", ["nostep", "old", "new", "new2", "support", "stop"])
def test_lines_of_chats(faults: Path, name: str) -> None:
    rows = [json.loads(line) for line in (faults / f"{name}.jsonl").read_text().splitlines()]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    imported = import_files([faults / f"{name}.jsonl"])
    assert (returns(imported).size, returns(imported).sum()) == (len(rewards), sum(rewards))
    assert imported.balance.reasons("session").get("no reward", 0) == len(rows) - len(rewards)


def test_a_session_without_a_response_has_a_row_of_rewards(faults: Path) -> None:
    found = returns(import_files([faults / "nostep.jsonl"], reward=str(faults / "ns.csv")))
    assert (found.size, found.sum()) == (12, 5)


def test_files_that_a_crash_cut(faults: Path) -> None:
    found = import_files([faults / "runs"], skip_bad=True)
    assert found.balance.sentence == "4 sessions in 4 files; 6 files not read: cut off (6)."


def test_an_evaluation_and_its_retry(faults: Path) -> None:
    found = import_files([faults / "logs"])
    samples = {
        each["uuid"]
        for path in (faults / "logs").iterdir()
        for each in json.loads(path.read_text())["samples"]
    }
    assert returns(found).size == len(samples) == 4


@pytest.mark.parametrize(("name", "won"), [("tau", 18), ("insp", 2), ("vr", 4)])
def test_tasks_with_one_id(faults: Path, name: str, won: int) -> None:
    found = import_files([faults / name])
    assert found.table.group.values.size == 2
    assert returns(found).sum() == won
