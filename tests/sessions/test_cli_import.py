"""``ascribe import``, and the commands that take conversations directly."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app
from ascribe.steps.files import read
from tests.sessions.test_formats import DATA, FILES, chat, lines

pytestmark = pytest.mark.unit


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
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
        (["--state", "room"], "no state 'room'; there are: auto, observation"),
        (["--from", "csv"], "no format 'csv'; there are: atif, inspect"),
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
    assert "Inspect log, 16 steps in 4 trajectories; state: observation" in " ".join(
        result.stderr.split()
    )


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
    pytest.importorskip("vl_convert", reason="needs the extra report")
    monkeypatch.chdir(tmp_path)
    result = run("report", DATA / "openai.jsonl")
    assert "OpenAI messages, 16 steps" in " ".join(result.stderr.split())
    assert (tmp_path / "report.html").stat().st_size > 100_000
