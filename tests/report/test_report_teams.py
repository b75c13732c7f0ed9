"""Reports on teams (``ccpo``) and on answers with corrections (``ibpo``) say what was compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import Reason, Recipe, StepTable, assign, recipe
from ascribe.reports import Picture, picture
from ascribe.reports.crediting import credit_batches
from tests.conftest import write_jsonl
from tests.report.toys import Row, batch, groups_of

AGENTS = ("thinker", "solver")


def team(seed: int, groups: int = 3, size: int = 4) -> list[Row]:
    """Two agents in turn, and a third step that only measures; who helps is drawn."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for group in range(groups):
        for run in range(size):
            earned = float(random.integers(2))
            without = [float(random.integers(2)) / 2 for _ in AGENTS]
            turns: list[tuple[str, float | None]] = list(zip(AGENTS, without, strict=True))
            turns.append(("solver", None))
            rows += [
                {
                    "group": f"question {group}",
                    "trajectory": f"question {group}/{run}",
                    "step": step,
                    "state": f"question {group} by {agent}",
                    "action": f"words {run}",
                    "reward": earned * (step == 1),
                    "agent": agent,
                    "without": other,
                }
                for step, (agent, other) in enumerate(turns)
            ]
    return rows


def corrected(groups: int = 4, size: int = 4) -> list[Row]:
    """One answer of each task is right; each wrong one is corrected once, every other one well."""
    rows: list[Row] = []
    for group in range(groups):
        task = f"sum {group}"
        for run in range(size):
            answer = {"group": task, "trajectory": f"{task}/{run}", "step": 0, "state": task}
            rows.append(answer | {"action": f"{run}", "reward": float(run == 0), "corrects": None})
            if run:
                again = f"{task}/corrects/{run}"
                rows.append(
                    answer
                    | {"group": again, "trajectory": f"{again}/{size}", "action": "again"}
                    | {"reward": float(run % 2), "corrects": f"{task}/{run}"}
                )
    return rows


def made(tmp_path: Path, parts: list[list[Row]], by: Recipe) -> Picture:
    files = [write_jsonl(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate(parts)]
    return picture(files, by)


def cells(found: Picture) -> list[tuple[dict[str, Any], dict[str, Any], int]]:
    return [
        (group, group["cells"], at)
        for group in groups_of(found.browser)
        for at in range(len(group["cells"]["step"]))
    ]


# Teams.


def test_history_goes_from_batch_to_batch() -> None:
    parts = [team(seed, groups=12) for seed in range(4)]
    found = credit_batches([batch(rows, str(n)) for n, rows in enumerate(parts)], recipe("ccpo"))
    history, expected = None, []
    for rows in parts:
        credit = recipe("ccpo")(StepTable.from_dicts(rows), history=history)
        history = credit.history
        expected.append(credit.advantage)
    np.testing.assert_array_equal(found.credit.advantage, np.concatenate(expected))
    afresh = recipe("ccpo")(StepTable.from_dicts(parts[-1])).advantage
    assert not np.allclose(expected[-1], afresh), "statistics of earlier batches count"


def test_an_agent_is_compared_by_what_it_added() -> None:
    rows = team(0)
    found = credit_batches([batch(rows)], recipe("ccpo"))
    compared = found.credit.terms["team"]
    earned = {row["trajectory"]: row["reward"] for row in rows if row["step"] == 1}
    for row, own, peers, mean in zip(
        rows, compared.own, compared.peers, compared.baseline, strict=True
    ):
        added = [
            earned[other["trajectory"]] - other["without"]
            for other in rows
            if (other["group"], other["agent"]) == (row["group"], row["agent"])
            and other["without"] is not None
        ]
        if row["without"] is None:
            assert peers == 0
        else:
            assert own == earned[row["trajectory"]] - row["without"]
            assert peers == len(added) == 4
            assert mean == pytest.approx(sum(added) / 4)


def test_a_report_on_a_team(tmp_path: Path) -> None:
    found = made(tmp_path, [team(0), team(1)], recipe("ccpo"))
    sentence = found.browser["recipes"][0]["sentences"]["team"][0]
    assert sentence["beyond"] == "the recipe bounds and scales what an agent added"
    assert "33 % they were taken only to measure the other agents" in found.verdict.headline
    for group, each, at in cells(found):
        assert group["texts"][each["agent"][at]] in AGENTS
        reason = found.browser["reasons"][group["credits"][0]["terms"]["team"]["reason"][at]]
        assert (reason == Reason.COUNTERFACTUAL.label) == (each["step"][at] == 2)
    assert "singletons" not in {finding.name for finding in found.verdict.findings}


# Corrections.


def test_corrections_are_no_tries_at_the_task(tmp_path: Path) -> None:
    found = made(tmp_path, [corrected(), corrected()], recipe("ibpo"))
    happened, iterations = found.answers["happened"], found.facts.tables["iterations"]
    assert (happened["tasks"], happened["sessions"], happened["share"]) == (8, 32, 0.25)
    assert found.facts.everything["success"] == 0.25
    assert [each["success"] for each in iterations] == [0.25, 0.25]
    assert [each["equal_groups"] for each in iterations] == [0.0, 0.0]
    assert found.facts.task_groups == 8
    assert found.facts.groups_with("returns differ") == 8
    assert "groups_of_one" not in {finding.name for finding in found.verdict.findings}
    assert found.facts.diagnosis.trajectories == 56


def test_a_report_on_corrections(tmp_path: Path) -> None:
    found = made(tmp_path, [corrected()], recipe("ibpo"))
    sentences = [each["text"] for each in found.browser["recipes"][0]["sentences"]["episode"]]
    for group, each, at in cells(found):
        named = each["corrects"][at]
        task = found.answers["sessions"][group["trajectories"][0]["number"]]["task"]
        assert (named >= 0) == ("corrects" in task)
        if named >= 0:
            answer, _, run = group["texts"][named].rpartition("/")
            assert task == f"{answer}/corrects/{run}"
        sentence = sentences[group["credits"][0]["terms"]["episode"]["way"][at]]
        assert ("a wrong answer counts for more" in sentence) == (named < 0)


def test_corrections_are_compared_with_corrections() -> None:
    found = credit_batches([batch(corrected())], recipe("ibpo"))
    compared = found.credit.terms["episode"]
    assert found.table.corrects is not None
    correction = found.table.corrects.codes >= 0
    assert set(compared.peers[correction]) == {1}  # of the same prompt
    assert set(compared.peers[~correction]) == {4}
    task = credit_batches([batch(corrected())], recipe("ibpo", baseline="task")).credit
    assert set(task.terms["episode"].peers[correction]) == {3}


def test_a_batch_of_corrections_alone_is_told_too(tmp_path: Path) -> None:
    alone = [row for row in corrected() if row["corrects"] is not None]
    found = made(tmp_path, [alone], recipe("ibpo"))
    assert found.answers["happened"]["sessions"] == 12


def test_a_correction_without_its_answer_says_so(tmp_path: Path) -> None:
    rows = [row for row in corrected() if row["trajectory"] != "sum 0/1"]
    found = made(tmp_path, [rows], recipe("ibpo"))
    assert "the answer that they correct is not in the batch" in found.verdict.headline
    credit = assign(StepTable.from_dicts(rows), recipe("ibpo"), "drop").credit
    assert (credit.reason == Reason.NO_TARGET).sum() == 1


# In a browser.


@pytest.mark.engine
@pytest.mark.slow
def test_the_sentences_of_teams_and_corrections(tmp_path: Path) -> None:
    browser = pytest.importorskip(
        "tests.report.test_report_browser", reason="needs playwright and a Chromium"
    )
    page = tmp_path / "report.html"
    expected = {
        "ccpo": (team(0), "this agent added", "by thinker"),
        "ibpo": (corrected(), "a wrong answer counts for more", "episode: 4 trajectories returned"),
    }
    with browser.playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser.CHROMIUM, args=["--no-sandbox"])
        for name, (rows, *sentences) in expected.items():
            made(tmp_path, [rows], recipe(name)).write(page)
            tab, seen = browser.opened(chromium, page)
            tab.locator("#session-list a").first.click()
            tab.locator(".how").first.wait_for()
            browser.unfold(tab)
            said = tab.locator("#reader").inner_text()
            for sentence in sentences:
                assert sentence in said
            assert "undefined" not in tab.locator("main").inner_text()
            assert "NaN" not in tab.locator("main").inner_text()
            browser.assert_quiet(seen, page)
        chromium.close()
