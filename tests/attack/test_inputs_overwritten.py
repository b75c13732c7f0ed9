"""No command overwrites what it reads unless it is told to."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe import StepTable, write_table
from ascribe.cli import app
from ascribe.steps.files import read_table
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
