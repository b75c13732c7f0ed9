"""``ascribe import``, and the commands that take conversations directly."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app, screen
from ascribe.groups import keys
from ascribe.groups.keys import measure
from ascribe.sessions.reading import import_files
from ascribe.steps.files import read
from tests.sessions.test_formats import DATA, FILES, chat, lines

pytestmark = pytest.mark.unit


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_import_prints_what_it_understood(tmp_path: Path):
    out = tmp_path / "steps.parquet"
    printed = run("import", DATA / "traces.jsonl", "--out", out).stdout
    printed = re.sub(r"[\s│]+", " ", printed)  # long paths make narrow columns
    assert "verifiers traces" in printed
    assert "4 in 1 group " in printed
    assert "12.5% taken" in printed
    rollouts = read(out)
    assert len(rollouts.table) == 16
    assert rollouts.carried.column_names == ["messages"]
    assert rollouts.notes == ()


def test_import_as_json(tmp_path: Path):
    arguments = ("--out", tmp_path / "a.jsonl", "--state", "history", "--json")
    facts = json.loads(run("import", DATA / "openai.jsonl", *arguments).stdout)
    assert facts["alone"] == {"observation": 0.125, "tool": 0.125, "history": 0.25}
    assert (facts["state"], facts["format"], facts["rewarded"]) == ("history", "openai", 2)


def test_import_takes_several_files_and_names_of_fields(tmp_path: Path):
    first = lines(tmp_path, chat(who="t", points=1), name="a.jsonl")
    second = lines(tmp_path, chat("7", who="t", points=0), name="b.jsonl")
    out = tmp_path / "steps.jsonl"
    run("import", first, second, "--out", out, "--group", "who", "--reward", "points")
    table = read(out).table
    assert list(table.group.values) == ["t"]
    assert table.reward.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--state", "room"], "no state 'room' hint: there are: auto, key, observation"),
        (["--format", "csv"], "no format 'csv' hint: there are: atif, bfcl"),
        (["--out", "steps.txt"], "cannot tell the format"),
    ],
)
def test_wrong_calls(tmp_path: Path, arguments: list[str], message: str):
    out = [] if "--out" in arguments else ["--out", tmp_path / "s.parquet"]
    result = run("import", DATA / "openai.jsonl", *out, *arguments, code=2)
    assert message in " ".join(result.stderr.split())


def test_missing_file_and_bad_record(tmp_path: Path):
    out = tmp_path / "s.parquet"
    assert "cannot open" in run("import", tmp_path / "none.jsonl", "--out", out, code=2).stderr
    path = lines(tmp_path, chat(reward="high"))
    result = run("import", path, "--out", out, "--json", code=1)
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["kind"] == "bad_record"
    assert "runs.jsonl, line 1, reward" in problem["detail"]
    assert not out.exists()


@pytest.mark.parametrize("name", FILES)
def test_every_command_takes_every_format(tmp_path: Path, name: str):
    result = run("check", DATA / name, "--json")
    assert json.loads(result.stdout)["rows"] == 16
    credited = tmp_path / "credited.parquet"
    run("credit", DATA / name, "--out", credited)
    assert read(credited).credit.num_rows == 16
    assert len(json.loads(run("show", DATA / name, "--json").stdout)) in (3, 4, 5)


def test_what_was_understood_goes_to_standard_error():
    result = run("check", DATA / "log.eval")
    assert "Inspect log, 16 steps in 4 sessions. State: observation" in " ".join(
        result.stderr.split()
    )


READING = ["import", "check", "credit", "report", "show", "states"]
"""Commands that take sessions."""


def command(
    name: str, *arguments: object, out: Path, code: int = 0, stdin: str | None = None
) -> Result:
    """Run a command that takes sessions, with an output of its own if it needs one."""
    if name == "report":
        pytest.importorskip("vl_convert", reason="needs the extra report")
    wanted = {"import": "o.parquet", "credit": "o.parquet", "report": "o.html"}.get(name)
    return run(name, *arguments, *(["-o", out / wanted] if wanted else []), code=code, stdin=stdin)


@pytest.mark.parametrize("name", READING)
def test_every_command_takes_the_options_for_sessions(tmp_path: Path, name: str):
    path = lines(tmp_path, chat(who="t", points=1), chat("7", who="t", points=0))
    said = command(name, path, out=tmp_path, code=int(name != "import"))
    assert ("No session has a reward" if name == "import" else "no_conversations") in said.stderr
    options = ("--group", "who", "--reward", "points", "--format", "openai", "--state", "history")
    said = command(name, path, *options, out=tmp_path)
    if name != "import":
        assert "2 steps in 2 sessions. State: history" in said.stderr


@pytest.mark.parametrize("name", READING[1:])
@pytest.mark.parametrize("option", [("--reward", "score"), ("--group", "g"), ("--state", "tool")])
def test_a_table_of_steps_refuses_the_options_for_sessions(
    tmp_path: Path, name: str, option: tuple[str, str]
):
    files = [lines(tmp_path, STEP, name="steps.jsonl"), tmp_path / "steps.parquet"]
    pq.write_table(pa.Table.from_pylist([STEP]), files[1])
    for path in files:
        said = " ".join(command(name, path, *option, out=tmp_path, code=2).stderr.split())
        assert "is read as a table of steps" in said
        assert "--column reward=score" in said


def timed(attempt: int) -> dict[str, Any]:
    """A session whose results have the time in them, to the millisecond."""
    call = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    messages = [{"role": "user", "content": "Go."}]
    for number in range(4):
        result = f"[2026-11-17T19:15:37.{attempt}{number}5Z] page {number}"
        messages += [
            {"role": "assistant", "content": "", "tool_calls": call},
            {"role": "tool", "content": result, "tool_call_id": "c"},
        ]
    messages.append({"role": "assistant", "content": "done"})
    return {"messages": messages, "task": "t", "reward": attempt % 2}


def alone(path: Path) -> float:
    return measure(read(path).table).alone


def test_the_printed_command_corrects_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = lines(tmp_path, *map(timed, range(4)), name="my runs.jsonl")

    def follow(*arguments: object) -> float:
        """The share of steps alone in their state after the command that this one prints."""
        printed = run(*arguments).stderr
        (typed,) = re.findall(r"ascribe ((?:import|states) .*)", printed)
        run(*shlex.split(typed))
        return alone(Path("steps.parquet"))

    assert "observations without times" in run("check", path).stderr
    run("import", path, "-o", "auto.parquet")
    assert alone(Path("auto.parquet")) == 0.0
    assert follow("check", path) == 0.8, "back to the texts"
    assert follow("check", path, "--state", "observation") == 0.0
    assert follow("import", path, "--state", "history", "-o", "h.parquet") == 0.0
    plain = [json.loads(json.dumps(timed(n)).replace("Z]", "Z] step ")) for n in range(4)]
    for number, session in enumerate(plain):
        for place, message in enumerate(session["messages"]):
            message["content"] = re.sub(r"\[.*Z\]", "", message["content"])
            message["content"] += f" Used tokens: {100 * number + 7 * place}" * (place > 0)
    counting = lines(tmp_path, *plain, name="counts.jsonl")
    assert "tokens #" in run("check", counting).stderr
    assert follow("check", counting) < 0.3


@pytest.mark.parametrize("letters", [1000, 2_000, 1_000_000])
def test_a_key_is_proposed_from_some_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
):
    monkeypatch.setattr(keys, "SAMPLE", letters)
    sessions = [timed(n % 8) | {"task": f"t{n % 3}"} for n in range(24)]
    imported = import_files([lines(tmp_path, *sessions)])
    assert (imported.state, imported.alone["cleaned"]) == ("cleaned", 0.0)


STEP = {"group": "g", "trajectory": "t", "step": 0, "state": "s", "action": "a", "reward": 1.0}


@pytest.mark.parametrize("name", READING)
def test_every_command_reads_standard_input(tmp_path: Path, name: str):
    sessions = [chat(reward=1), chat("7", reward=0)]
    json_lines = "".join(f"\n{json.dumps(row)}\n" for row in sessions)
    texts = [json_lines, json.dumps(sessions), json.dumps(sessions, indent=1)]
    for text in [*texts, (DATA / "log.json").read_text()]:
        command(name, "-", out=tmp_path, stdin=text)
    if name != "import":
        command(name, "-", out=tmp_path, stdin=json.dumps(STEP))
    for text in ("{", "no JSON"):
        result = command(name, "-", out=tmp_path, stdin=text, code=1)
        assert "-: refused" in " ".join(result.stderr.split())


def test_advice_names_standard_input_as_it_was_typed():
    sessions = "".join(f"{json.dumps(timed(attempt))}\n" for attempt in range(4))
    said = run("check", "-", stdin=sessions).stderr
    assert said.startswith("-: OpenAI messages, 20 steps")
    assert "ascribe import - -o steps.parquet --state observation" in said


def test_standard_input_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(screen, "MAX_STDIN", 100)
    result = run("check", "-", stdin=json.dumps(chat("8" * 100, reward=1)), code=2)
    assert "standard input has more than 100 bytes\nhint: name a file" in result.stderr


def advantages(path: Path) -> list[Any]:
    row = json.loads(path.read_text().splitlines()[0])
    if "trajectories" in row:
        return [step["advantage"] for step in row["trajectories"][0]["steps"]]
    return [n["advantages"] for n in row["traces"][0]["nodes"] if n["sampled"]]


def test_credit_is_written_back(tmp_path: Path):
    steps = tmp_path / "steps.parquet"
    run("credit", DATA / "rllm.jsonl", "--out", steps, "--recipe", "grpo")
    expected = read(steps).credit.column("advantage").to_pylist()
    run("credit", DATA / "rllm.jsonl", "--out", tmp_path / "r.jsonl", "--recipe", "grpo")
    assert advantages(tmp_path / "r.jsonl") == expected[:4]
    run("credit", DATA / "traces.jsonl", "--out", tmp_path / "t.jsonl", "--recipe", "grpo")
    assert [each[0] for each in advantages(tmp_path / "t.jsonl")] == expected[:4]
    episode = json.loads((DATA / "rllm.jsonl").read_text().splitlines()[0])
    other = {**episode, "id": "port:9"}
    other["trajectories"] = [{**episode["trajectories"][0], "reward": 0.25}]
    (tmp_path / "e.json").write_text(json.dumps([episode, other]))
    run("credit", tmp_path / "e.json", "--out", tmp_path / "c.json", "--recipe", "grpo")
    first, second = json.loads((tmp_path / "c.json").read_text())
    assert first["trajectories"][0]["steps"][0]["advantage"] > 0
    assert second["trajectories"][0]["steps"][0]["advantage"] < 0


def test_formats_without_a_place_for_credit_give_a_table(tmp_path: Path):
    out = tmp_path / "c.jsonl"
    run("credit", DATA / "openai.jsonl", "--out", out)
    assert read(out).credit.num_rows == 16
    run("credit", DATA / "log.json", "--out", tmp_path / "c.json", code=2)


def test_report_needs_nothing_but_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = run("report", DATA / "openai.jsonl")
    assert "OpenAI messages, 16 steps" in " ".join(result.stderr.split())
    assert "openai.jsonl" in (tmp_path / "report.html").read_text(encoding="utf-8")


def ticket(calls: str, number: int, **other: Any) -> dict[str, Any]:
    """A session as a support desk might log it."""
    done = [{"name": "search_kb", "args": {"q": "login"}, "result": "3 found"}]
    asked = {"ticket": f"T-{number % 2}", "goal": "Help."}
    return {**asked, calls: done, "solved": number < 2, **other}


READERS = [*READING, "decisions"]


@pytest.mark.parametrize("name", READERS)
def test_a_log_of_no_format_is_refused_with_the_command_that_reads_it(tmp_path: Path, name: str):
    path = lines(tmp_path, *(ticket("done_by_agent", n, state="closed") for n in range(4)))
    refused = command(name, path, out=tmp_path, code=1).stderr
    assert "no_conversations" in refused
    assert "list of 1" in refused
    (hint,) = (row for row in refused.splitlines() if row.startswith("hint: "))
    words = shlex.split(hint.removeprefix("hint: ascribe "))
    assert words[:2] == [name, str(path)]
    options = "--messages done_by_agent --reward solved --group ticket"
    assert words[2:] == options.split()
    said = command(name, path, *words[2:], out=tmp_path)
    assert "task from ticket" in " ".join((said.stderr + said.stdout).split())


@pytest.mark.parametrize("name", READERS[1:])
def test_a_table_that_lacks_two_columns_is_a_table(tmp_path: Path, name: str):
    few = [{key: STEP[key] for key in STEP if key not in ("step", "reward")}]
    assert (
        "no column step or reward"
        in command(name, lines(tmp_path, *few), out=tmp_path, code=1).stderr
    )
    other = [{"uid": "g", "traj": "t", "t": 0, "context": "s", "completion": "a", "r": 1.0}]
    refused = command(name, lines(tmp_path, *other), out=tmp_path, code=1).stderr
    assert "did you mean uid for group" in " ".join(refused.split())


@pytest.mark.parametrize("calls", ["calls", "tool_calls"])
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_a_list_of_calls_with_results_is_read(tmp_path: Path, calls: str, suffix: str):
    sessions = [ticket(calls, number) for number in range(4)]
    path = lines(tmp_path, *sessions)
    if suffix == "json":
        path = tmp_path / "runs.json"
        path.write_text(json.dumps(sessions))
    imported = import_files([path])
    assert imported.balance is not None
    assert {name: [*found] for name, found in imported.balance.fields.items()} == {
        "messages": [calls],
        "question": ["goal"],
        "task": ["ticket"],
        "reward": ["solved"],
    }
    assert imported.table.action.texts() == ['{"arguments":{"q":"login"},"name":"search_kb"}'] * 4
    assert imported.table.reward.tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "record",
    [
        {"calls": [{"name": "gpt", "input": {"q": 1}, "output": "a"}]},  # of a model
        {"calls": [{"messages": [], "usage": 3}]},
        {"calls": [3, 4]},
        {"calls": [{"name": "f", "args": {}}]},  # returned nothing
    ],
)
def test_other_lists_of_calls_are_no_sessions(tmp_path: Path, record: dict[str, Any]):
    path = lines(tmp_path, {"ticket": "T-1", "solved": True, **record})
    assert "no_conversations" in run("import", path, code=1).stderr


def test_messages_come_before_calls(tmp_path: Path):
    known = chat(reward=1)
    imported = import_files([lines(tmp_path, ticket("calls", 1, **known))])
    assert (
        imported.table.action.texts() == import_files([lines(tmp_path, known)]).table.action.texts()
    )
