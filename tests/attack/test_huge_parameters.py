"""A penalty or a weight of 1e308 is refused; nothing that is not finite is called credited."""

import math
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pytest
from typer.testing import CliRunner

from ascribe import RECIPES, Credit, Recipe, StepTable, check, recipe
from ascribe.cli import app
from ascribe.estimators import BUILT_IN
from ascribe.estimators.credit import Term
from tests.conftest import INPUTS, write_jsonl

NUMBERS = [
    (name, parameter.name)
    for name in BUILT_IN
    for parameter in fields(RECIPES[name])
    if get_type_hints(RECIPES[name])[parameter.name] is float
]


def rows(scale: float = 1.0) -> list[dict[str, Any]]:
    return [
        {
            "group": f"g{g}",
            "trajectory": f"g{g}/{t}",
            "step": s,
            "state": f"s{g}{s}",
            "action": f"a{(g + t + s) % 2}",
            "reward": scale * ((t * 7 + s * 3 + g) % 5 - 2),
            "valid": (t + s) % 3 > 0,
            "agent": f"agent {s}",
            "without": scale * ((t + s) % 2),
            "corrects": None,
        }
        | {name: scale * value for name, value in INPUTS.items()}
        for g, t, s in product(range(2), range(4), range(2))
    ]


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
@pytest.mark.parametrize("value", [1e308, -1e308, math.inf, math.nan])
def test_the_parameter_is_refused(name: str, parameter: str, value: float) -> None:
    with pytest.raises(ValueError, match=parameter):
        recipe(name, **{parameter: value})


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
def test_the_largest_value_that_is_taken_gives_finite_credit(name: str, parameter: str) -> None:
    low, high = RECIPES[name].ranges[parameter]
    has_fingerprint = "fingerprint" in {field.name for field in fields(RECIPES[name])}
    clustered = {"fingerprint": "identity"} if has_fingerprint else {}
    table = StepTable.from_dicts(rows(4e99))
    for value in (low, high):
        try:
            estimator = recipe(name, **clustered, **{parameter: value})
        except ValueError:
            continue  # some recipes refuse a bound for reasons of their own
        with np.errstate(all="raise", under="ignore"):
            credit = estimator(table)
        assert np.isfinite(credit.advantage).all()


def test_the_command_says_which_parameter(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "steps.jsonl", rows())
    for setting in ("invalid_penalty=1e308", "weight=1e308"):
        call = ["credit", str(file), "--out", str(tmp_path / "out.jsonl"), "--set", setting]
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 2
        assert setting.split("=")[0] in done.output
        assert not (tmp_path / "out.jsonl").exists()


@dataclass(frozen=True, kw_only=True)
class Overflowing(Recipe):
    """A recipe of another package with a bug."""

    name: ClassVar[str] = "overflowing"
    paper: ClassVar[str] = "none"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        size = len(table)
        reason = np.zeros(size, dtype=np.int8)
        values = np.where(np.arange(size) == 3, math.nan, 1.0)
        return Credit.of({"step": Term(values, reason, np.zeros(size, dtype=np.int64))}, repr(self))


def test_a_result_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"advantage is not finite in rows 3"):
        Overflowing()(StepTable.from_dicts(rows()))


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308])
def test_what_a_team_earns_without_an_agent_is_finite(value: float) -> None:
    spoilt = rows()
    spoilt[3]["without"] = value
    problems = check(StepTable.from_dicts(spoilt)).problems
    assert [3] in [
        problem.rows.tolist() for problem in problems if problem.severity.name == "FATAL"
    ]
