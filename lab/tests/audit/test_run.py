"""An audit from end to end, small."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ascribe_lab.audit import QUICK, WORLDS, Audit, audit, scored_recipe
from ascribe_lab.audit.report import BETTER, AuditTables, json_lines
from ascribe_lab.audit.run import METRICS, interval
from ascribe_lab.cli.audit import audit as command

pytestmark = pytest.mark.unit

FEW = replace(
    QUICK,
    worlds={name: WORLDS[name] for name in ("graph", "keydoor")},
    blocks=3,
    batches=2,
    tasks=4,
    updates=2,
)
SMALL = replace(FEW, plain=True)
NAMES = ("grpo", "gigpo_mean", "sbc")


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit({name: scored_recipe(name) for name in NAMES}, SMALL)


def test_every_case_has_every_metric(found: Audit) -> None:
    assert set(found.scores) == {(w, n, 8) for w in SMALL.worlds for n in NAMES}
    for metrics in found.scores.values():
        assert set(metrics) == set(METRICS) == set(BETTER)
        for values in metrics.values():
            assert values.shape == (SMALL.blocks,)
            assert np.isfinite(values).all()


def test_by_default_policies_learn_once_with_momentum(found: Audit) -> None:
    once = audit({"sbc": scored_recipe("sbc")}, FEW)
    assert once.metrics(8) == [name for name in METRICS if name != "learning_auc"]
    assert not AuditTables(json_lines(once)).has(8, "learning_auc")
    for world in SMALL.worlds:
        for metric, values in once.scores[world, "sbc", 8].items():
            np.testing.assert_array_equal(values, found.scores[world, "sbc", 8][metric])


def test_the_same_settings_give_the_same_numbers(found: Audit) -> None:
    again = audit({"sbc": scored_recipe("sbc")}, SMALL)
    for world in SMALL.worlds:
        for metric, values in again.scores[world, "sbc", 8].items():
            np.testing.assert_array_equal(values, found.scores[world, "sbc", 8][metric])


@pytest.mark.slow
def test_processes_change_nothing(found: Audit) -> None:
    shared = audit({name: scored_recipe(name) for name in NAMES}, SMALL, processes=2)
    for case, metrics in found.scores.items():
        for metric, values in metrics.items():
            np.testing.assert_array_equal(values, shared.scores[case][metric])


def test_no_recipe_reaches_the_truth(found: Audit) -> None:
    """A cosine of 1 is the truth's; no recipe may reach it, none should be worse than nothing."""
    for name in NAMES:
        for metric in ("cosine", "update_cosine", "gradient_cosine"):
            assert 0.0 < found.estimate("mean", name, 8, metric).value < 1.0


def test_lines_are_in_the_language_of_benchmarks(found: Audit) -> None:
    lines = list(json_lines(found, "sbc"))
    for line in lines:
        assert {"bench", "case", "metric", "value", "unit", "goal", "better"} <= set(line)
        assert line["bench"] == "audit"
        assert line["low"] <= line["value"] <= line["high"]
        json.dumps(line, allow_nan=False)
    cases = {line["case"] for line in lines}
    assert {"graph/sbc/8", "mean/grpo/8", "keydoor/sbc minus gigpo_mean/8"} <= cases


def test_intervals_hold_the_mean_and_shrink_with_agreement() -> None:
    spread, tight = interval(np.array([0.0, 1.0, 2.0])), interval(np.array([1.0, 1.0, 1.0]))
    assert spread.low < spread.value == 1.0 < spread.high
    assert tight.low == tight.high == 1.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("grppo", "no recipe 'grppo'"),
        ("no_such_module:Thing", "cannot import"),
        ("lab.tests.audit.own:Nothing", "cannot import"),
        ("lab.tests.audit.own:NOT_A_RECIPE", "cannot be called"),
    ],
)
def test_what_cannot_be_scored_is_said(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scored_recipe(name)


runner = CliRunner()
app = typer.Typer()
app.command()(command)
TINY = ["--world", "keydoor", "--blocks", "2", "--processes", "1"]


def test_the_command_scores_a_recipe_of_ones_own() -> None:
    options = [*TINY, "--recipe", "lab.tests.audit.own:Mine", "--json", "--plain"]
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    mine = [line for line in lines if line["case"] == "keydoor/lab.tests.audit.own:Mine/8"]
    assert {line["metric"] for line in mine} == set(METRICS)


def test_the_command_prints_tables() -> None:
    result = runner.invoke(app, TINY)
    assert result.exit_code == 0, result.output
    assert "Means over worlds" in result.stdout
    assert "sbc" in result.stdout


def test_a_wrong_call_is_said() -> None:
    for options in (["--world", "mars"], ["--recipe", "nobody"]):
        assert runner.invoke(app, options).exit_code == 2


@pytest.mark.slow
def test_processes_find_a_recipe_in_the_working_folder(tmp_path: Path) -> None:
    source = (Path(__file__).parent / "own.py").read_text(encoding="utf-8")
    (tmp_path / "my_module.py").write_text(source, encoding="utf-8")
    code = "import typer; from ascribe_lab.cli.audit import audit\nif __name__ == '__main__':\n"
    (tmp_path / "run.py").write_text(f"{code}    typer.run(audit)\n", encoding="utf-8")
    options = ["--recipe", "my_module:Mine", "--world", "stop", "--blocks", "2", "--json"]
    run = [sys.executable, "run.py", *options, "--processes", "2"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "stop/my_module:Mine/8" in done.stdout
