"""Conversations that do not fit into memory are imported as several tables."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe import recipe
from ascribe.archives import check_archive, convert
from ascribe.cli import app, importing
from ascribe.reports import picture
from ascribe.sessions.formats import import_files, import_parts
from ascribe.steps.problems import TableError


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Forty conversations of one to three turns in two files; names repeat."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(2):
        lines = []
        for n in range(20):
            messages = [{"role": "user", "content": f"task {n % 4}"}]
            for turn in range(int(random.integers(1, 4))):
                messages.append({"role": "assistant", "content": f"go {random.integers(3)}"})
                messages.append({"role": "user", "content": f"room {turn}"})
            lines.append(json.dumps({"messages": messages, "reward": float(n % 3 == 0)}))
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("\n".join(lines))
    return paths


def test_parts_have_the_rows_of_the_whole(files: list[Path]) -> None:
    whole = import_files(files)
    parts = list(import_parts(files, most_steps=15))
    assert len(parts) > 3
    assert {part.state for part in parts} == {whole.state}
    rows = [row for part in parts for row in part.table.to_dicts()]
    assert rows == whole.table.to_dicts()
    messages = [m for part in parts for m in part.carried.column("messages").to_pylist()]
    assert messages == whole.carried.column("messages").to_pylist()


def test_a_folder_of_parts_is_credited(files: list[Path], tmp_path: Path) -> None:
    names, out = [str(file) for file in files], tmp_path / "steps"
    ran = CliRunner().invoke(app, ["import", *names, "--out", str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    whole = import_files(files)
    assert facts["steps"] == len(whole.table) == pq.read_table(out).num_rows
    assert facts["groups"] == whole.table.group.values.size
    again = CliRunner().invoke(app, ["import", *names, "--out", str(out)])
    assert again.exit_code == 2
    assert "is not empty" in " ".join(again.stderr.split())
    credited = CliRunner().invoke(app, ["credit", str(out), "--out", str(tmp_path / "credited")])
    assert credited.exit_code == 0, credited.output


def calls(name: str, *contexts: list[str]) -> list[str]:
    """Lines of a gateway: the model calls of a session, by what the user said before each."""
    lines = []
    for number, said in enumerate(contexts):
        messages = [{"role": "user", "content": text} for text in said]
        response = {"role": "assistant", "content": f"go {number}"}
        call = {"trace_id": f"{name}.{number}", "session_id": name, "messages": messages}
        call |= {"response_message": response, "timestamp": number, "task": "t"}
        lines.append(json.dumps(call | {"reward": float(name.endswith("1"))}))
    return lines


def test_parts_with_other_columns_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last session has a sub-agent, so only its part has the columns for it."""
    monkeypatch.setattr(importing, "import_parts", partial(import_parts, most_steps=4))
    sessions = [calls(f"s{n}", ["Go."], ["Go.", "Left."]) for n in range(8)]
    sessions.append(calls("s11", ["Go."], ["Another task."], ["A third."]))
    source = tmp_path / "calls.jsonl"
    source.write_text("\n".join(line for session in sessions for line in session))
    out, whole = tmp_path / "steps", import_files([source])
    assert CliRunner().invoke(app, ["import", str(source), "-o", str(out)]).exit_code == 0
    files = sorted(out.glob("*.parquet"))
    assert len(files) > 3
    assert len({str(pq.read_schema(file)) for file in files}) == 1
    table = pq.read_table(out)
    assert table.column("agent").to_pylist() == whole.table.agent.texts()
    assert table.num_rows == len(whole.table)
    checked = CliRunner().invoke(app, ["check", str(out), "--json"])
    assert json.loads(checked.stdout)["rows"] == len(whole.table), checked.output


def test_no_reward_in_any_part(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    source = tmp_path / "in.jsonl"
    source.write_text(f"{json.dumps(line)}\n" * 9)
    with pytest.raises(TableError, match="has a reward"):
        list(import_parts([source], most_steps=2))
    ran = CliRunner().invoke(app, ["import", str(source), "--out", str(tmp_path / "out")])
    assert "No session has a reward" in " ".join(ran.stderr.split())
    assert ran.exit_code == 0


@pytest.fixture
def large(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is read in parts, because it is said to be larger than memory."""
    monkeypatch.setattr(convert, "EXPANSION", {".jsonl": 1 << 40})
    monkeypatch.setattr(convert, "import_parts", partial(import_parts, most_steps=15))
    return files[0]


def test_sessions_that_do_not_fit_into_memory_are_read_in_parts(
    large: Path, tmp_path: Path
) -> None:
    whole = import_files([large], state="history", reward="reward").table
    options = ["--state", "history", "--reward", "reward", "--json"]
    ran = CliRunner().invoke(app, ["check", str(large), *options])
    assert json.loads(ran.stdout)["rows"] == len(whole)
    out = tmp_path / "credited"
    ran = CliRunner().invoke(app, ["credit", str(large), "-o", str(out), *options])
    assert ran.exit_code == 0, ran.output
    assert pq.read_table(out).column("state").to_pylist() == whole.state.texts()
    page = picture([large], recipe("gigpo"), state="history", memory=1 << 32)
    assert page.facts.diagnosis.rows == len(whole)


def test_problems_of_sessions_in_parts_are_shown(large: Path) -> None:
    """The second call was shown a response that no call of the session gave."""
    first, second = (json.loads(line) for line in calls("s1", ["Go."], ["Go.", "Left."]))
    second["messages"].insert(1, {"role": "assistant", "content": "never logged"})
    large.write_text("\n".join(map(json.dumps, [first, second])) + "\n")
    in_parts = json.loads(CliRunner().invoke(app, ["check", str(large), "--json"]).stdout)
    whole = import_files([large])
    assert [note.kind.label for note in whole.notes] == ["lost_response"]
    assert "1 problem: see ascribe check" in whole.sentence()
    assert "lost_response" in {problem["kind"] for problem in in_parts["problems"]}


def test_rewards_that_changed_are_read_again(large: Path, tmp_path: Path) -> None:
    names = [name.split("/", 1)[1] for name in import_files([large]).table.trajectory.values]
    scores, out = tmp_path / "scores.csv", tmp_path / "credited"
    for best in (0, 1):
        rows = "".join(f"{name},{float(n == best)}\n" for n, name in enumerate(names))
        scores.write_text(f"session,reward\n{rows}")
        arguments = ["credit", str(large), "-o", str(out), "--reward", str(scores), "--force"]
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == 0, ran.output
        table = pq.read_table(out)
        (row,) = [row for row in table.to_pylist() if row["reward"]]
        assert row["trajectory"].endswith(names[best])


def test_a_folder_of_tables_refuses_the_options_for_sessions(
    files: list[Path], tmp_path: Path
) -> None:
    out = str(tmp_path / "steps")
    CliRunner().invoke(app, ["import", *map(str, files), "-o", out])
    for command in (["check"], ["credit", "-o", str(tmp_path / "credited")]):
        ran = CliRunner().invoke(app, [*command, out, "--state", "tool"])
        assert ran.exit_code == 2, ran.output
        assert "is read as a table of steps" in " ".join(ran.stderr.split())


def test_parquet_with_messages_is_read_in_parts(files: list[Path], tmp_path: Path) -> None:
    """A folder of sessions is none of tables, and a large file of sessions no table either."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    whole = import_files([files[0]], state="tool").table
    for source, memory in ((folder, "2"), (folder / "a.parquet", "0.5")):
        arguments = ["check", str(source), "--state", "tool", "--json", "--memory", memory]
        ran = CliRunner().invoke(app, arguments)
        assert json.loads(ran.stdout)["rows"] == len(whole), ran.output
    report = check_archive(folder / "a.parquet", work=tmp_path / "work", state="tool")
    assert report.rows == len(whole)
