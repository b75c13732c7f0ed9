"""The commands: extract, profile, select, report."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app
from ascribe_lab.pivots import read_turns
from lab.tests.pivots.chat_server import ChatServer, Reply, chat_server
from lab.tests.pivots.made import CHAT, SHAREGPT, call, lines
from lab.tests.test_cli_train import one_line


def run(*words: object, columns: int = 200) -> Result:
    return CliRunner().invoke(app, ["pivots", *map(str, words)], env={"COLUMNS": str(columns)})


def as_json(*words: object) -> Any:
    found = run(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def mixed(body: dict[str, Any]) -> str:
    """Right now and then; in other words where it is right."""
    if body["seed"] % 3:
        return "I do not know."
    if "<tool_response>" in body["messages"][-1]["content"]:
        return "in portugal."
    return "Let me see.\n" + call("search", count=2, query="Lisbon")


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    traces = lines(tmp_path / "traces.jsonl", CHAT, CHAT)
    said = as_json("extract", traces, "--out", tmp_path / "c.jsonl")
    assert (said["traces"], said["turns"], said["candidates"]) == (2, 4, 2)
    return tmp_path / "c.jsonl"


def profiled(candidates: Path, server: ChatServer, *more: object) -> Any:
    return as_json("profile", candidates, "--model", server.url, "-k", 16, *more)


VERIFIER = '{"first": ["tool_call", "normalised"]}'


def test_the_whole_path(candidates: Path, tmp_path: Path) -> None:
    with chat_server(mixed) as server:
        done = profiled(candidates, server, "--batch", 10)
        assert (done["wanted"], done["asked"], done["complete"]) == (32, 32, True)
        assert profiled(candidates, server)["asked"] == 0
        assert len(server.asked) == 32
    out = tmp_path / "p.jsonl"
    said = as_json("select", candidates, "--verifier", VERIFIER, "--out", out)
    assert said["kept"] == 2
    pivots = read_turns(out)
    assert pivots.kind == "pivots"
    assert pivots.facts["verifier"] == json.loads(VERIFIER)
    assert pivots.facts["k"] == 16
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()[1:-1]]
    assert len(rows) == 2
    assert all(0 < row["profile"]["mean"] < 0.6 for row in rows)
    numbers = as_json("report", candidates, "--verifier", VERIFIER)
    assert numbers["miss_rate"]["value"] == 1.0
    assert numbers["kept"] == 2
    assert sum(count for _, count in numbers["histogram"]) == 2


def test_for_people(candidates: Path, tmp_path: Path) -> None:
    with chat_server(mixed) as server:
        first = run("profile", candidates, "--model", server.url, "-k", 16)
        assert first.exit_code == 0
        assert "32 responses requested" in first.stdout
    found = run("report", candidates, "--verifier", VERIFIER)
    assert found.exit_code == 0
    for words in ("without signal", "missed by the strict", "turns by mean reward", "demonstrated"):
        assert words in found.stdout
    chosen = run("select", candidates, "--verifier", VERIFIER, "--out", tmp_path / "p.jsonl")
    assert "kept" in chosen.stdout
    told = run("extract", lines(tmp_path / "s.jsonl", SHAREGPT), "--out", tmp_path / "d.jsonl")
    assert "1 trace, 2 turns, 0 of them copies: 2 candidates." in told.stdout


def test_a_limit_is_kept_and_the_rest_is_asked_for_later(candidates: Path) -> None:
    with chat_server(mixed) as server:
        done = profiled(candidates, server, "--limit", 5)
        assert (done["asked"], done["complete"]) == (5, False)
        assert profiled(candidates, server)["before"] == 5


def test_no_pivots_is_exit_code_one(candidates: Path, tmp_path: Path) -> None:
    with chat_server(lambda _: "never") as server:
        profiled(candidates, server)
    out = tmp_path / "p.jsonl"
    found = run("select", candidates, "--verifier", "exact", "--out", out)
    assert found.exit_code == 1
    assert "no turn is a pivot" in found.stderr
    assert not out.exists()


def test_answers_of_several_models_need_a_label(candidates: Path) -> None:
    with chat_server(mixed) as server:
        profiled(candidates, server, "--label", "one")
        profiled(candidates, server, "--label", "two", "--max-tokens", 7)
    found = run("report", candidates, "--verifier", "exact")
    assert found.exit_code == 2
    assert "2 models or samplings" in found.stderr
    assert as_json("report", candidates, "--verifier", "exact", "--label", "two")["profiled"] == 2


@pytest.mark.parametrize("columns", [40, 200])
def test_the_advice_to_a_journal_of_several_samplings_works_as_it_is_written(
    candidates: Path, columns: int
) -> None:
    report = ["report", candidates, "--verifier", "exact"]
    with chat_server(mixed) as server:
        for temperature in (1.0, 0.7):
            profiled(candidates, server, "--temperature", temperature)
        url = server.url
    for more in ([], ["--label", url], ["--label", "nobody"]):
        found = run(*report, *more, columns=columns)
        assert found.exit_code == 2
        advice = re.findall(r"^ *(--label .*)$", found.stderr, re.MULTILINE)
        assert len(advice) == 2
        read = [as_json(*report, *shlex.split(line)) for line in advice]
        sampled = [json.loads(one["sampling"])["temperature"] for one in read]
        assert sorted(sampled) == [0.7, 1.0]
        assert {one["model"] for one in read} == {url}
    assert "has no responses of 'nobody'" in re.sub(r"\s+", " ", found.stderr)
    alone = read[0]["sampling"]
    assert as_json(*report, "--label", alone)["sampling"] == alone


def test_a_journal_without_answers_says_what_to_do(candidates: Path) -> None:
    candidates.with_name("c.answers.jsonl").touch()
    found = run("report", candidates, "--verifier", "exact")
    assert found.exit_code == 2
    assert "is empty hint: sample some with ascribe pivots profile" in one_line(found.stderr)


def test_turns_that_the_server_refuses_are_counted_with_its_words(
    candidates: Path, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> str | Reply:
        if "<tool_response>" in body["messages"][-1]["content"]:
            return Reply("too long\x1b[2J for us", 400)
        return mixed(body)

    with chat_server(answer) as server:
        done = profiled(candidates, server)
        assert (done["complete"], done["refused"]) == (True, 16)
        assert "too long" in done["refusal"]
        other = ["--answers", tmp_path / "b.jsonl"]
        told = run("profile", candidates, "--model", server.url, "-k", 16, *other)
    assert "The server refused 16 requests, which will not be sent again" in told.stdout
    options = ["--verifier", VERIFIER]
    numbers = as_json("report", candidates, *options)
    assert (numbers["candidates"], numbers["copies"], numbers["profiled"]) == (2, 2, 1)
    assert numbers["left_out"] == {"refused": 1}
    assert "too long" in numbers["refusal"]
    shown = run("report", candidates, *options)
    assert "1 refused" in shown.stdout
    assert "answered 400" in shown.stdout
    assert "\x1b" not in shown.stdout + told.stdout
    out = tmp_path / "p.jsonl"
    said = as_json("select", candidates, *options, "--out", out)
    assert (said["kept"], said["left_out"]) == (1, {"refused": 1})
    assert len(read_turns(out).candidates) == 1
    people = run("select", candidates, *options, "--out", out)
    assert re.search(r"refused +│ 1 ", people.stdout)


def test_a_server_that_refuses_everything_is_exit_code_one(candidates: Path) -> None:
    with chat_server(lambda _: Reply("no such model", 400)) as server:
        found = run("profile", candidates, "--model", server.url)
    assert found.exit_code == 1
    assert "refuses everything" in one_line(found.stderr)
    assert "no such model" in one_line(found.stderr)


def test_broken_traces_are_refused_with_every_reason(tmp_path: Path) -> None:
    bad = lines(tmp_path / "t.jsonl", CHAT, "{", {"messages": [{"role": "\x1b[31moracle"}]})
    found = run("extract", bad, "--out", tmp_path / "c.jsonl")
    assert found.exit_code == 1
    assert "line 2" in one_line(found.stderr)
    assert "its role is" in one_line(found.stderr)
    assert "\x1b" not in found.stderr
    assert not (tmp_path / "c.jsonl").exists()
    refused = run("extract", bad, "--out", tmp_path / "c.jsonl", "--json")
    assert [p["rows"] for p in json.loads(refused.stdout)["problems"]] == [[1], [2]]
    skipped = as_json("extract", bad, "--out", tmp_path / "c.jsonl", "--skip-bad")
    assert skipped["candidates"] == 2
    assert len(skipped["problems"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["extract", "nowhere.jsonl", "--out", "c.jsonl"], "No such file"),
        (["profile", "nowhere.jsonl", "--model", "m"], "nowhere.jsonl"),
        (["report", "nowhere.jsonl", "--verifier", "exactly"], "no verifier 'exactly'"),
        (["report", "nowhere.jsonl", "--verifier", '{"any"'], "not JSON"),
    ],
)
def test_wrong_calls_say_what_is_wrong(words: list[str], said: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert said in re.sub(r"\s+", " ", found.stderr)


def test_select_before_profile_is_a_wrong_call(candidates: Path, tmp_path: Path) -> None:
    found = run("select", candidates, "--verifier", "exact", "--out", tmp_path / "p.jsonl")
    assert found.exit_code == 2
    assert "sample responses with ascribe pivots profile" in one_line(found.stderr)


def test_a_model_that_is_not_there_is_exit_code_one(candidates: Path) -> None:
    found = run("profile", candidates, "--model", "nowhere")
    assert found.exit_code == 1
    assert "there is no policy 'nowhere'" in found.stderr
    assert "the same command continues" in found.stderr


def test_a_threshold_that_cannot_be_is_a_wrong_call(candidates: Path) -> None:
    with chat_server(mixed) as server:
        profiled(candidates, server)
    assert run("report", candidates, "--verifier", "exact", "--threshold", 3).exit_code == 2


def test_hostile_answers_do_not_reach_the_terminal(candidates: Path) -> None:
    def hostile(body: dict[str, Any]) -> str:
        return "\x1b[2J[red]gone[/red]" if body["seed"] % 2 else mixed({**body, "seed": 3})

    with chat_server(hostile) as server:
        profiled(candidates, server)
    found = run("report", candidates, "--verifier", VERIFIER)
    assert found.exit_code == 0
    assert "\x1b[2J" not in found.stdout
    assert "[red]gone[/red]" in found.stdout
