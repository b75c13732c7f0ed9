"""Logs that somebody wrote for themselves: names, nesting, containers, roles, outcomes."""

import csv
import gzip
import io
import json
import shlex
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe import TableError
from ascribe.cli import app
from ascribe.groups.events import read_calls
from ascribe.sessions.reading import Imported, import_files

pytestmark = pytest.mark.unit

runner = CliRunner()
Log = dict[str, Any]
USER, ACTS = {"role": "user", "content": "Go."}, ("look", "stop")


def turns(answer: str = "stop") -> list[Log]:
    return [
        USER,
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "a door"},
        {"role": "assistant", "content": answer},
    ]


def said(who: str, what: str, *roles: str) -> list[Log]:
    user, agent, tool = roles
    texts = ((user, "Go."), (agent, "look"), (tool, "a door"), (agent, "stop"))
    return [{who: role, what: text} for role, text in texts]


STEPS = [
    {"thought": "Hm.", "action": "look", "observation": "a door"},
    {"thought": "So.", "action": "stop", "observation": "done"},
]
LOGS: dict[str, Log] = {
    "history": {"history": turns(), "success": True},
    "nested": {"run": {"data": {"conversation": turns()}}, "result": {"passed": False}},
    "words": {"trajectory": turns(), "outcome": "won"},
    "a number in an object": {"messages": turns(), "score": {"value": 0.5, "max": 1}},
    "human and ai": {"transcript": said("role", "content", "human", "ai", "function"), "reward": 1},
    "from and value": {"turns": said("from", "value", "human", "bot", "tool"), "label": "pass"},
    "speaker and text": {"chat": said("speaker", "text", "User", "Agent", "Environment")},
    "steps": {"task_id": "t", "steps": STEPS, "resolved": 1},
    "lists of both": {"actions": list(ACTS), "observations": ["a door", "done"], "correct": True},
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Go."}, {"type": "image_url"}]},
            *turns()[1:],
        ],
        "is_success": False,
    },
    "what is expected": {
        "task": {"id": 1, "actions": ["win"], "messages": [USER]},
        "expected": {"actions": ["win"], "reward": 7},
        "info": {"gold": {"messages": [USER]}, "log": turns()},
        "won": True,
    },
    "pairs": {"dialog": [["user", "Go."], ["assistant", "look"], ["tool", "a"], ["ai", "stop"]]},
    "json in text": {"messages": json.dumps(turns()), "reward": 1.0},
}


def actions(imported: Imported) -> list[str]:
    return imported.table.action.texts()


def one(path: Path, **options: Any) -> Imported:
    return import_files([path], unrewarded=True, **options)


@pytest.mark.parametrize("name", sorted(LOGS.keys() - {"json in text"}))
def test_a_home_made_log_opens(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(LOGS[name]))
    assert tuple(actions(one(path))) == ACTS


@pytest.mark.parametrize(
    ("fields", "reward"),
    [
        ({"success": True}, 1.0),
        ({"resolved": "no"}, 0.0),
        ({"score": 0.25}, 0.25),
        ({"final": {"outcome": "Passed"}, "label": "a text"}, 1.0),
        ({"won": False, "metrics": {"score": 9}}, 0.0),
        ({"passed": True, "success": 1}, 1.0),
    ],
)
def test_the_reward_nearest_the_top_counts(tmp_path: Path, fields: Log, reward: float) -> None:
    path = tmp_path / "log.jsonl"
    for messages in ("messages", "history"):
        path.write_text(json.dumps({messages: turns(), **fields}))
        assert one(path).table.reward.sum() == reward


def test_two_that_differ_are_named_and_an_option_decides(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"history": turns(), "success": True, "label": 0}))
    with pytest.raises(TableError, match="success and label both look like its reward") as caught:
        one(path)
    assert "reward=" in str(caught.value)
    assert one(path, reward="label").table.reward.sum() == 0
    path.write_text(json.dumps({"history": turns(), "log": turns("go"), "reward": 1}))
    with pytest.raises(TableError, match="history and log both look like its messages"):
        one(path)
    imported = one(path, messages="log")
    assert actions(imported) == ["look", "go"]
    assert imported.balance.fields["messages"] == {"log": 1}


def test_words_are_worth_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"history": turns(word), "end": {"how": word}} for word in ("half", "full")]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(TableError, match="the outcome 'half' is not known"):
        one(path, reward="end.how")
    imported = one(path, reward="end.how", outcome_map={"half": 0.5, "full": 1.0})
    assert imported.table.reward.sum() == 1.5


def test_options_name_every_field(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {"did": ["a", "b"], "saw": ["x", "y"], "q": "t1", "r": 2, "name": "s1", "who": "me"}
    path.write_text(json.dumps({"x": row}))
    fields = {"actions": "did", "observations": "saw", "group": "q", "reward": "r"}
    fields |= {"session": "name", "version": "who"}
    imported = one(path, **{option: f"x.{name}" for option, name in fields.items()})
    table = imported.table
    assert (actions(imported), table.reward.tolist()) == (["a", "b"], [0.0, 2.0])
    assert list(table.trajectory.values) == ["t1/s1"]
    assert imported.balance.versions == {"me": 1}


def test_the_error_shows_the_fields_and_the_command_that_works(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"dialogue_lines": turns(), "bar": {"points": 3}, "case_no": 7}))
    refused = runner.invoke(app, ["import", str(path)])
    assert refused.exit_code == 1
    assert "dialogue_lines" in refused.stderr
    assert "list of 4" in refused.stderr
    command = next(row for row in refused.stderr.splitlines() if "ascribe import" in row)
    words = shlex.split(command.partition("ascribe ")[2])
    assert words[2:] == [
        "--messages",
        "dialogue_lines",
        "--reward",
        "bar.points",
        "--group",
        "case_no",
    ]
    done = runner.invoke(app, [*words, "--explain"])
    assert done.exit_code == 0
    assert "bar.points" in done.stdout
    path.write_text(json.dumps({"foo": [{"x": 1}], "y": 2}))
    refused = runner.invoke(app, ["import", str(path)])
    assert "--messages FIELD" in refused.stderr


# Teams.


def test_each_speaker_of_a_team_is_an_agent(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    spoken = [("human", "Go."), ("Boss (thought)", "plan"), ("Boss (-> Web)", "do it")]
    spoken += [("Web", "done"), ("Boss (thought)", "good")]
    history = [{"role": role, "content": text} for role, text in spoken]
    path.write_text(json.dumps({"history": history, "is_correct": False}))
    imported = one(path, state="observation")
    table = imported.table
    assert table.agent is not None
    assert table.agent.texts() == ["Boss", "Boss", "Web", "Boss"]
    assert table.step.tolist() == [0, 1, 2, 3]
    asked, kept, heard, last = table.state.texts()
    assert asked == kept == "user: Go.", "nothing new was shown"
    assert heard == "user: Go.\n\nuser: Boss: plan\n\nuser: Boss: do it"
    assert last == "user: Web: done"


# Containers.


def write_csv(path: Path, rows: list[Log]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()}
                         for row in rows)  # fmt: skip


def write_zip(path: Path, rows: list[Log]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no log")
        for number, row in enumerate(rows):
            archive.writestr(f"runs/{number}.json", json.dumps(row))


def write_tar(path: Path, rows: list[Log]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for number, row in enumerate(rows):
            content = json.dumps(row).encode()
            member = tarfile.TarInfo(f"../../runs/{number}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_zstd(path: Path, rows: list[Log]) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write("\n".join(map(json.dumps, rows)).encode())


WRITERS: dict[str, Callable[[Path, list[Log]], Any]] = {
    "log.csv": write_csv,
    "log.zip": write_zip,
    "log.tar.gz": write_tar,
    "log.jsonl.zst": write_zstd,
    "log.json.gz": lambda path, rows: path.write_bytes(gzip.compress(json.dumps(rows).encode())),
    "log.parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
    "list.json": lambda path, rows: path.write_text(json.dumps({"m": 1, "runs": rows})),
    "deep.json": lambda path, rows: path.write_text(json.dumps({"data": {"all": rows}})),
    "object.json": lambda path, rows: path.write_text(
        json.dumps({f"s{number}": row for number, row in enumerate(rows)})
    ),
    "chats.json": lambda path, rows: path.write_text(
        json.dumps({f"s{number}": row["history"] for number, row in enumerate(rows)})
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_containers(tmp_path: Path, name: str) -> None:
    rows = [{"history": turns(f"stop {n}"), "reward": 1.0, "task_id": n % 2} for n in range(4)]
    WRITERS[name](tmp_path / name, rows)
    imported = one(tmp_path / name)
    assert imported.balance.used("session") == 4
    assert sorted(actions(imported)) == ["look"] * 4 + [f"stop {n}" for n in range(4)]
    if name != "chats.json":
        assert imported.table.reward.sum() == 4
        assert imported.table.group.values.size == 2
    assert [each.name for each in tmp_path.parent.iterdir() if each.name == "runs"] == []


def test_an_archive_that_expands_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascribe.sessions.reading.files.expansion_limit", lambda *_: 50_000)
    rows = [{"history": [*turns(), {"role": "user", "content": "x" * 40_000}], "reward": 1}] * 3
    for name in ("log.zip", "log.tar.gz"):
        WRITERS[name](tmp_path / name, rows)
        with pytest.raises(TableError, match="expands"):
            one(tmp_path / name)
    monkeypatch.setattr("ascribe.sessions.reading.files.MAX_MEMBERS", 2)
    WRITERS["log.zip"](tmp_path / "log.zip", [{"history": turns(), "reward": 1}] * 3)
    with pytest.raises(TableError, match="more than 2 files"):
        one(tmp_path / "log.zip")


def test_calls_that_agents_of_tau_bench_write_as_text(tmp_path: Path) -> None:
    """``act`` and ``react`` end a response with ``Action:`` and JSON; a reply may be one, too."""

    def acts(name: str, **arguments: str) -> str:
        return f"I look.\nAction:\n{json.dumps({'name': name, 'arguments': arguments})}\n"

    said = [
        ("user", "Cancel it."),
        ("assistant", acts("find_user", email="a@b.c")),
        ("user", "API output: Error: user not found"),
        ("assistant", acts("respond", content="Who are you?")),
        ("user", "API output: I am Ann."),
        ("assistant", "Action: none, and no JSON"),
        ("user", "Error: you said?"),
        ("assistant", acts("cancel") + "```"),
        ("user", "Bye."),
    ]
    traj = [{"role": role, "content": text} for role, text in said]
    session = {"task_id": 0, "trial": 0, "reward": 0.0, "info": {}, "traj": traj}
    (tmp_path / "act.json").write_text(json.dumps([session]))
    table = import_files([tmp_path / "act.json"]).table
    calls = read_calls(table)
    assert [each.name for each in calls.calls] == ["find_user"]
    assert calls.refused.tolist() == [True]
    states = table.state.texts()
    assert states[1] == "tool: Error: user not found"
    assert states[2:] == ["user: API output: I am Ann.", "user: Error: you said?"]
