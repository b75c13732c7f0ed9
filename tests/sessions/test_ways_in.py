"""Sessions and rewards of odd files, compared with what was written into them."""

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import TableError
from ascribe.sessions.reading import import_files, import_parts, write_credit
from ascribe.steps.files import write
from tests.sessions.test_cli_import import run
from tests.sessions.test_formats import lines
from tests.sessions.test_left_out import ASK, called, chat, log, returns, sample
from tests.test_cli import flat

pytestmark = pytest.mark.unit


def call(session: str, number: int, reward: Any, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": f"a{number}"}
    made = {"session_id": session, "messages": [ASK], "response_message": said, "reward": reward}
    return {**made, "trace_id": f"{session}-{number}", **more}


@pytest.mark.parametrize("bad", [0, 1])
def test_a_session_with_a_bad_reward_is_left_out_and_said(tmp_path: Path, bad: int) -> None:
    """Its other records do not wait for one that was never counted."""
    rows = [call(f"t:{n}", k, 0.5 * k) for n in range(3) for k in range(2)]
    rows[2 + bad]["reward"] = "abc"
    imported = import_files([lines(tmp_path, *rows)], skip_bad=True)
    assert returns(imported) == {"t/t:0": 0.5, "t/t:2": 0.5}
    assert imported.balance.reasons("record") == {"not as its format": 2}


def asked(path: Path, question: str, task: str = "0", attempts: int = 3) -> Path:
    """A file of attempts at a task with this name, each of one step."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        chat(f"a{n}", question=question, task=task, id=str(n), reward=1.0) for n in range(attempts)
    ]
    return lines(path.parent, *rows, name=path.name)


def test_tasks_of_files_with_one_name_are_told_apart(tmp_path: Path) -> None:
    """Three folders, each with a file of the same name: the second and the third differ, too."""
    paths = [asked(tmp_path / name / "log.jsonl", f"question {name}") for name in "xyz"]
    imported = import_files(paths)
    assert set(imported.table.group.values) == {"0", "0 (log)", "0 (log, 2)"}
    assert "Task 0 has different questions, and counts as 3." in list(imported.balance.details())
    results = []
    for name in "xyz":
        told = {"task": {"instruction": f"do {name}"}}
        rows = [
            {"task_id": 0, "reward": 1.0, "trial": n, "info": told, "traj": [ASK]} for n in (0, 1)
        ]
        results.append(tmp_path / name / "results.json")
        results[-1].write_text(json.dumps(rows))
    assert import_files(results).table.group.values.size == 3


def test_no_task_gets_the_name_of_another(tmp_path: Path) -> None:
    first = asked(tmp_path / "a.jsonl", "question a")
    second = asked(tmp_path / "b.jsonl", "question b")
    third = asked(tmp_path / "c.jsonl", "question c", "0 (b)")
    found = import_files([first, second, third]).table.group.values
    assert set(found) == {"0", "0 (b)", "0 (b, 2)"}


@pytest.mark.parametrize("most_steps", [2, 3, 4])
def test_tasks_are_told_apart_over_parts(tmp_path: Path, most_steps: int) -> None:
    paths = [asked(tmp_path / f"{name}.jsonl", f"question {name}") for name in "ab"]
    names: Counter[str] = Counter()
    for part in import_parts(paths, most_steps=most_steps):
        names.update(part.table.group.texts())
    assert names == {"0": 3, "0 (b)": 3}


def state(thread: str, turns: int, reward: float, written: str) -> dict[str, Any]:
    said = [{"type": "human", "content": "q"}, {"type": "ai", "content": f"a {thread}"}]
    state = {"values": {"messages": said[:turns], "reward": reward}, "metadata": {"task": "t"}}
    return {
        **state,
        "config": {"configurable": {"thread_id": thread}},
        "created_at": f"2026-01-01T00:00:{written}.123456+00:00",
    }


def test_the_latest_reward_is_that_of_the_latest_time(tmp_path: Path) -> None:
    """LangGraph's own history, as many exports, begins with what was written last."""
    history = [[state(f"t{n}", 1, 0.0, f"{n}1"), state(f"t{n}", 2, 1.0, f"{n}2")] for n in range(2)]
    for rows in (history, [each[::-1] for each in history]):
        path = lines(tmp_path, *(row for each in rows for row in each))
        assert returns(import_files([path], reward="values.reward")) == {"t/t0": 1.0, "t/t1": 1.0}
    calls = [call("t:0", 0, 0.0, timestamp=1.0), call("t:0", 1, 1.0, timestamp=2.0)]
    for rows in (calls, calls[::-1]):
        path = lines(tmp_path, *rows)
        assert returns(import_files([path], rewards="session")) == {"t/t:0": 1.0}
    untimed = [call("t:0", 0, 0.0), call("t:0", 1, 1.0, timestamp="noon")]
    with pytest.raises(TableError, match="timestamp"):
        import_files([lines(tmp_path, *untimed)], rewards="session")


def test_attempts_with_equal_words_have_equal_logprobs(tmp_path: Path) -> None:
    """Log-probabilities follow from words: they prove a copy only of what is not said twice."""
    rows = [chat(id=str(n), task="t", reward=1.0) for n in range(8)]
    short = [row | {"logprobs": [-0.25, -1.5]} for row in rows]
    assert len(returns(import_files([lines(tmp_path, *short)]))) == 8
    others = [{"token": "9", "logprob": -40.5}, {"token": "7", "logprob": -50.25}]
    token = {"token": "8", "logprob": -0.25, "bytes": [56], "top_logprobs": others}
    served = [row | {"logprobs": {"content": [token]}} for row in rows]
    assert len(returns(import_files([lines(tmp_path, *served)]))) == 8
    long = [row | {"logprobs": [-1.5 - 0.5 * (n % 4)] * 40} for n, row in enumerate(rows)]
    imported = import_files([lines(tmp_path, *long)])
    assert imported.balance.reasons("session") == {"the same log-probabilities as another": 4}


def test_the_time_of_a_batch_proves_no_copies(tmp_path: Path) -> None:
    answers = "88889"
    rows = [chat(a, id=str(n), task="t", reward=1.0) for n, a in enumerate(answers)]
    batch = [row | {"timestamp": 1700000000.125} for row in rows]
    assert len(returns(import_files([lines(tmp_path, *batch)]))) == 5
    apart = [row | {"timestamp": 1700000000.125 + (n == 4)} for n, row in enumerate(rows)]
    assert len(returns(import_files([lines(tmp_path, *apart)]))) == 2


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000000+00:00"])
def test_whole_seconds_prove_no_copies(tmp_path: Path, time: str) -> None:
    rows = [chat(id=str(n), task="t", reward=1.0, created_at=time) for n in range(4)]
    assert len(returns(import_files([lines(tmp_path, *rows)]))) == 4
    spans = []
    texts = {"gen_ai.operation.name": "chat"}
    for name, role, text in (("input", "user", "q"), ("output", "assistant", "a")):
        message = {"role": role, "parts": [{"type": "text", "content": text}]}
        texts[f"gen_ai.{name}.messages"] = json.dumps([message])
    for n in range(4):
        values = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]
        values.append({"key": "reward", "value": {"doubleValue": 1.0}})
        start = str(1_914_037_945 * 10**9)  # times 1e-9 it is no whole number
        span = {"traceId": f"t{n}", "spanId": f"s{n}", "startTimeUnixNano": start}
        spans.append({**span, "name": "chat", "attributes": values})
    assert len(returns(import_files([lines(tmp_path, *spans)], reward="reward"))) == 4


def test_a_row_of_rewards_belongs_to_one_session(tmp_path: Path) -> None:
    """Sessions of two files may have one name: which of them was scored is not known."""
    for name in "ab":
        rows = [chat(f"{name}{n}", task="t", id=str(n)) for n in range(3)]
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    paths, scores = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "scores.csv"
    for first in ("0", "t/0"):
        scores.write_text(f"session,reward\n{first},1\n1,0\n2,0\n")
        with pytest.raises(TableError, match=r"line 2 names 't/0' and 't/0 \(b.jsonl, line 1\)'"):
            import_files(paths, reward=str(scores))
    own = "".join(f'"t/{n} (b.jsonl, line {n + 1})",1\n' for n in range(3))
    scores.write_text(f"session,reward\nt/0,1\nt/1,0\nt/2,0\n{own}")
    assert sum(returns(import_files(paths, reward=str(scores))).values()) == 4


def test_one_field_holds_the_rewards_of_a_file(tmp_path: Path) -> None:
    """A session that lacks its reward is not rewarded by another number."""
    rows = [chat(id=str(n), task="t", reward=n % 2, score=0.93) for n in range(4)]
    rows[2]["reward"] = None
    path = lines(tmp_path, *rows)
    with pytest.raises(TableError, match=r"line 3: its reward is in score, that of .*line 1 in re"):
        import_files([path])
    assert returns(import_files([path], reward="reward")) == {"t/0": 0.0, "t/1": 1.0, "t/3": 1.0}
    assert import_files([path], skip_bad=True).balance.used("session") == 3
    scored = [row | {"reward": None} for row in rows]
    assert sum(returns(import_files([lines(tmp_path, *scored)])).values()) == pytest.approx(3.72)
    calls = [call(f"t:{n}", 0, n % 2, score=0.93) for n in range(4)]
    calls[2]["reward"] = None
    imported = import_files([lines(tmp_path, *calls)])
    assert returns(imported) == {"t/t:0": 0.0, "t/t:1": 1.0, "t/t:3": 1.0}
    assert imported.balance.reasons("session") == {"no reward": 1}


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    rows = [chat(id=str(n), task="", reward=1.0) for n in range(4)]
    imported = import_files([lines(tmp_path, *rows)])
    assert (len(returns(imported)), imported.table.group.values.size) == (4, 1)


def episode(number: int, reward: float, role: str = "assistant") -> dict[str, Any]:
    """An episode of rLLM with two steps."""
    said = [ASK, {"role": role, "content": f"a{number}"}]
    steps = [{"chat_completions": said}, {"chat_completions": [*said, *said]}]
    solver = {"name": "solver", "reward": reward, "steps": steps}
    return {"id": f"t:{number}", "trajectories": [solver]}


def test_credit_goes_back_past_records_that_were_not_read(tmp_path: Path) -> None:
    rows = [episode(0, 0.0), episode(1, 1.0, "robot"), episode(2, 0.5), episode(3, 0.25)]
    path = lines(tmp_path, *rows)
    imported = import_files([path], skip_bad=True)
    given = np.repeat([1.0, 2.0, 3.0], 2)
    write_credit(path, imported, given, tmp_path / "out.jsonl")
    written = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    steps = [row["trajectories"][0]["steps"] for row in written]
    assert [[step.get("advantage") for step in each] for each in steps] == [
        [1.0, 1.0],
        [None, None],
        [2.0, 2.0],
        [3.0, 3.0],
    ]


def test_equal_responses_of_verifiers_are_responses(tmp_path: Path) -> None:
    """A trace with two roots: the agent was asked twice and said the same."""
    rows = []
    for number in range(2):
        said = {"role": "assistant", "content": f"a{number}"}
        nodes: list[dict[str, Any]] = []
        for _ in range(2):
            nodes += [
                {"message": ASK, "parent": None, "sampled": False},
                {"message": said, "parent": len(nodes), "sampled": True, "mask": [1]},
            ]
        rewards = {"right": {"score": float(number), "weight": 1.0}}
        trace = {"id": f"s{number}", "nodes": nodes, "rewards": rewards}
        rows.append({"task": {"key": "t"}, "traces": [trace]})
    path = lines(tmp_path, *rows)
    imported = import_files([path])
    assert (len(imported.table), returns(imported)) == (4, {"t/s0": 0.0, "t/s1": 1.0})
    write_credit(path, imported, np.arange(1.0, 5.0), tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    given = [node.get("advantages") for row in written for node in row["traces"][0]["nodes"]]
    assert given[1::2] == [[1.0], [2.0], [3.0], [4.0]]


def test_a_copy_with_another_reward_is_said(tmp_path: Path) -> None:
    """As after an evaluation was scored again: one of both counts, and which is not known."""
    for name, grades in (("first", "CI"), ("scored", "CC")):
        samples = [
            sample(epoch, scores={"m": {"value": grade}}) for epoch, grade in enumerate(grades)
        ]
        log(tmp_path / f"{name}.json", *samples, task_id="x")
    imported = import_files([tmp_path])
    assert imported.balance.reasons("session") == {
        "the same id as another": 1,
        "the same id as another, but another reward": 1,
    }


def test_a_folder_of_tables_holds_no_sessions_beside(tmp_path: Path) -> None:
    """Only the tables would be read."""
    folder = tmp_path / "in"
    folder.mkdir()
    path = lines(folder, *(chat(id=str(n), task="t", reward=1.0) for n in range(4)))
    write(import_files([path]).to_arrow(), folder / "steps.parquet")
    (folder / "about.json").write_text('{"made": "today"}')
    for command in ("check", "credit", "decisions"):
        options = [] if command in ("check", "decisions") else ["-o", tmp_path / "out"]
        assert "and sessions (runs.jsonl)" in flat(run(command, folder, *options, code=1).stderr)
    path.unlink()
    run("check", folder)


def test_a_copied_file_counts_once_as_a_whole(tmp_path: Path) -> None:
    """Its sessions without a call have no ids, and would count twice."""
    rows = [called(n, lambda n: f"call_a7Bq{n}x9Z3kT") for n in range(4)]
    rows += [chat(id=f"c{n}", task="t", reward=1.0) for n in range(3)]
    rows += [{"id": f"s{n}", "task": "t", "messages": [ASK], "reward": 0.0} for n in range(2)]
    lines(tmp_path, *rows, name="a.jsonl")
    for copy in (rows[::-1], rows[2:7]):
        lines(tmp_path, *({**row, "id": f"copy {row['id']}"} for row in copy), name="b.jsonl")
        imported = import_files([tmp_path])
        assert (len(returns(imported)), sum(returns(imported).values())) == (9, 7)
    assert imported.balance.reasons("session") == {
        "in a copied file": 3,
        "the same call ids as another": 2,
    }
    more = [*rows[2:7], chat(id="c9", task="t", reward=1.0), chat(id="c8", task="t", reward=0.0)]
    lines(tmp_path, *more, name="b.jsonl")
    assert len(returns(import_files([tmp_path]))) == 11, "attempts that the other file has not"
    again = called(4, lambda n: "call_b8Cr5y2X")
    lines(tmp_path, rows[0], again, *rows[4:7], name="b.jsonl")
    assert len(returns(import_files([tmp_path]))) == 13, "another run, with one session of a.jsonl"


def test_attempts_in_files_of_their_own_all_count(tmp_path: Path) -> None:
    """Short answers make equal files, as they make equal lines of one file."""
    for number, (answer, reward) in enumerate(zip("888897", (1, 1, 1, 1, 0, 0), strict=True)):
        chat_ = chat(answer, task="t", reward=reward)
        (tmp_path / f"{number}.json").write_text(json.dumps(chat_))
    imported = import_files([tmp_path])
    assert (len(returns(imported)), sum(returns(imported).values())) == (6, 4)
    first = tmp_path / "0.json"
    again = import_files([first, tmp_path / ".." / tmp_path.name / "0.json"])
    assert len(returns(again)) == 1


def packed(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/") + ".jsonl", text)
    return path


def test_runs_in_an_archive_are_runs(tmp_path: Path) -> None:
    """Sessions of two folders may have one name, in an archive as on disk."""
    runs = {
        f"run{n}__log": "".join(f"{json.dumps(call('t:0', k, k * n))}\n" for k in range(2))
        for n in range(2)
    }
    assert sum(returns(import_files([packed(tmp_path / "a.zip", **runs)])).values()) == 1
    assert len(returns(import_files([tmp_path / "a.zip"]))) == 2
    made = {"input": "q", "output": [{"type": "message", "role": "assistant", "content": "a"}]}
    one = json.dumps({**made, "task": "t", "reward": 1.0})
    assert len(returns(import_files([packed(tmp_path / "b.zip", x=one, y=one)]))) == 2


def test_no_file_of_an_archive_is_dropped_in_silence(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", x=json.dumps(chat(task="t", reward=1.0)))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.parquet", b"PAR1")
        archive.writestr("about.md", "made today")
    with pytest.raises(TableError, match=r"a.zip, more.parquet: not read inside of an archive"):
        import_files([path])
    assert import_files([path], skip_bad=True).balance.reasons("record") == {"damaged": 1}


def test_no_list_of_a_document_is_dropped_in_silence(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    other = {"id": "s", "task": "t", "conversations": turns, "reward": 1.0}
    chats = [chat(task="t", id=str(n), reward=1.0) for n in range(3)]
    path = tmp_path / "both.json"
    path.write_text(json.dumps({"chats": chats, "others": [other]}))
    with pytest.raises(TableError, match="records of two formats, openai and sharegpt"):
        import_files([path])


@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_damaged_record_is_read_past_wherever_it_is(tmp_path: Path, place: int) -> None:
    texts = [json.dumps(chat(task="t", id=str(n), reward=1.0)) for n in range(8)]
    texts.insert(place, '{"id": broken')
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(texts))
    imported = import_files([path], skip_bad=True)
    assert len(returns(imported)) == 8
    assert imported.balance.reasons("record") == {"damaged": 1}


def test_sessions_of_two_formats_in_an_archive_are_refused(tmp_path: Path) -> None:
    """In a folder all are read; a member that holds no session is left out and counted."""
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    other = json.dumps({"id": "s", "task": "t", "conversations": turns, "reward": 1.0})
    path = packed(tmp_path / "a.zip", x=json.dumps(chat(task="t", reward=1.0)), y=other)
    with pytest.raises(TableError, match="it holds ShareGPT conversations, other members OpenAI"):
        import_files([path])
    assert len(returns(import_files([path], skip_bad=True))) == 1


def test_names_in_a_csv_file_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    said = json.dumps(chat()["messages"]).replace('"', '""')
    path.write_text(f'task,id,reward,messages\n1.10,true,1,"{said}"\n1.1,null,0,"{said}"\n')
    table = import_files([path]).table
    assert sorted(set(table.group.texts())) == ["1.1", "1.10"]
