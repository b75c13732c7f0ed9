"""``ascribe report`` from the shell."""

import json
import os
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from ascribe import StepTable, TableError, recipe
from ascribe.cli import app
from ascribe.engines.metrics import HELD_OUT, NAME
from ascribe.reports import picture
from ascribe.steps.files import table_to_arrow, write
from ascribe.steps.hints import install
from tests.conftest import write_jsonl
from tests.report.toys import sound

runner = CliRunner()
CONVERSATIONS = Path(__file__).parents[2] / "examples/conversations.jsonl"


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "rollouts.jsonl", sound())


def run(*arguments: object) -> tuple[int, str, str]:
    done = runner.invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_it_writes_a_page_and_says_the_verdict(rollouts: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    code, said, _ = run(rollouts, rollouts, "--out", out, "--compare", "grpo")
    assert code == 0, said
    assert "Every step is compared with other steps in the same state." in said
    assert "change sign from sbc to grpo" in " ".join(said.split())
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_it_prints_json_and_writes_what_was_asked_for(rollouts: Path, tmp_path: Path) -> None:
    out, tables = tmp_path / "report.html", tmp_path / "tables"
    code, said, _ = run(rollouts, "--out", out, "--recipe", "grpo", "--tables", tables, "--json")
    assert code == 0
    found = json.loads(said)
    assert found["bytes"] == out.stat().st_size
    schema = Path(__file__).parents[2] / "docs/report.schema.json"
    Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(found)
    assert found["answers"]["training"]["findings"][0]["finding"] == "nothing_wrong"
    assert (tables / "reasons.csv").exists()


DIAGNOSTICS = {
    HELD_OUT: 0.25,
    "ascribe/success": 0.5,
    "ascribe/singleton_share": 0.4,
    "ascribe/matched_pairs": 12,
    "ascribe/mean_group_size": 2.5,
    "ascribe/credit/pace": 0.8,
    "ascribe/parse_rate": 0.9,
    "actor/entropy": 1.5,
    "response_length/mean": 30.0,
}


def test_a_run_s_folder_is_drawn(tmp_path: Path) -> None:
    """Held-out tasks and diagnostics from its metrics, the rest from its rollouts if there are."""
    pytest.importorskip("vl_convert", reason="needs the extra report")
    pytest.importorskip("yaml", reason="needs the extra trl or verl")
    folder, out = tmp_path / "run", tmp_path / "report.html"
    (folder / "rollouts").mkdir(parents=True)
    config = "model: {path: m}\nrecipe: {name: grpo}\nevaluation: {threshold: 0.7}\n"
    (folder / "config.yaml").write_text(config)
    last = DIAGNOSTICS | {HELD_OUT: 0.75}
    write_jsonl(folder / NAME, [{"iteration": 1, **DIAGNOSTICS}, {"iteration": 2, **last}])
    code, said, noted = run(folder, "--out", out)
    assert code == 0, noted
    assert "75.0% at best (val@max, iteration 2)" in " ".join(said.split())
    assert "70.0% first reached in iteration 2" in " ".join(said.split())
    assert "kept no rollouts" in noted
    write(table_to_arrow(StepTable.from_dicts(sound())), folder / "rollouts/rollouts_00000.parquet")
    code, said, _ = run(folder, "--out", out, "--tables", tmp_path / "tables", "--json")
    assert code == 0, said
    assert "75.0% at best" in json.loads(said)["run"]
    page = out.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert data["recipe"] == "grpo"
    drawn = {name.removeprefix("run_") for name in data["figures"] if name.startswith("run_")}
    assert drawn == {
        *("success", "signal", "entropy"),
        "response_tokens",
    }
    assert [row["held_out"] for row in data["tables"]["run"]] == [0.25, 0.75]
    assert (tmp_path / "tables" / "run.csv").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "report.txt"], "give report.txt the suffix .html"),
        (["--out", "r.html", "--recipe", "none"], "no recipe 'none'"),
        (["--out", "r.html", "--compare", "none"], "no recipe 'none'"),
        (["--out", "r.html", "--against", "none"], "cannot open or write none"),
        (["--out", "r.html", "--against", "grpo"], "recipes are compared with --compare"),
        (["--out", "r.html", "--session", "none"], "there is no session 'none'"),
        (["--out", "r.html", "--png", "r.gif"], "the suffix .png"),
        (["--out", "no/such/folder/r.html"], "cannot open or write"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    rollouts: Path, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = run(rollouts, *options)
    assert code == 2
    assert said in " ".join(error.split())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, _, error = run(tmp_path / "none.parquet", "--out", tmp_path / "r.html")
    assert code == 2
    assert "No such file" in " ".join(error.split())


def test_rollouts_that_cannot_be_credited_are_refused(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "bad.jsonl", [row | {"reward": None} for row in sound()])
    code, _, error = run(file, "--out", tmp_path / "r.html")
    assert code == 1
    assert "non_finite_reward" in error
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("fault", ["unreadable", "no right answer"])
def test_a_refusal_names_the_file_that_is_at_fault(
    rollouts: Path, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [row | {"reward": None} for row in sound()] if fault == "no right answer" else [{"a": 1}]
    write_jsonl(tmp_path / "bad.jsonl", rows)
    files = (rollouts.name, "bad.jsonl", rollouts.name)
    code, _, error = run(*files, "--out", "r.html")
    assert code == 1
    assert "bad.jsonl: refused" in error
    assert "rollouts.jsonl" not in error
    _, said, _ = run(*files, "--out", "r.html", "--json")
    assert json.loads(said)["file"] == "bad.jsonl"


def test_a_refusal_names_the_iteration_and_the_rows_of_the_file(tmp_path: Path) -> None:
    rows = [row | {"iteration": n // 60} for n, row in enumerate(sound())]
    for row in rows[60:]:
        row["reward"] = None
    file = write_jsonl(tmp_path / "run.jsonl", rows)
    code, said, _ = run(file, "--out", tmp_path / "r.html", "--json")
    assert code == 1
    (problem,) = json.loads(said)["problems"]
    assert problem["detail"].startswith("iteration 1: ")
    assert problem["rows"] == list(range(60, 80))
    with pytest.raises(TableError, match=r"^run\.jsonl: fatal non_finite_reward: iteration 1: "):
        picture([file], recipe("gigpo"))


def test_without_the_extra_it_says_what_to_install(
    rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    code, _, error = run(rollouts, "--out", tmp_path / "r.html", "--png", tmp_path / "r.png")
    assert code == 2
    assert install("report") in error
    assert run(rollouts, "--out", tmp_path / "r.html")[0] == 0


def test_it_answers_in_the_terminal(rollouts: Path, tmp_path: Path) -> None:
    code, said, _ = run(rollouts, "--out", tmp_path / "r.html", "--session", "task 0/0")
    said = " ".join(said.split())
    assert code == 0
    assert "12 of 24 attempts at 6 tasks won: 50 %" in said
    assert "Session task 0/0 won in 5 steps." in said
    sides = "won 0 % of 12, those with `left` in its place 100 % of 12."
    assert f"Attempts with a call of `right` {sides}" in said


def test_the_best_step_of_a_won_session_comes_first(tmp_path: Path) -> None:
    def told(session: str) -> list[str]:
        _, said, _ = run(
            CONVERSATIONS, "--out", tmp_path / "r.html", "--session", f"app port/line {session}"
        )
        return re.findall(r"Its (.+?) step is", " ".join(said.split()))

    assert told("1") == ["costliest", "least harmful"]  # lost
    assert told("2") == ["best", "costliest"]


def test_two_versions_end_with_the_verdict_of_decisions(tmp_path: Path) -> None:
    rows = [
        row | {"state": f"{row['state']} {row['trajectory']}"} if row["step"] else row
        for row in sound()
    ]
    worse = [row | {"reward": row["reward"] * (row["group"] == "task 0")} for row in rows]
    old, new = (
        write_jsonl(tmp_path / f"{name}.jsonl", each)
        for name, each in (("old", rows), ("new", worse))
    )
    code, said, _ = run(new, "--against", old, "--out", tmp_path / "r.html")
    assert code == 0
    decided = runner.invoke(app, ["decisions", str(old), str(new)]).stdout
    _, printed, _ = run(new, "--against", old, "--out", tmp_path / "r.html", "--json")
    changed = json.loads(printed)["answers"]["changed"]
    assert changed["failed"]
    assert changed["verdict"].startswith("failed: drop > 0 and q <= 0.1")
    assert len(changed["lost"]) == 5
    for shown in (said, decided):
        assert f"Verdict: {changed['verdict']}." in " ".join(shown.split())
        assert len(shown.splitlines()) <= 40
    gate = ["--fail-if", "drop > 0 and q <= 0.1"]
    failed = runner.invoke(app, ["decisions", str(old), str(new), *gate])
    assert failed.exit_code == 1
    assert changed["verdict"] in " ".join(failed.stderr.split())
    assert runner.invoke(app, ["decisions", str(new), str(old), *gate]).exit_code == 0


@pytest.mark.parametrize(("old", "new"), [("", "_sft"), ("_sft", "")])
def test_two_real_versions_fit_on_a_screen(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.environ.get("ASCRIBE_TEST_DATA", "none"), "real/tau2_telecom")
    if not folder.exists():
        pytest.skip("ASCRIBE_TEST_DATA names no folder with real sessions")
    files = [folder / f"telecom_gpt41{name}.json" for name in (old, new)]
    monkeypatch.setenv("COLUMNS", "80")
    for command in (
        ["decisions", *map(str, files)],
        ["report", str(files[1]), "--against", str(files[0]), "--out", str(tmp_path / "r.html")],
    ):
        said = runner.invoke(app, command).stdout.splitlines()
        assert len(said) <= 40
        assert max(map(len, said)) <= 80
        assert any(line.startswith("Verdict: ") for line in said)
