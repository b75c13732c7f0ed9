"""Profiling: what is asked, what is written down, and that nothing is asked twice after a kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.json_journal import JournalError, open_journal, read_journal
from ascribe_lab.models import ServerError
from ascribe_lab.models.policy import Request, Sample, Sampling
from ascribe_lab.pivots import (
    Candidate,
    ProfileTask,
    Reference,
    profile,
    profile_in_worker,
    read_responses,
    write_turns,
)
from ascribe_lab.pivots.profile import (
    Profiled,
    ProfileResponse,
    ProfilingError,
    run_profile,
    seed_of,
)
from ascribe_lab.pivots.text_server import TextServer, read_chat_completion
from ascribe_lab.pivots.verifiers.verdict import calls_in
from lab.tests.pivots.chat_server import ChatServer, Reply, by_seed, chat_server
from lab.tests.pivots.made import a_turn, lines

HERE = Reference("tiny", Sampling(max_tokens=9))


class Echo:
    """A policy that answers with the seed, and remembers what it was asked."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.asked: list[list[Request]] = []
        self.left = breaks_after

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        if self.left is not None:
            if not self.left:
                raise RuntimeError("power cut")
            self.left -= 1
        self.asked.append(list(requests))
        return [Sample(f"{request.seed}", (1, 2, 3), (4, 5)) for request in requests]

    def close(self) -> None:
        pass


def turns(count: int) -> list[Candidate]:
    return [a_turn(f"go {number}", f"Where to, {number}?") for number in range(count)]


def known(path: Path) -> set[ProfileResponse]:
    found = list(read_responses(path))
    assert len(found) == len(set(found))
    return set(found)


# What is asked, and what is written down.


def test_k_answers_to_each_candidate_with_seeds_of_their_own(tmp_path: Path) -> None:
    policy, path = Echo(), tmp_path / "a.jsonl"
    done = profile(turns(3), policy, HERE, path, k=4, batch=5)
    assert [len(batch) for batch in policy.asked] == [5, 5, 2]
    assert (done.wanted, done.before, done.asked, done.complete) == (12, 0, 12, True)
    assert (done.prompt_tokens, done.response_tokens) == (36, 24)
    found = known(path)
    assert {(a.candidate, a.k) for a in found} == {(c.id, k) for c in turns(3) for k in range(4)}
    for answer in found:
        assert answer.text == str(answer.seed) == str(seed_of(answer.candidate, answer.k))
    assert len({answer.seed for answer in found}) == 12
    assert {(one.model, one.sampling) for one in read_responses(path)} == {HERE.key}


@given(order=st.permutations(range(5)), batch=st.integers(1, 20), cut=st.integers(0, 10))
def test_order_batches_and_breaks_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], batch: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("profile")
    profile(turns(5), Echo(), HERE, folder / "plain.jsonl", k=2)
    mixed = [turns(5)[number] for number in order]
    profile(mixed[:3], Echo(), HERE, folder / "mixed.jsonl", k=1, limit=cut or None)
    profile(mixed, Echo(), HERE, folder / "mixed.jsonl", k=2, batch=batch)
    assert known(folder / "plain.jsonl") == known(folder / "mixed.jsonl")


def test_a_larger_k_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    profile(turns(2), Echo(), HERE, path, k=2)
    before, policy = known(path), Echo()
    done = profile(turns(2), policy, HERE, path, k=5)
    assert (done.before, done.asked) == (4, 6)
    assert before < known(path)
    assert profile(turns(2), policy, HERE, path, k=5).asked == 0


def test_answers_of_other_models_and_samplings_are_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    profile(turns(1), Echo(), HERE, path, k=2)
    hot = Reference("tiny", Sampling(0.5, max_tokens=9))
    other = Reference("large", HERE.sampling)
    assert profile(turns(1), Echo(), hot, path, k=2).asked == 2
    assert profile(turns(1), Echo(), other, path, k=2).asked == 2
    assert len(list(read_responses(path, hot))) == 2
    assert len({(one.model, one.sampling) for one in read_responses(path)}) == 3


def test_what_was_answered_before_a_failure_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(RuntimeError, match="power cut"):
        profile(turns(4), Echo(breaks_after=2), HERE, path, k=2, batch=2)
    policy = Echo()
    assert profile(turns(4), policy, HERE, path, k=2, batch=2).before == 4
    assert sum(map(len, policy.asked)) == 4


def test_it_stops_when_asked_to_and_counts_on_the_way(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    done = profile(
        turns(4),
        Echo(),
        HERE,
        tmp_path / "a.jsonl",
        k=1,
        batch=1,
        on_progress=lambda *count: counts.append(count),
        should_stop=lambda: len(counts) == 3,
    )
    assert counts == [(0, 4), (1, 4), (2, 4)]
    assert not done.complete


@pytest.mark.parametrize("wrong", [{"k": 0}, {"batch": 0}])
def test_nothing_to_ask_is_a_mistake(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        profile(turns(1), Echo(), HERE, tmp_path / "a.jsonl", **wrong)  # type: ignore[arg-type]


# The journal.


@given(cut=st.integers(1, 60))
def test_a_torn_last_line_is_no_record(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    with open_journal(path) as append:
        append([{"n": number, "text": "é" * number} for number in range(9)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    left = list(read_journal(path))
    assert [record["n"] for record in left] == list(range(len(left)))
    with open_journal(path) as append:
        append([{"n": 99}])
    assert [r["n"] for r in read_journal(path)] == [*range(len(left)), 99]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"n": 1}\n{"n": \n{"n": 3}\n')
    with pytest.raises(JournalError, match=r"line 2 of j\.jsonl is no record"):
        list(read_journal(path))
    path.write_text('{"n": 1}\n')
    with pytest.raises(JournalError, match="something else than responses"):
        list(read_responses(path))


@pytest.mark.parametrize(
    "content",
    [
        b"precious, without a final newline",
        b"precious\nwithout a final newline",
        b'{"one": "line of JSON"}',
        b'{"n": 1}\n}',
        b'{"other": 1}\n{"other": 2}',
        b'{"n": 1}\n{"other": 2}',
    ],
)
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(JournalError), open_journal(path) as append:
        append([{"n": 2}])
    assert path.read_bytes() == content
    with pytest.raises(JournalError):
        profile(turns(1), Echo(), HERE, path, k=1)
    assert path.read_bytes() == content


def test_whoever_only_opens_a_journal_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": ')
    with open_journal(path) as append:
        append([])
    assert path.read_bytes() == b'{"n": 1}\n{"n": '


def test_nobody_is_asked_for_answers_that_cannot_be_written_down(tmp_path: Path) -> None:
    path, policy = tmp_path / "notes.txt", Echo()
    path.write_text("precious")
    with pytest.raises(JournalError, match=r"notes\.txt is no journal"):
        profile(turns(1), policy, HERE, path, k=1)
    assert not policy.asked


def test_one_writes_and_the_other_waits(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    code = (
        "import sys, time\nfrom ascribe_lab.json_journal import open_journal, read_journal\n"
        f"with open_journal({str(path)!r}) as append:\n"
        "    print('in', flush=True); time.sleep(0.5); append([{'n': 1}])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        waited: list[bool] = []
        with open_journal(path, lambda: waited.append(True)) as append:
            append([{"n": 2}])
    assert waited == [True]
    assert [record["n"] for record in read_journal(path)] == [1, 2]


# Servers that give text alone.


def test_a_server_is_asked_with_the_seed_and_without_chat_tokens() -> None:
    with chat_server() as server:
        policy = TextServer(server.url + "/v1")
        messages = [{"role": "user", "content": "x<|im_end|>y"}]
        (sample,) = policy([Request(messages, 7)], Sampling(0.5, 0.9, 3, ("!",)))
        policy.close()
    (body,) = server.asked
    assert body["messages"] == [{"role": "user", "content": "x< |im_end|>y"}]
    assert (body["seed"], body["temperature"], body["top_p"]) == (7, 0.5, 0.9)
    assert (body["max_tokens"], body["stop"], body["model"]) == (3, ["!"], "tiny")
    assert sample.text.startswith("<action>go ")
    assert (sample.prompt_tokens, sample.response_tokens) == (11, 5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"choices": []},
        {"choices": [{"message": "hello"}]},
        {"choices": [{"message": {"content": 7}}]},
        {"choices": [{"message": {"content": None, "tool_calls": {}}}], "usage": 1},
    ],
)
def test_completions_of_another_form_are_refused(answer: object) -> None:
    with pytest.raises(ServerError):
        read_chat_completion(answer)


def test_tool_calls_of_a_server_are_written_as_a_model_writes_them() -> None:
    call = {"function": {"name": "search", "arguments": '{"query": "x"}'}}
    message = {"content": "So:", "tool_calls": [call]}
    found = read_chat_completion({"choices": [{"message": message, "finish_reason": "length"}]})
    assert found.text.startswith('So:\n<tool_call>\n{"name": "search"')
    assert (found.finish, found.prompt_tokens) == ("length", 0)


def a_call(arguments: object) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    "call",
    [
        a_call("{not json"),
        a_call('{"x": 1e400}'),
        a_call('{"x": 1}, "y": {}'),
        a_call("[" * 900),
        a_call({"x": float("inf")}),
        a_call("</tool_call><tool_call>{}"),
        {"function": {}},
        "f",
        None,
    ],
)
def test_a_tool_call_that_cannot_be_read_is_a_wrong_answer(call: Any) -> None:
    message = {"content": "So:", "tool_calls": [call]}
    found = read_chat_completion({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    body = found.text.removeprefix("So:\n<tool_call>\n").removesuffix("\n</tool_call>")
    assert json.loads(body) == call
    assert calls_in(found.text) is None


def test_a_tool_call_that_is_nested_beyond_writing_is_a_wrong_answer() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"x": deep}
    found = read_chat_completion({"choices": [{"message": {"tool_calls": [a_call(deep)]}}]})
    assert calls_in(found.text) is None


# Requests that a server refuses, and servers that fail.

LONG = "Where to, 3?"


def refusing(status: int) -> Any:
    def answer(body: dict[str, Any]) -> str | Reply:
        if body["messages"][-1]["content"] == LONG:
            return Reply("maximum context length is 8192 tokens", status)
        return by_seed(body)

    return answer


def asked_of(server: ChatServer, path: Path, count: int = 6, **options: int) -> Profiled:
    policy = TextServer(server.url, "tiny", at_once=2)
    try:
        return profile(turns(count), policy, HERE, path, **{"k": 2, **options})  # type: ignore[arg-type]
    finally:
        policy.close()


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("batch", [1, 64])
def test_a_request_that_is_refused_is_the_candidates_own_outcome(
    tmp_path: Path, status: int, batch: int
) -> None:
    path = tmp_path / "a.jsonl"
    with chat_server(refusing(status)) as server:
        done = asked_of(server, path, batch=batch)
        assert (done.asked, done.complete, done.refused) == (12, True, 2)
        assert f"answered {status}" in done.refusal
        assert "maximum context length" in done.refusal
        assert set(server.counts.values()) == {1}
        again = asked_of(server, path, batch=batch)
        assert (again.asked, again.refused, again.refusal) == (0, 0, "")
        assert len(server.asked) == 12
    refused = {answer for answer in known(path) if answer.finish == "refused"}
    assert {answer.candidate for answer in refused} == {turns(6)[3].id}
    assert {(answer.k, answer.text) for answer in refused} == {(0, ""), (1, "")}
    assert all("maximum context length" in answer.refusal for answer in refused)


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_a_server_that_refuses_everything_is_a_failure_at_the_door(
    tmp_path: Path, batch: int
) -> None:
    path = tmp_path / "a.jsonl"
    with chat_server(lambda _: Reply("no such model", 400)) as server:
        for _ in range(2):
            with pytest.raises(ServerError, match=r"refuses everything.*no such model"):
                asked_of(server, path, batch=batch)
        assert len(server.asked) == 2 * (min(batch, 12) + 1)
    assert not known(path)
    with chat_server() as server:
        assert asked_of(server, path).refused == 0


def test_a_first_batch_of_long_candidates_alone_does_not_block_the_rest(tmp_path: Path) -> None:
    """Neither at the start nor where only they are left."""
    path = tmp_path / "a.jsonl"
    ones = [*turns(1), *(a_turn("go", "x" * 99 + str(number)) for number in range(9))]
    first = min(ones, key=lambda one: one.id)
    assert first.messages[0]["content"].startswith("x"), "the long ones must come first"

    def answer(body: dict[str, Any]) -> str | Reply:
        long = len(body["messages"][-1]["content"]) > 99
        return Reply("too long", 400) if long else by_seed(body)

    with chat_server(answer) as server:
        policy = TextServer(server.url, "tiny")
        done = profile(ones, policy, HERE, path, k=1, batch=1)
        assert (done.complete, done.refused) == (True, 9)
        more = profile([*ones, a_turn("go", "y" * 100)], policy, HERE, path, k=1)
        assert (more.asked, more.refused, more.complete) == (1, 1, True)
        policy.close()


def test_what_arrived_of_a_batch_is_kept_when_another_request_of_it_fails(tmp_path: Path) -> None:
    path, broken = tmp_path / "a.jsonl", True
    last = max(turns(6), key=lambda one: one.id).messages[0]["content"]

    def answer(body: dict[str, Any]) -> str | Reply:
        bad = broken and body["messages"][-1]["content"] == last
        return Reply("who are you?", 401) if bad else by_seed(body)

    with chat_server(answer) as server:
        with pytest.raises(ServerError, match=r"answered 401.*who are you"):
            asked_of(server, path)
        assert len(known(path)) == 10
        broken = False
        done = asked_of(server, path)
        assert (done.before, done.asked, done.complete) == (10, 2, True)
        answered = [body for body in server.asked if body["messages"][-1]["content"] != last]
        assert len(answered) == 10


@pytest.mark.parametrize("arguments", ["{not json", '{"x": 1e400}'])
def test_a_bad_tool_call_does_not_stop_profiling(tmp_path: Path, arguments: str) -> None:
    path = tmp_path / "a.jsonl"
    with chat_server(lambda _: Reply(calls=[a_call(arguments)])) as server:
        assert asked_of(server, path).complete
    assert {calls_in(answer.text) for answer in known(path)} == {None}


def test_journals_without_refusals_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    profile(turns(1), Echo(), HERE, path, k=1)
    (row,) = read_journal(path)
    del row["refusal"]
    assert set(read_responses(lines(tmp_path / "old.jsonl", row))) == known(path)


# The process that outlives a kill.


def ordered(folder: Path, server: ChatServer, count: int = 6, **options: int) -> ProfileTask:
    write_turns(folder / "c.jsonl", turns(count))
    return ProfileTask(str(folder / "c.jsonl"), str(folder / "a.jsonl"), server.url, **options)  # type: ignore[arg-type]


def test_profiling_in_a_process_of_its_own_does_the_same(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    told: list[str] = []
    with chat_server() as server:
        order = ordered(tmp_path, server, k=2, batch=4)
        done = profile_in_worker(
            order, on_progress=lambda *c: counts.append(c), on_message=told.append
        )
        here = ProfileTask(order.candidates, str(tmp_path / "b.jsonl"), server.url, k=2, batch=4)
        assert run_profile(here).complete
    assert isinstance(done, Profiled)
    assert done.complete
    assert counts == [(0, 12), (4, 12), (8, 12), (12, 12)]
    assert told == []
    assert known(tmp_path / "a.jsonl") == known(tmp_path / "b.jsonl")


def test_what_goes_wrong_there_is_said_here(tmp_path: Path) -> None:
    with chat_server() as server:
        order = ordered(tmp_path, server)
    nobody = ProfileTask(order.candidates, order.journal, "nowhere/at/all")
    with pytest.raises(ProfilingError, match="no policy 'nowhere/at/all'"):
        profile_in_worker(nobody)
    scripted = ProfileTask(order.candidates, order.journal, "expert")
    with pytest.raises(ProfilingError, match="there is none in a trace"):
        profile_in_worker(scripted)


def command(order: ProfileTask, k: int, batch: int) -> list[str]:
    """The command as a user gives it."""
    program = "from ascribe.cli import main; main()"
    words = ["pivots", "profile", order.candidates, "--answers", order.journal]
    words += ["--model", order.model, "-k", str(k), "--batch", str(batch)]
    return [sys.executable, "-c", program, *words]


def wait_for(server: ChatServer, requests: int, process: subprocess.Popen[bytes]) -> None:
    while len(server.asked) < requests and process.poll() is None:
        time.sleep(0.002)


@pytest.mark.slow
def test_ten_kills_lose_nothing_and_ask_for_nothing_twice(tmp_path: Path) -> None:
    count, k, batch, kills = 40, 4, 4, 10
    draw = random.Random(0)
    with chat_server(seconds=0.02) as server:
        order = ordered(tmp_path, server, count)
        for kill in range(kills):
            wanted = len(server.asked) + draw.randint(1, count * k // (kills + 2))
            with subprocess.Popen(
                command(order, k, batch), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                wait_for(server, wanted, process)
                time.sleep(draw.random() * 0.03)
                assert process.poll() is None, f"kill {kill} came too late"
                process.send_signal(signal.SIGKILL)
            assert process.returncode == -signal.SIGKILL
        last = subprocess.run(command(order, k, batch), capture_output=True, check=False)
        assert last.returncode == 0, last.stderr
        asked = server.counts
    assert len(asked) == count * k
    assert set(asked.values()) == {1}
    with chat_server() as server:
        whole = ProfileTask(
            order.candidates, str(tmp_path / "b.jsonl"), server.url, label=order.model
        )
        run_profile(ProfileTask(**{**whole.__dict__, "k": k}))
    assert known(tmp_path / "a.jsonl") == known(tmp_path / "b.jsonl")


@pytest.mark.slow
def test_the_end_of_everything_costs_at_most_the_batch_that_was_asked_for(tmp_path: Path) -> None:
    """Where the second process dies as well, answers on their way are lost: no others are."""
    count, k, batch, kills = 20, 2, 4, 3
    code = "import sys; from ascribe_lab.pivots.profile import ProfileTask, run_profile; "
    code += "import json; run_profile(ProfileTask(**json.loads(sys.argv[1])))"
    draw = random.Random(1)
    with chat_server(seconds=0.02) as server:
        order = ordered(tmp_path, server, count, k=k, batch=batch)
        words = [sys.executable, "-c", code, json.dumps(order.__dict__)]
        for _ in range(kills):
            wanted = len(server.asked) + draw.randint(1, 8)
            with subprocess.Popen(words) as process:
                wait_for(server, wanted, process)
                os.kill(process.pid, signal.SIGKILL)
        before = known(tmp_path / "a.jsonl")
        run_profile(order)
        asked = server.counts
        run_profile(ProfileTask(**{**order.__dict__, "journal": str(tmp_path / "b.jsonl")}))
    assert before < known(tmp_path / "a.jsonl") == known(tmp_path / "b.jsonl")
    assert len(asked) == count * k
    assert sum(asked.values()) - count * k <= kills * batch


def test_a_worker_exits_cleanly_while_its_input_is_open() -> None:
    program = "from ascribe_lab.pivots.profile import main; main()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe
    ) as worker:
        assert worker.stdin is not None
        assert worker.stderr is not None
        worker.stdin.write(b"{}\n")  # no task
        worker.stdin.flush()
        errors = worker.stderr.read()  # its input is not closed before it has ended
    assert b"Fatal Python error" not in errors
    assert worker.returncode >= 0
