"""The answers of a report, against plain counting and against its schema."""

import json
import math
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ascribe import StepTable, report
from ascribe.decisions.why import Reasons
from ascribe.reports import picture
from ascribe.reports.answers import interval, passes
from ascribe.reports.card import HEIGHT, WIDTH, card
from ascribe.reports.text import unique
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, sound

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/report.schema.json").read_text(encoding="utf-8"))
CONVERSATIONS = ROOT / "examples/conversations.jsonl"


def validate(answers: dict[str, Any]) -> None:
    document = {"out": "report.html", "bytes": 1, "run": None, "answers": answers}
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))


def told(rows: list[Row], **options: Any) -> dict[str, Any]:
    """The answers about rows, which fit the schema."""
    answers = picture(StepTable.from_dicts(rows), **options).answers
    validate(answers)
    return answers


def attempt(
    task: str, number: int, outcome: float, version: str = "v", steps: int = 2
) -> list[Row]:
    """Calls of a tool at one task: lost attempts make one that no other makes."""
    return [
        {"group": task, "trajectory": f"{task}/{version}/{number}", "step": step}
        | {"state": f"{task} {version} {number} {step}", "version": version}
        | {"action": json.dumps({"name": "call", "arguments": {"x": step if outcome else number}})}
        | {"reward": outcome * (step == steps - 1)}
        for step in range(steps)
    ]


@pytest.mark.parametrize("folder", ["examples", "hostile"])
def test_the_answers_fit_the_schema(folder: str) -> None:
    if folder == "examples":
        validate(picture(CONVERSATIONS).answers)
        return
    table = sound(groups=len(INJECTIONS[:8]), size=8)
    rows = [
        row
        | {"group": f"{text}{row['group']}", "trajectory": f"{row['trajectory']}{text}"}
        | {"action": f"{text}{row['action']}", "version": f"{text}{row['trajectory'][-1]}"}
        for row, text in ((row, INJECTIONS[int(row["group"][5:])]) for row in table)
    ]
    answers = told(rows)
    svg = card(answers)
    ET.fromstring(svg)
    assert "<script" not in svg
    assert answers["happened"]["sessions"] == 64


def test_the_whole_is_counted_plainly() -> None:
    outcomes = {"a": [1, 1, 0], "b": [0, 0, 0], "c": [1, 1, 1], "d": [1, 0]}
    rows = [
        row
        for task, won in outcomes.items()
        for number, each in enumerate(won)
        for row in attempt(task, number, float(each))
    ]
    happened = told(rows)["happened"]
    assert (happened["sessions"], happened["tasks"], happened["steps"]) == (11, 4, 22)
    assert happened["share"] == pytest.approx(6 / 11)
    assert happened["outcome"] == "won"
    assert happened["totals"] == {"steps": 22, "tokens": None, "errors": 0, "seconds": None}
    assert happened["sentence"].startswith("6 of 11 attempts at 4 tasks won: 55 % (95 % interval ")
    grid = happened["grid"]
    assert [row["task"] for row in grid["tasks"]] == ["d", "a", "b", "c"]
    assert [row["cells"] for row in grid["tasks"]] == [[[1, 2]], [[2, 3]], [[0, 3]], [[3, 3]]]
    assert [block["tasks"] for block in grid["blocks"]] == [2, 1, 1]


def test_versions_that_differ_are_at_the_top() -> None:
    won = {("a", "x"): [1, 1], ("a", "y"): [1, 0], ("b", "x"): [0, 0], ("b", "y"): [1, 1]}
    won |= {("c", "x"): [0], ("c", "y"): [0], ("d", "y"): [1]}
    rows = [
        row
        for (task, version), outcomes in won.items()
        for number, each in enumerate(outcomes)
        for row in attempt(task, number, float(each), version)
    ]
    answers = told(rows)
    grid, versions = answers["happened"]["grid"], answers["happened"]["versions"]
    assert grid["versions"] == ["x", "y"] == [each["name"] for each in versions]
    assert [row["task"] for row in grid["tasks"]] == ["b", "a", "c", "d"]
    assert [row["spread"] for row in grid["tasks"]] == [1.0, 0.5, 0.0, 0.0]
    assert grid["tasks"][-1]["cells"] == [None, [1, 1]]
    assert [each["share"] for each in versions] == pytest.approx([2 / 5, 4 / 6])
    assert {each["version"] for each in answers["sessions"]} == {"x", "y"}


def test_what_attempts_earn_reads_well() -> None:
    rewards = {"a": [0.5, 0.25, 1.0], "b": [0.0, 0.75, 0.5]}
    rows = [
        row | {"reward": each * (row["step"] == 1)}
        for task, earned in rewards.items()
        for number, each in enumerate(earned)
        for row in attempt(task, number, 1.0)
    ]
    answers = told(rows)
    happened = answers["happened"]
    assert happened["outcome"] == "earned"
    assert happened["sentence"].startswith("6 attempts at 2 tasks earned 0.5 on average (95 %")
    assert happened["versions"][0]["pass_at"] == []
    assert happened["grid"]["tasks"][0]["cells"] == [[1.25, 3]]
    assert {each["won"] for each in answers["sessions"]} == {None}


def test_tokens_and_time_are_told_only_where_all_are_known(tmp_path: Path) -> None:
    rows = [row for number in range(4) for row in attempt("a", number, float(number % 2))]
    for number, row in enumerate(rows):
        row["tokens"] = 10 if number else None
        row["seconds"] = 0.5
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answers = picture(file).answers
    validate(answers)
    assert answers["happened"]["totals"] == {
        "steps": 8,
        "tokens": None,
        "errors": 0,
        "seconds": 4.0,
    }
    assert [each["tokens"] for each in answers["sessions"]] == [None, 20.0, 20.0, 20.0]


COUNTS = st.lists(
    st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1
)


@given(COUNTS)
def test_pass_at_k_is_that_of_all_draws(counts: list[tuple[int, int]]) -> None:
    won, size = (np.array(each, dtype=np.int64) for each in zip(*counts, strict=True))
    found = passes(won, size)
    assert list(found) == list(range(1, int(size.max()) + 1))
    for k, (any_, all_, tasks) in found.items():
        drawn = [[*combinations([True] * c + [False] * (n - c), k)] for c, n in counts if n >= k]
        assert tasks == len(drawn)
        for share, test in ((any_, any), (all_, all)):
            shares = [sum(map(test, each)) / len(each) for each in drawn]
            assert share == pytest.approx(sum(shares) / len(shares))


@pytest.mark.parametrize("graded", [False, True])
def test_the_interval_is_that_of_tasks_drawn_again(graded: bool) -> None:
    rng = np.random.default_rng(5)
    chance = rng.beta(0.7, 0.5, 120)
    outcome = [(rng.random(4) < each).astype(np.float64) for each in chance]
    if graded:
        outcome = [each * rng.random(4) for each in outcome]
    won, size = np.array([each.sum() for each in outcome]), np.full(120, 4)
    low, high = interval(won, size, np.concatenate(outcome), graded=graded)
    again = [won[rng.integers(0, 120, 120)].sum() / 480 for _ in range(4000)]
    assert (low, high) == pytest.approx(np.quantile(again, [0.025, 0.975]).tolist(), abs=0.012)


def test_the_interval_holds_the_true_share() -> None:
    """Also of few tasks, whose attempts are alike."""
    rng, inside = np.random.default_rng(6), 0
    for _ in range(400):
        won = rng.binomial(4, rng.beta(0.5, 0.5, 8)).astype(np.float64)
        low, high = interval(won, np.full(8, 4), np.zeros(1), graded=False)
        inside += low <= 0.5 <= high
    assert inside >= 0.94 * 400


def test_no_interval_is_a_point() -> None:
    for won in (0.0, 4.0):
        low, high = interval(np.full(5, won), np.full(5, 4), np.full(20, won / 4), graded=False)
        assert high - low > 0.2
    low, high = interval(np.array([3.0]), np.array([4]), np.array([1.0, 1, 1, 0]), graded=False)
    assert 0 < low < 0.75 < high < 1


def test_a_session_has_a_costliest_and_a_best_step() -> None:
    rows = [row for number in range(6) for row in attempt("a", number, float(number % 2))]
    rows += list(attempt("alone", 0, 1.0))
    answers = told(rows, recipe="events")
    named = {each["session"]: each for each in answers["sessions"]}
    assert named["alone/v/0"]["costliest"] is named["alone/v/0"]["best"] is None
    assert "no other attempt" in named["alone/v/0"]["no_credit"]
    for each in answers["sessions"]:
        for step in filter(None, (each["costliest"], each["best"])):
            assert step["why"]
        if each["costliest"] and each["best"]:
            assert each["costliest"]["credit"] < each["best"]["credit"]


def test_why_a_call_is_suspect_is_counted_plainly() -> None:
    rows = [row for number in range(6) for row in attempt("a", number, float(number % 2))]
    rows += [row for number in range(4) for row in attempt("b", number, float(number > 1))]
    table = StepTable.from_dicts(rows)
    why = Reasons(table)
    said, best = (
        {
            (table.trajectory.texts()[row], int(table.step[row])): why.of(at, best=side)
            for at, row in enumerate(why.steps.rows.tolist())
        }
        for side in (False, True)
    )
    # Won attempts at "a" call x=0 and x=1; those that lost call their own number, 0, 2 and 4.
    expected = "3 of 5 other attempts at this task made this call; they won 100 %"
    assert best["a/v/0", 0] == f"{expected}, the 2 without it 0 %"
    assert said["a/v/0", 0].startswith(expected.partition(";")[0])
    assert "100 %" not in said["a/v/0", 0], "that others won with it does not make it costly"
    assert said["a/v/2", 0].startswith("no other attempt at this task made this call; sessions")
    assert "a `call` that no other made won 0 %, else" in said["a/v/2", 0]


def test_certain_differences_come_first_and_hints_are_marked() -> None:
    sure = picture(CONVERSATIONS).answers["separates"]
    assert sure["sure"]
    assert sure["needed"] is None
    certain = [row["certain"] for row in sure["rows"]]
    assert certain == sorted(certain, reverse=True)
    for row in sure["rows"]:
        assert 1 <= len(row["tasks"]) <= row["of_tasks"]
        assert row["low"] <= row["difference"] <= row["high"]
        assert len({task.split("/")[0] for task, _ in row["pair"]}) == 1
    rows = [row for number in range(4) for row in attempt("a", number, float(number % 2))]
    unsure = told(rows)["separates"]
    assert not unsure["sure"]
    assert "attempt" in unsure["needed"]


def test_an_event_that_repeats_a_fork_is_listed_once() -> None:
    rows = [
        {"group": "t", "trajectory": f"{n}", "step": 0, "state": "door", "reward": float(n % 2)}
        | {"action": json.dumps({"name": ("left", "right")[n % 2], "arguments": {}})}
        for n in range(40)
    ]
    page = picture(StepTable.from_dicts(rows))
    kinds = [row["kind"] for row in page.answers["separates"]["rows"]]
    assert {each.kind for each in page.decisions.decisions} == {"fork", "event"}
    assert len(kinds) == len(set(kinds)) == 1


def test_sessions_have_names_of_their_own() -> None:
    assert unique(["a", "b", "a", "a (2)"]) == ["a", "b", "a (2)", "a (2) (2)"]
    assert len({*unique(["x" * 300 + str(n) for n in range(9)])}) == 9
    names = [each["session"] for each in picture(CONVERSATIONS).answers["sessions"]]
    assert len(names) == len({*names}) == 120


OLD = {"kept": [1, 1], "lost": [1, 1], "gained": [0, 0], "apart": [1]}
NEW = {"kept": [1, 1], "lost": [0, 1], "gained": [1, 0], "new": [1]}


def of_version(outcomes: dict[str, list[int]]) -> StepTable:
    return StepTable.from_dicts(
        row | {"state": "start"} if row["step"] == 0 else row
        for task, won in outcomes.items()
        for number, each in enumerate(won)
        for row in attempt(task, number, float(each))
    )


def test_two_versions_are_told_task_by_task() -> None:
    page = picture(of_version(NEW), against=of_version(OLD))
    validate(page.answers)
    changed, happened = page.answers["changed"], page.answers["happened"]
    assert [each["task"] for each in changed["lost"]] == ["lost"]
    assert changed["lost"][0] | {"finding": None} == {
        "task": "lost",
        "old": [2, 2],
        "new": [1, 2],
        "finding": None,
    }
    assert [each["task"] for each in changed["gained"]] == ["gained"]
    assert changed["same"] == 1
    assert changed["missing"] == {"apart": "the new version has no session of it"}
    assert not changed["failed"]
    assert changed["verdict"].startswith("passed: the new version is not certainly worse")
    assert [each["name"] for each in happened["versions"]] == [changed["old"], changed["new"]]
    assert [each["share"] for each in happened["versions"]] == pytest.approx([5 / 7, 5 / 7])
    assert len(page.answers["sessions"]) == 14


def test_a_certain_drop_fails_and_is_explained() -> None:
    tasks = [f"task {n}" for n in range(30)]
    old = of_version({task: [1, 0, 1] for task in tasks})
    new = of_version({task: [0, 0, 1] for task in tasks})
    page = picture(new, against=old)
    validate(page.answers)
    changed = page.answers["changed"]
    assert changed["failed"]
    assert changed["verdict"].startswith("failed: drop > 0 and q <= 0.1: over 30 tasks")
    assert len(changed["lost"]) == 30
    assert changed["whole"]["difference"] == pytest.approx(-1 / 3)
    if changed["explained"]:
        row = page.answers["separates"]["rows"][changed["explained"]["finding"]]
        assert row["kind"] == "event"


def test_the_order_of_rows_never_matters() -> None:
    rows = [row for number in range(8) for row in attempt("a", number, float(number % 2))]
    rows += [row for number in range(8) for row in attempt("b", number, float(number < 3))]
    shuffled = [rows[place] for place in np.random.default_rng(2).permutation(len(rows))]
    assert json.dumps(told(rows)) == json.dumps(told(shuffled))


def test_padding_enters_no_answer() -> None:
    rows = [row | {"padding": False} for n in range(6) for row in attempt("a", n, float(n % 2))]
    padded = [*rows, rows[0] | {"padding": True, "step": 7, "reward": 9.0}]
    assert json.dumps(told(rows)) == json.dumps(told(padded))


def test_a_notebook_shows_the_picture(tmp_path: Path) -> None:
    page = report(CONVERSATIONS, tmp_path / "report.html")
    shown = page._repr_html_()
    svg = ET.fromstring(shown)
    assert (int(svg.attrib["width"]), int(svg.attrib["height"])) == (WIDTH, HEIGHT)
    words = unescape(" ".join(text.text or "" for text in svg.iter() if text.text))
    words = words.replace("\u00a0", " ")
    assert page.answers["happened"]["sentence"][:40] in words
    assert page.answers["separates"]["sentence"] in words


def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra report")
    report(CONVERSATIONS, tmp_path / "report.html", png=tmp_path / "report.png")
    head = (tmp_path / "report.png").read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == (1200, 675)
    with pytest.raises(ValueError, match=r"the suffix \.png"):
        report(CONVERSATIONS, tmp_path / "report.html", png=tmp_path / "report.gif")


def test_a_picture_of_many_versions_stays_inside() -> None:
    rows = [
        row
        for number in range(20)
        for row in attempt(
            "a", number, float(number % 2), f"a version of a very long name {number}"
        )
    ]
    svg = ET.fromstring(card(told(rows)))
    for each in svg.iter():
        if each.tag.endswith("text"):
            assert float(each.attrib["y"]) < HEIGHT
            size = float(each.attrib["font-size"])
            assert float(each.attrib["x"]) + 0.5 * size * len(each.text or "") < WIDTH
    assert not math.isnan(float(svg.attrib["width"]))


def test_equal_shares_by_chance_are_not_certain() -> None:
    """Where every task earned the same, attempts still tell how much that may be chance."""
    low, high = interval(
        np.array([1.0, 1.0]), np.array([2, 2]), np.array([0.2, 0.8] * 2), graded=True
    )
    assert low < 0.5 < high
    rows = [
        row for t in range(3) for v in "ab" for n in (0, 1) for row in attempt(f"t{t}", n, n, v)
    ]
    assert told(rows)["happened"]["sentence"].endswith("All 2 versions have 50 %.")


def test_a_refused_call_was_made() -> None:
    """A call that others made and that was refused there is none that nobody else made."""
    rows = [
        {"group": "t", "trajectory": f"s{n}", "step": step, "reward": float(n == 0 and step == 2)}
        | {"state": "Error: no such room" if n and step == 1 else "", "action": action}
        for n in range(3)
        for step, action in enumerate(
            ['{"name": "book", "arguments": {"room": 1}}', "I see.", "Bye."]
        )
    ]
    said = Reasons(StepTable.from_dicts(rows)).of(0)
    assert said.startswith("2 of 2 other attempts at this task made this call and were refused;")


def test_tasks_of_several_files_have_one_name() -> None:
    """Everywhere on the page, if the files say which groups are one task."""
    tables = [
        StepTable.from_dicts(
            row | {"task": row["group"]}
            for t in range(8)
            for n in range(4)
            for row in attempt(f"t{t}", n, float((n + t + part) % 2))
        )
        for part in range(2)
    ]
    answers = picture(tables).answers
    names = {f"t{t}" for t in range(8)}
    assert {row["task"] for row in answers["happened"]["grid"]["tasks"]} == names
    assert {row["task"] for row in answers["sessions"]} == names
    assert answers["happened"]["tasks"] == 8
    for row in answers["separates"]["rows"]:
        assert {*row["tasks"]} <= names
        assert row["of_tasks"] <= 8


def test_a_task_that_nobody_won_praises_no_step() -> None:
    rows = [row for n in range(4) for row in attempt("never", n, 0.0)]
    rows += [row for t in range(6) for n in range(4) for row in attempt(f"t{t}", n, float(n % 2))]
    never = [each for each in told(rows)["sessions"] if each["task"] == "never"]
    assert [each["best"] for each in never] == [None] * 4
    said = [each["costliest"]["why"] for each in never if each["costliest"]]
    assert all(each.startswith("no attempt at this task won") for each in said)


def test_errors_are_counted_by_call(tmp_path: Path) -> None:
    """That of one of several calls, in any order of the results, and that of a last result."""

    def result(number: int, text: str) -> dict[str, str]:
        return {"role": "tool", "tool_call_id": f"c{number}", "content": text}

    def asks(*names: str) -> dict[str, Any]:
        functions = [{"name": name, "arguments": "{}"} for name in names]
        calls = [{"id": f"c{at}", "function": each} for at, each in enumerate(functions)]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    asked = [{"role": "user", "content": "Fly me."}, asks("book", "pay")]
    told_ = [result(1, "paid"), result(0, "Error: no such flight"), asks("look", "pay")]
    ends = [[result(1, "paid"), result(0, "Error: none")], [result(0, "found"), result(1, "paid")]]
    lines = [
        json.dumps({"messages": asked + told_ + end, "reward": float(n), "task": "t"})
        for n, end in enumerate(ends)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    made = picture(tmp_path / "log.jsonl")
    assert [each["errors"] for each in made.answers["sessions"]] == [2, 1]
    tools = {each["tool"]: (each["errors"], each["calls"]) for each in made.browser["tools"]}
    assert tools == {"book": (2, 2), "pay": (0, 4), "look": (1, 2)}


def test_the_headline_says_what_crashed(tmp_path: Path) -> None:
    asked, answered = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}
    lines = [
        {"task_id": task, "trial": n, "reward": float(n == 1), "info": {"error": "x"} if n else {}}
        | {"traj": [asked] if n == 2 else [asked, answered]}
        for task in range(3)
        for n in range(3)
    ]
    (tmp_path / "log.json").write_text(json.dumps(lines))
    happened = picture(tmp_path / "log.json").answers["happened"]
    assert happened["balance"][0]["crashed"] == 6
    assert happened["sentence"].endswith(
        "3 of them crashed without a response and count as lost; the other 6 won 50 %."
    )
    (tmp_path / "log.json").write_text(json.dumps([each for each in lines if each["trial"] < 2]))
    said = picture(tmp_path / "log.json").answers["happened"]["sentence"]
    assert said.endswith("3 of them crashed, and count with their rewards.")
