"""A file of pivots sets no paths and no addresses, and cannot exhaust the memory."""

import json
import socket
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.envs import ENVIRONMENTS, make
from ascribe_lab.envs.registry import check_file_options
from ascribe_lab.json_journal import JournalError
from ascribe_lab.pivots import make_verifier, read_turns, score, write_turns
from ascribe_lab.pivots.candidates import KINDS
from ascribe_lab.pivots.profile import ProfileResponse, read_responses
from lab.tests.pivots.made import a_turn
from tests.attack.test_bad_values import run


def pivots(path: Path, verifier: Any) -> Path:
    write_turns(path, [a_turn("go")], KINDS[1], {"verifier": verifier})
    return path


@pytest.mark.parametrize("name", ["effect", "progress"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pivots_file_cannot_call_a_server(tmp_path: Path, name: str, wrapped: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve"
        spec: Any = {name: {"environment": "search_qa", "options": {"retriever": url}}}
        if wrapped:
            spec = {"any": ["exact", {"all": [spec]}]}
        with pytest.raises(ValueError, match="may set these options of search_qa"):
            make("pivots", file=pivots(tmp_path / "p.jsonl", spec))
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ("search_qa", "file"),
        ("search_qa", "corpus"),
        ("search_qa", "timeout"),
        ("webshop", "folder"),
        ("alfworld", "games"),
        ("alfworld", "cache"),
        ("alfworld", "count"),
        ("maths", "file"),
        ("pivots", "file"),
        ("team", "environment"),
        ("team", "options"),
        ("sokoban", "retriever"),
        ("sokoban", "boxes"),
    ],
)
def test_a_pivots_file_sets_no_paths(tmp_path: Path, environment: str, option: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"id": 1, "contents": "x"}\n')
    spec = {"effect": {"environment": environment, "options": {option: str(secret)}}}
    with pytest.raises(ValueError, match=f"may set these options of {environment}"):
        make("pivots", file=pivots(tmp_path / "p.jsonl", spec))


def test_no_environment_declares_an_option_that_holds_a_path_or_an_address() -> None:
    places = {"file", "corpus", "folder", "cache", "games", "retriever", "environment", "options"}
    for name in ENVIRONMENTS:
        for option in places:
            with pytest.raises(ValueError, match=r"may set these options|runs the commands"):
                check_file_options(name, {option: "x"})


def test_an_environment_of_others_is_refused_whatever_it_declares() -> None:
    for name in ("lab.tests.envs.toys:Toy", "openenv", "gymnasium", None, ["sokoban"]):
        with pytest.raises(ValueError, match="not Ascribe's own"):
            check_file_options(name, {})


def test_a_file_may_set_what_the_environment_declares(tmp_path: Path) -> None:
    options = {"horizon": 9}
    spec = {"effect": {"environment": "sokoban", "options": options}}
    assert make("pivots", file=pivots(tmp_path / "p.jsonl", spec)).tasks == 1


def test_a_response_with_a_huge_number_is_no_reason_to_count_so_far() -> None:
    turn = a_turn("go")
    number = 10**12
    response = ProfileResponse(turn.id, number, 0, "m", "s", "go", "stop", 1, 1)
    began = time.monotonic()
    (scored,) = score([turn], [response], make_verifier("exact"))
    assert scored.unusable == "not_profiled"
    assert time.monotonic() - began < 1


def test_copies_take_no_memory_and_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    turns = [replace(a_turn(text), copies=1_000_000) for text in ("go", "stay")]
    write_turns(path, turns)
    environment = make("pivots", file=path, verifier="exact")
    assert environment.tasks == 2_000_002
    first, last = (
        environment.reset(options={"task": task})[1]["state"] for task in (1_000_000, 1_000_001)
    )
    assert (first, last) == (turns[0].id, turns[1].id)
    write_turns(path, [replace(turns[0], copies=10**12)])
    with pytest.raises(ValueError, match=r"line 2 .*copies: "):
        read_turns(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("copies", "7"),
        ("copies", True),
        ("copies", -1),
        ("origin", {"file": "f", "trace": "t", "turn": "x", "turns": 1}),
        ("origin", {"file": 3, "trace": "t", "turn": 0, "turns": 1}),
        ("scene", {"seed": "x", "task": None, "actions": [], "state": "s"}),
        ("scene", {"seed": 0, "task": None, "actions": [7], "state": "s"}),
    ],
)
def test_values_of_a_wrong_type_are_refused_with_their_line(
    tmp_path: Path, field: str, value: Any
) -> None:
    path = tmp_path / "p.jsonl"
    write_turns(path, [a_turn("go")])
    head, row, end = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(row), field: value})}\n{end}\n")
    with pytest.raises(ValueError, match=r"line 2 of p\.jsonl"):
        read_turns(path)


RECORD = {"candidate": "a", "k": 0, "seed": 1, "model": "m", "sampling": "s", "text": "t"}


RECORD |= {"finish": "stop", "prompt_tokens": 1, "response_tokens": 1}


def test_journal(tmp_path: Path) -> None:
    traces, turns = tmp_path / "traces.jsonl", tmp_path / "turns.jsonl"
    message = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]
    traces.write_text(json.dumps({"messages": message}) + "\n")
    assert run("pivots", "extract", traces, "--out", turns)[0] == 0
    journal = tmp_path / "answers.jsonl"
    for key, value in product(RECORD, [None, [], {}, True, 0.5]):
        journal.write_text(json.dumps(RECORD | {key: value}) + "\n")
        with pytest.raises(JournalError, match="holds something else than responses"):
            list(read_responses(journal))
    journal.write_text(json.dumps(RECORD | {"candidate": []}) + "\n")
    code, output = run("pivots", "report", turns, "--verifier", "exact", "--answers", journal)
    assert code == 1
    assert "holds something else than responses" in output
