"""Nothing is lost or counted twice on the way in, and what is left out is said."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import TableError
from ascribe.sessions.formats import Imported, import_files, import_parts
from ascribe.steps.balance import THINGS, Balance
from ascribe.steps.check import arrange, no_response
from tests.sessions.test_cli_import import run
from tests.sessions.test_formats import chat as plain_chat
from tests.sessions.test_formats import lines
from tests.test_cli import flat

pytestmark = pytest.mark.unit

ASK = {"role": "user", "content": "q"}


def chat(answer: str = "8", question: str = "", **more: Any) -> dict[str, Any]:
    """A record of a chat, with another question if it is given."""
    made = plain_chat(answer, **more)
    if question:
        made["messages"][0]["content"] = question
    return made


def returns(imported: Imported) -> dict[str, float]:
    """The return of each session, by its name."""
    steps = arrange(imported.table)
    names = imported.table.trajectory.take(steps.rows[steps.starts]).texts()
    return dict(zip(map(str, names), np.bincount(steps.trajectory, steps.reward), strict=True))


def holds(balance: Balance) -> None:
    """What is seen is used or left out, and JSON keeps all of it."""
    for thing in THINGS:
        assert 0 <= balance.used(thing) <= balance.seen[thing]
    assert Balance.of(json.loads(json.dumps(balance.as_dict()))) == balance


# What is left out is the least, and is said.


def test_a_session_without_a_reward_is_left_out_and_not_its_task(tmp_path: Path) -> None:
    rows = [chat(id=str(n), task=f"t{n % 3}", reward=None if n == 4 else n % 2) for n in range(12)]
    imported = import_files([lines(tmp_path, *rows)])
    assert imported.table.trajectory.values.size == 11
    assert imported.balance.reasons("session") == {"no reward": 1}
    assert imported.balance.named["session", "no reward"] == ["t1/4"]
    third = [row | {"reward": None if n % 3 == 0 else 1.0} for n, row in enumerate(rows)]
    assert import_files([lines(tmp_path, *third)]).table.trajectory.values.size == 8
    holds(imported.balance)


def test_a_session_without_a_response_keeps_its_reward(tmp_path: Path) -> None:
    rows = [chat(id=f"r{n}", task="t", reward=1.0) for n in range(5)]
    silent = {"task": "t", "messages": [ASK], "reward": 0.0}
    rows += [{**silent, "id": f"s{n}"} for n in range(7)]
    imported = import_files([lines(tmp_path, *rows)])
    assert sum(returns(imported).values()) == 5
    assert len(returns(imported)) == 12
    assert no_response(imported.table).sum() == imported.balance.silent == 7
    scores = tmp_path / "scores.csv"
    scores.write_text("session,reward\n" + "".join(f"{row['id']},1\n" for row in rows))
    whole = import_files([tmp_path / "runs.jsonl"], reward=str(scores))
    assert sum(returns(whole).values()) == 12
    assert not whole.balance.left_out


def test_calls_of_a_session_that_failed_are_no_response(tmp_path: Path) -> None:
    """A trace with a score and no model call is a session, too."""
    trace = {"id": "t", "observations": [], "metadata": {"task": "a"}}
    score = {"name": "right", "value": 0.0}
    rows = [{**trace, "id": str(n), "scores": [score]} for n in range(3)]
    imported = import_files([lines(tmp_path, *rows)], form="langfuse")
    assert returns(imported) == {"a/0": 0.0, "a/1": 0.0, "a/2": 0.0}
    assert imported.balance.silent == 3


def test_a_folder_never_drops_a_file_in_silence(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for n in range(6):
        text = json.dumps(chat(id=f"r{n}", task="t", reward=n < 3), indent=1)
        (folder / f"{n}.json").write_text(text if n < 3 else text[: -20 - n])
    lines(folder, {"note": "no session"}, name="notes.jsonl")
    lines(folder, {"prompt": "x"}, name="other.jsonl")
    with pytest.raises(TableError, match=r"5 of 8 files cannot be read: 3.json \(cut off\), .*4"):
        import_files([folder])
    imported = import_files([folder], skip_bad=True)
    assert imported.balance.sentence == (
        "3 sessions in 3 files; 5 files not read: cut off (3), another format (2)."
    )
    holds(imported.balance)
    said = run("decisions", folder, "--skip-bad", "-q").stderr
    assert "5 files not read: cut off (3), another format (2)" in flat(said)


def test_a_folder_may_hold_sessions_of_several_formats(tmp_path: Path) -> None:
    lines(tmp_path, chat(id="a", task="t", reward=1.0), name="a.jsonl")
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    lines(tmp_path, {"conversations": turns, "task": "t", "id": "b", "reward": 0}, name="b.jsonl")
    call = {"session_id": "t:0", "messages": [ASK], "response_message": chat()["messages"][-1]}
    lines(tmp_path, {**call, "reward": 1.0}, name="c.jsonl")
    imported = import_files([tmp_path])
    assert returns(imported) == {"t/a": 1.0, "t/b": 0.0, "t/t:0": 1.0}
    assert (
        imported.title == "OpenAI messages and ShareGPT conversations and model calls of a gateway"
    )


def test_a_cut_last_line_is_one_record(tmp_path: Path) -> None:
    path = lines(tmp_path, *(chat(id=str(n), task="t", reward=1.0) for n in range(4)))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(TableError, match=r"cut_off: runs.jsonl, line 4: .*skip_bad"):
        import_files([path])
    imported = import_files([path], skip_bad=True)
    assert imported.balance.sentence == "3 sessions in 1 file; 1 record not read: cut off (1)."
    packed = tmp_path / "cut.jsonl.gz"
    whole = "".join(f"{json.dumps(chat(id=str(n), task='t', reward=1.0))}\n" for n in range(4000))
    packed.write_bytes(gzip.compress(whole.encode())[:-2000])
    with pytest.raises(TableError, match="cut_off"):
        import_files([packed])
    found = import_files([packed], skip_bad=True).balance
    assert found.used("session") > 0
    assert found.reasons("record") == {"cut off": 1}


def test_a_record_that_is_no_session_is_left_out(tmp_path: Path) -> None:
    odd = chat(id="odd", reward=1.0) | {"messages": [{"role": "robot", "content": "x"}]}
    rows = [chat(id="a", task="t", reward=1.0), odd, chat(id="b", task="t", reward=0.0)]
    path = lines(tmp_path, *rows)
    with pytest.raises(TableError, match="its role is 'robot'"):
        import_files([path])
    imported = import_files([path], skip_bad=True)
    assert imported.balance.reasons("record") == {"not as its format": 1}
    assert len(returns(imported)) == 2
    holds(imported.balance)


def test_what_a_command_leaves_out_is_said_and_in_json(tmp_path: Path) -> None:
    rows = [chat(str(n), id=str(n), task="t", reward=None if n == 1 else n) for n in range(9)]
    path = lines(tmp_path, *rows)
    sentence = "8 sessions in 1 file; 1 session left out: no reward (1)."
    for name, *more in (
        ("check",),
        ("decisions",),
        ("states",),
        ("credit", "-o", tmp_path / "c.parquet"),
        ("import", "-o", tmp_path / "i.parquet"),
        ("import", "-o", tmp_path / "parts"),
    ):
        result = run(name, path, *more)
        assert sentence in flat(result.stderr), name
        balance = (
            json.loads(run(name, path, *more, "--json", "--force").stdout)["balance"]
            if (name in ("credit", "import"))
            else json.loads(run(name, path, *more, "--json").stdout)["balance"]
        )
        (found,) = balance if name == "decisions" else [balance]
        assert found["sentence"] == sentence


# Nothing is counted twice.


def called(number: int, ids: Callable[[int], str], **more: Any) -> dict[str, Any]:
    """A session with one call, whose id is made from a number."""
    call = {"id": ids(number), "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    shown = {"role": "tool", "tool_call_id": ids(number), "content": "8080"}
    return {
        "id": f"s{number}",
        "task": "t",
        "messages": [ASK, said, shown, chat()["messages"][-1]],
        "reward": 1.0,
        **more,
    }


def test_sessions_with_the_same_call_ids_count_once(tmp_path: Path) -> None:
    rows = [called(n, lambda n: f"call_a7Bq{n % 4}x9Z3kT") for n in range(12)]
    imported = import_files([lines(tmp_path, *rows)])
    assert imported.table.trajectory.values.size == 4
    assert imported.balance.reasons("session") == {"the same call ids as another": 8}
    counted = [called(n, lambda n: f"call_{n % 4}") for n in range(12)]
    assert import_files([lines(tmp_path, *counted)]).table.trajectory.values.size == 12
    named = [called(n, lambda n: "functions.get_order_details:0") for n in range(12)]
    assert import_files([lines(tmp_path, *named)]).table.trajectory.values.size == 12


def test_sessions_with_the_same_times_or_logprobs_count_once(tmp_path: Path) -> None:
    rows = [chat(id=str(n), task="t", reward=1.0) for n in range(6)]
    exact = [row | {"timestamp": 1700000000.125 + n % 2} for n, row in enumerate(rows)]
    imported = import_files([lines(tmp_path, *exact)])
    assert imported.balance.reasons("session") == {"the same times as another": 4}
    dated = [
        row | {"created_at": f"2026-01-01T00:00:0{n % 2}.123456Z"} for n, row in enumerate(rows)
    ]
    assert len(returns(import_files([lines(tmp_path, *dated)]))) == 2
    rounded = [row | {"timestamp": 1700000000} for row in rows]
    assert len(returns(import_files([lines(tmp_path, *rounded)]))) == 6, "attempts run at once"
    odds = [row | {"logprobs": [-0.1 - n % 3, -40.5]} for n, row in enumerate(rows)]
    assert len(returns(import_files([lines(tmp_path, *odds)]))) == 3


def test_copies_are_found_over_parts(tmp_path: Path) -> None:
    rows = [called(n, lambda n: f"call_a7Bq{n % 40}x9Z3kT") for n in range(400)]
    path = lines(tmp_path, *rows)
    parts = list(import_parts([path], most_steps=50))
    assert len(parts) > 1
    assert sum(part.table.trajectory.values.size for part in parts) == 40
    assert parts[-1].balance.used("session") == 40


def test_words_alone_prove_nothing(tmp_path: Path) -> None:
    rows = [chat(id=str(n), task="t", reward=float(n < 3)) for n in range(6)]
    path = lines(tmp_path, *rows)
    imported = import_files([path])
    assert (len(returns(imported)), imported.balance.equal) == (6, 5)
    assert "5 sessions equal earlier ones" in " ".join(imported.balance.details())
    once = import_files([path], copies="once")
    assert len(returns(once)) == 1
    assert once.balance.reasons("session") == {"equal to an earlier one in all words": 5}
    example = import_files(["examples/conversations.jsonl"]).balance
    assert (example.used("session"), example.equal) == (120, 26)


def test_a_file_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    path = lines(tmp_path, *(chat(id=name, task="t", reward=1.0) for name in "ab"))
    twin = shutil.copy(path, tmp_path / "twin.jsonl")
    for given in ([path, path], [path, twin], [tmp_path]):
        imported = import_files(given)
        assert len(returns(imported)) == 2
        assert imported.balance.reasons("file") == {"the same bytes as another": 1}


def sample(epoch: int, **more: Any) -> dict[str, Any]:
    said = [{**ASK, "source": "input"}, {"role": "assistant", "content": f"a{epoch}"}]
    made = {"id": "port", "epoch": epoch, "messages": said, "target": "x", "input": "q"}
    return {**made, "scores": {"match": {"value": "C"}}, "output": {"choices": []}, **more}


def log(path: Path, *samples: dict[str, Any], **run: Any) -> Path:
    path.write_text(json.dumps({"eval": {"task": "net", **run}, "samples": list(samples)}))
    return path


def test_an_evaluation_and_its_retry_count_once(tmp_path: Path) -> None:
    failed = sample(2, scores={}, error={"message": "the sandbox is gone"})
    first = log(tmp_path / "1.json", sample(1), failed, task_id="x1")
    again = log(tmp_path / "2.json", sample(1), sample(2), task_id="x1")
    imported = import_files([first, again])
    assert len(returns(imported)) == 2
    assert sum(returns(imported).values()) == 2.0, "of the second the retry counts"
    other = log(tmp_path / "2.json", sample(1), sample(2), task_id="x2")
    assert len(returns(import_files([first, other]))) == 3, "evaluated once more"


def test_a_copied_session_of_claude_code_goes_on_as_the_same(tmp_path: Path) -> None:
    def line(name: str, before: str | None, role: str, text: str, session: str) -> dict[str, Any]:
        message = {"role": role, "content": text, "id": name}
        ids = {"uuid": name, "parentUuid": before, "sessionId": session}
        return {**ids, "type": role, "message": message}

    old = [line("u", None, "user", "q", "s"), line("a", "u", "assistant", "one", "s")]
    new = [row | {"sessionId": "copy"} for row in old]
    new += [line("v", "a", "user", "more", "copy"), line("b", "v", "assistant", "two", "copy")]
    lines(tmp_path, *old, name="s.jsonl")
    lines(tmp_path, *new, name="copy.jsonl")
    (tmp_path / "scores.csv").write_text("session,reward\ncopy,1\ns,1\n")
    imported = import_files(
        [tmp_path / "s.jsonl", tmp_path / "copy.jsonl"], reward=str(tmp_path / "scores.csv")
    )
    assert imported.table.action.texts() == ["one", "two"]
    assert imported.balance.reasons("record") == {"written twice": 2}


# Tasks with one name.


def test_tasks_of_different_benchmarks_are_told_apart(tmp_path: Path) -> None:
    log(tmp_path / "a.json", sample(1), sample(2), task="gsm", model="m1")
    log(tmp_path / "b.json", sample(1), sample(2), task="gaia", model="m2")
    imported = import_files([tmp_path])
    assert set(imported.table.group.values) == {"gsm/port", "gaia/port"}
    assert dict(imported.balance.versions) == {"m1": 2, "m2": 2}
    for name in "ab":
        rows = [chat(question=f"q {name}", task="0", id=f"{name}{n}", reward=n) for n in range(2)]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    split = import_files(paths)
    assert set(split.table.group.values) == {"0", "0 (b)"}
    assert "Task 0 has different questions, and counts as 2." in list(split.balance.details())
    assert set(import_files(paths, same_task=True).table.group.values) == {"0"}


# Rewards as their makers mean them.


def gateway(session: str, rewards: list[float | None]) -> list[dict[str, Any]]:
    calls = []
    for n, reward in enumerate(rewards):
        turns = [{"role": "assistant", "content": f"a{i}"} for i in range(n + 1)]
        shown = [each for turn in turns[:-1] for each in (turn, ASK)]
        call = {"session_id": session, "trace_id": f"{session}-{n}", "reward": reward}
        calls.append({**call, "messages": [ASK, *shown], "response_message": turns[-1]})
    return calls


def test_what_rewards_belong_to_is_decided_once_for_a_file(tmp_path: Path) -> None:
    mixed = lines(tmp_path, *gateway("t:0", [1, 1, 1]), *gateway("t:1", [1, 1, 0]))
    imported = import_files([mixed])
    assert returns(imported) == {"t/t:0": 3.0, "t/t:1": 2.0}
    assert "Rewards belong to calls" in " ".join(imported.balance.details())
    assert returns(import_files([mixed], rewards="session")) == {"t/t:0": 1.0, "t/t:1": 0.0}
    rows = *gateway("t:0", [1, 1, 1]), *gateway("t:1", [0, 0])
    equal = lines(tmp_path, *rows, name="equal.jsonl")
    assert returns(import_files([equal])) == {"t/t:0": 1.0, "t/t:1": 0.0}
    assert import_files([equal]).balance.unsure
    assert returns(import_files([equal], rewards="call")) == {"t/t:0": 3.0, "t/t:1": 0.0}
    parts = list(import_parts([mixed], most_steps=1))
    assert {k: v for part in parts for k, v in returns(part).items()} == returns(imported)


def test_the_reward_of_a_state_is_the_latest(tmp_path: Path) -> None:
    said = [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}]
    rows = []
    for n in range(4):
        for reward in (0.0, float(n % 2)):  # a later node grades, and adds no message
            state = {"values": {"messages": said, "reward": reward}, "metadata": {"task": "t"}}
            rows.append({**state, "config": {"configurable": {"thread_id": f"t{n}"}}})
    imported = import_files([lines(tmp_path, *rows)], reward="values.reward")
    assert returns(imported) == {"t/t0": 0.0, "t/t1": 1.0, "t/t2": 0.0, "t/t3": 1.0}
    twice = [chat(session_id="t:0", reward=reward) for reward in (0.0, 1.0)]
    assert returns(import_files([lines(tmp_path, *twice)])) == {"t/t:0": 1.0}


def test_of_two_scores_with_one_name_the_latest_counts(tmp_path: Path) -> None:
    observation = {"id": "g", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z"}
    observation |= {"input": "q", "output": "a"}
    scores = [
        {"name": "right", "value": value, "timestamp": f"2026-01-0{day}T00:00:00Z"}
        for value, day in ((1.0, 3), (0.0, 2))
    ]
    trace = {"id": "t", "observations": [observation], "metadata": {"task": "a"}}
    imported = import_files([lines(tmp_path, {**trace, "scores": scores})])
    assert returns(imported) == {"a/t": 1.0}


def test_one_score_is_the_reward_of_all_sessions(tmp_path: Path) -> None:
    """Naively, a session that lacks the reward is rewarded by another of its scores."""
    observation = {"id": "g", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z"}
    observation |= {"input": "q", "output": "a"}
    rows = []
    for n, names in enumerate((["reward", "tone"], ["tone"])):
        scores = [{"name": name, "value": 0.25 + (name == "reward")} for name in names]
        trace = {"id": str(n), "observations": [observation], "metadata": {"task": "a"}}
        rows.append({**trace, "scores": scores})
    imported = import_files([lines(tmp_path, *rows)])
    assert returns(imported) == {"a/0": 1.25}
    assert imported.balance.reasons("session") == {"no reward": 1}


def test_rllm_takes_the_reward_of_the_last_step(tmp_path: Path) -> None:
    said = [ASK, {"role": "assistant", "content": "a"}]
    steps = [{"chat_completions": [*said, *said * n], "reward": 1.0} for n in range(4)]
    episode = {"id": "t:0", "trajectories": [{"name": "solver", "steps": steps, "reward": None}]}
    path = lines(tmp_path, episode)
    assert returns(import_files([path])) == {"t/0": 1.0}
    assert returns(import_files([path], rewards="call")) == {"t/0": 4.0}


def test_a_trace_with_an_error_does_not_count(tmp_path: Path) -> None:
    def trace(name: str, **more: Any) -> dict[str, Any]:
        nodes = [
            {"parent": None, "message": ASK, "sampled": False},
            {"parent": 0, "message": {"role": "assistant", "content": name}, "sampled": True},
        ]
        reward = {"right": {"score": 1.0}}
        return {"id": name, "nodes": nodes, "rewards": reward, "task": {"key": "t"}, **more}

    error = {"ok": False, "errors": [{"type": "SandboxError"}], "rewards": {"right": {"score": 0}}}
    retried = {"ok": True, "errors": [{"type": "SandboxError"}]}
    rows = [trace("a"), trace("b", **error), trace("c", **retried)]
    imported = import_files([lines(tmp_path, {"traces": rows})])
    assert set(returns(imported)) == {"t/a", "t/c"}
    assert imported.balance.reasons("session") == {"an error of its rollout": 1}


@pytest.mark.parametrize(
    ("status", "cut"),
    [("submitted (exit_cost)", False), ("exit_cost", True), ("submitted", False)],
)
def test_a_submission_at_a_limit_was_graded(tmp_path: Path, status: str, cut: bool) -> None:
    step = {"action": "ls", "observation": "a", "response": "ls", "state": "{}"}
    made = {"trajectory": [step], "history": [], "info": {"exit_status": status}, "reward": 1}
    path = tmp_path / "repo__1.traj"
    path.write_text(json.dumps(made))
    imported = import_files([path], reward="reward")
    assert imported.table.flag("truncated", default=False).any() == cut


def test_a_refusal_is_what_the_model_said(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": None, "refusal": "I will not."}
    rows = [{"messages": [ASK, said], "task": "t", "reward": 0.0}]
    assert import_files([lines(tmp_path, *rows)]).table.action.texts() == ["I will not."]


def test_sessions_that_crashed_count_unless_they_are_dropped(tmp_path: Path) -> None:
    lost = sample(2, messages=[{**ASK, "source": "input"}], error={"message": "gone"})
    lost["scores"] = {"match": {"value": "I"}}
    path = log(tmp_path / "a.json", sample(1), lost)
    imported = import_files([path])
    assert returns(imported) == {"net/port/1": 1.0, "net/port/2": 0.0}
    assert (imported.balance.crashed, imported.balance.silent) == (1, 1)
    dropped = import_files([path], crashed="drop")
    assert returns(dropped) == {"net/port/1": 1.0}
    assert dropped.balance.reasons("session") == {"crashed": 1}
