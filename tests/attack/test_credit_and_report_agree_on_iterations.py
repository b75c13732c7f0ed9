"""A column ``iteration`` means the same to every command: each iteration is credited by itself."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ascribe import (
    ProblemKind,
    StepTable,
    TableError,
    assign,
    check,
    diagnose,
    recipe,
    select,
    write_table,
)
from ascribe.cli import app
from ascribe.estimators import BUILT_IN, RECIPES
from ascribe.reports.crediting import credit_batches
from ascribe.reports.reading import read_batches
from ascribe.steps.files import read_table
from tests.conftest import INPUTS, good_rows, write_jsonl


def two_iterations() -> list[dict[str, Any]]:
    """The same task in two iterations; the second earns ten more, whatever it does."""
    return [
        {
            "group": "task",
            "trajectory": f"{iteration}/{index}",
            "step": 0,
            "state": "start",
            "action": f"a{index}",
            "reward": 10.0 * iteration + index,
            "iteration": iteration,
        }
        for iteration, index in product(range(2), range(2))
    ]


def with_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The names of trajectories start anew in every iteration."""
    return [row | {"trajectory": row["trajectory"].split("/")[-1]} for row in rows]


@pytest.mark.parametrize("names", [list, with_names])
def test_credit_and_report_give_the_same(tmp_path: Path, names: Any) -> None:
    file = write_jsonl(tmp_path / "run.jsonl", names(two_iterations()))
    out = tmp_path / "out.jsonl"
    call = ["credit", str(file), "--out", str(out), "--recipe", "dr_grpo", "--json"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    rows = [row for row in rows if "advantage" in row]
    assert [row["advantage"] for row in rows] == [-0.5, 0.5, -0.5, 0.5]
    assert json.loads(done.stdout)["diagnosis"]["groups"] == 2
    reported = credit_batches(read_batches([file], fingerprints=False), recipe("dr_grpo"))
    assert reported.credit.advantage.tolist() == [-0.5, 0.5, -0.5, 0.5]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_recipe_credits_iterations_as_a_trainer_does(name: str) -> None:
    more = INPUTS | {"without": 0.5, "corrects": None}
    rows = [row | more for row in good_rows() if not row["padding"]]
    random = np.random.default_rng(7)
    parts = []
    for iteration in (2, 10, 3):
        for row in rows:
            reward = float(random.integers(0, 5))
            parts.append(row | {"iteration": iteration, "reward": reward})
    parts = [parts[i] for i in random.permutation(len(parts))]
    parts.append(parts[0] | {"iteration": 99, "padding": True})
    whole = StepTable.from_dicts(parts)
    has_fingerprint = "fingerprint" in RECIPES[name].__dataclass_fields__
    estimator = recipe(name, **({"fingerprint": "ngram"} if has_fingerprint else {}))
    credit = estimator(whole)
    history = None
    for iteration in (2, 3, 10):
        place = [i for i, row in enumerate(parts) if row["iteration"] == iteration]
        alone = StepTable.from_dicts([parts[i] for i in place])
        inputs = {"history": history} if "history" in estimator.inputs else {}
        expected = estimator(alone, **inputs)
        history = expected.history
        assert credit.advantage[place].tolist() == expected.advantage.tolist()
        assert credit.reason[place].tolist() == expected.reason.tolist()
        for key, term in expected.terms.items():
            assert credit.terms[key].own[place].tolist() == term.own.tolist()
        for key, value in expected.metrics.items():
            assert credit.metrics[f"iteration {iteration}/{key}"] == value
    assert credit.history == history
    assert diagnose(whole, credit).groups == 3 * len({row["group"] for row in rows})


def test_problems_are_found_in_their_iteration() -> None:
    rows = with_names(two_iterations())
    problems = check(StepTable.from_dicts(rows)).problems
    assert [p.kind for p in problems] == [ProblemKind.ONE_STATE_ONLY]
    assert problems[0].detail.endswith("; and in 1 more iteration")
    rows[2]["step"] = 1
    report = check(StepTable.from_dicts(rows))
    assert [(p.kind, p.rows.tolist()) for p in report.problems] == [
        (ProblemKind.LATE_START, [2]),
        (ProblemKind.ONE_STATE_ONLY, [0, 1]),
    ]
    with pytest.raises(TableError, match="late_start"):
        recipe("grpo")(StepTable.from_dicts(rows))
    with pytest.raises(TableError, match=r"late_start.*\(rows 2\)"):
        assign(StepTable.from_dicts(rows), recipe("grpo"))
    selection = select(StepTable.from_dicts(rows), "drop")
    assert selection.keep.tolist() == [True, True, False, False]
    assert selection.dropped == {"iteration 1: task": "late_start"}
    credit = assign(StepTable.from_dicts(rows), recipe("dr_grpo"), "drop").credit
    assert credit.advantage.tolist() == [-0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("value", ["first", 1.5, None])
def test_an_iteration_that_is_no_integer_is_refused(value: Any) -> None:
    rows = two_iterations()
    rows[1]["iteration"] = value
    with pytest.raises(TableError, match="wrong_type: column iteration"):
        StepTable.from_dicts(rows)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_files_keep_the_column(tmp_path: Path, suffix: str) -> None:
    table = StepTable.from_dicts(two_iterations())
    write_table(table, tmp_path / f"steps{suffix}")
    again = read_table(tmp_path / f"steps{suffix}")
    assert again.iteration is not None
    assert again.iteration.tolist() == [0, 0, 1, 1]


def test_show_keeps_iterations_apart(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "run.jsonl", with_names(two_iterations()))
    done = CliRunner().invoke(app, ["show", str(file), "--recipe", "dr_grpo", "--json"])
    shown = json.loads(done.stdout)
    assert [(row["iteration"], row["advantage"]) for row in shown] == [(0, -0.5), (1, -0.5)]
