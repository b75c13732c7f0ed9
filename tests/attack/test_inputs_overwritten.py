"""No command overwrites what it reads unless it is told to."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe import StepTable, read_table, write_table
from ascribe.cli import app
from tests.conftest import good_rows


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    write_table(StepTable.from_dicts(good_rows()), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_credit_keeps_its_input(rollouts: Path) -> None:
    before = rollouts.read_bytes()
    link, twin = rollouts.with_name("link.parquet"), rollouts.with_name("twin.parquet")
    link.symlink_to(rollouts)
    os.link(rollouts, twin)
    for out in (rollouts, link, twin, rollouts.parent / "." / "a.parquet"):
        code, output = run("credit", rollouts, "--out", out)
        assert code == 2
        assert "add --force" in " ".join(output.split())
    assert rollouts.read_bytes() == before
    code, output = run("credit", rollouts, "--recipe=gigpo", "--out", rollouts, "--force")
    assert code == 0, output
    assert len(read_table(rollouts)) == 50
    code, output = run("credit", rollouts, "--recipe=grpo", "--out", rollouts, "--force")
    assert "Dropped columns of an earlier credit: advantage_step, reason_step." in output
    same = rollouts.with_name("b.jsonl")
    assert run("credit", rollouts, "--recipe=ccpo", "--out", same, "--history", same)[0] == 2


def test_a_report_keeps_its_inputs(rollouts: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra report")
    named = rollouts.rename(rollouts.with_name("verdict.parquet"))  # as one of its tables is
    page = rollouts.with_name("page.html")
    arguments = ("report", named, "--out", page, "--tables", named.parent)
    before = named.read_bytes()
    code, output = run(*arguments)
    assert code == 2
    assert "add --force" in " ".join(output.split())
    assert named.read_bytes() == before
    assert not page.exists()


def test_pivots_keep_their_inputs(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    message = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]
    traces.write_text(json.dumps({"messages": message}) + "\n")
    before = traces.read_bytes()
    assert run("pivots", "extract", traces, "--out", traces)[0] == 2
    assert traces.read_bytes() == before
    turns = tmp_path / "turns.jsonl"
    code, output = run("pivots", "extract", traces, "--out", turns)
    assert code == 0, output
    before = turns.read_bytes()
    code, output = run(
        "pivots", "profile", turns, "--model", "http://127.0.0.1:1", "--answers", turns
    )
    assert code == 2
    assert "names the candidates" in output
    verifier = '{"any": ["tool_call"]}'
    assert run("pivots", "select", turns, "--verifier", verifier, "--out", turns)[0] == 2
    assert turns.read_bytes() == before
    turns.write_bytes(b"".join(before.splitlines(keepends=True)[:2]))  # cut short
    code, output = run("pivots", "report", turns, "--verifier", "tool_call")
    assert code == 2
    assert "no end mark" in " ".join(output.split())


def test_a_run_keeps_the_config_that_it_is_started_by(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    config = tmp_path / "config.yaml"
    text = "# mine\nmodel: {path: smollm2}\nenvironment: {name: sokoban}\noutput: {folder: %s}\n"
    config.write_text(text % tmp_path)
    code, output = run("train", config, "--dry-run")
    assert code == 2
    assert "would overwrite" in " ".join(output.split())
