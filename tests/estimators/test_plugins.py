"""Recipes of other packages, by the entry point group ``ascribe.recipes``."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ascribe import RECIPES, Reason, StepTable, recipe
from ascribe.cli import app
from ascribe.estimators import BUILT_IN
from ascribe.reports import picture
from ascribe.steps.plugins import PluginError
from tests.conftest import write_jsonl
from tests.estimators.test_explanation import assert_follows
from tests.report.toys import sound

EXAMPLE = Path(__file__).parents[2] / "examples" / "recipe_package"


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, points: dict[str, str]) -> None:
    """Make entry points known as an installed package does, by a ``.dist-info`` on the path."""
    info = folder / "somebodys_recipes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-recipes\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[ascribe.recipes]", *lines, ""]))
    monkeypatch.syspath_prepend(folder)


@pytest.fixture
def median(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The example package, as its ``pyproject.toml`` describes it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(EXAMPLE)
    install(monkeypatch, tmp_path, project["entry-points"]["ascribe.recipes"])
    return tmp_path


@pytest.mark.usefixtures("median")
def test_the_example_is_a_recipe_like_any_other() -> None:
    assert list(RECIPES) == [*BUILT_IN, "median"]
    assert len(RECIPES) == len(BUILT_IN) + 1
    returns = [0.0, 1.0, 5.0, 0.5]
    rows = [
        {"group": "g", "trajectory": str(n), "step": 0, "state": "s", "action": "a", "reward": paid}
        for n, paid in enumerate(returns)
    ]
    rows.append(rows[0] | {"group": "alone", "trajectory": "alone"})
    credit = recipe("median")(StepTable.from_dicts(rows))
    np.testing.assert_allclose(credit.advantage, [-0.75, 0.25, 4.25, -0.25, 0.0])
    assert credit.reason[-1] == Reason.GROUP_OF_ONE
    assert_follows(credit.terms["episode"])
    with pytest.raises(ValueError, match="median has no parameter 'weight'"):
        recipe("median", weight=2.0)


@pytest.mark.usefixtures("median")
def test_the_commands_know_it() -> None:
    listed = CliRunner().invoke(app, ["recipes"])
    assert listed.exit_code == 0
    assert "median" in listed.stdout
    assert "an example" in listed.stdout
    one = CliRunner().invoke(app, ["recipes", "median"])
    assert "Returns of trajectories against the median of their task group." in one.stdout


def test_a_report_explains_it(median: Path) -> None:
    found = picture([write_jsonl(median / "rows.jsonl", sound())], recipe("median"))
    (sentence,) = found.browser["recipes"][0]["sentences"]["episode"]
    assert sentence["text"].startswith("the median return of the {peers} trajectories")
    page = median / "report.html"
    found.write(page)
    assert "the median return of the {peers} trajectories" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_module:Thing", "No module named 'no_such_module'"),
        ("json:loads", "no subclass of ascribe.Recipe"),
        ("ascribe.estimators.gigpo:GiGPO", "has the name 'gigpo'"),
    ],
)
def test_a_broken_one_is_named_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, problem: str
) -> None:
    install(monkeypatch, tmp_path, {"broken": value})
    with pytest.raises(PluginError, match=f"broken = {value} of somebodys-recipes") as caught:
        recipe("broken")
    assert problem in str(caught.value)
    assert recipe("gigpo").name == "gigpo"
    listed = CliRunner().invoke(app, ["recipes"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in ("bipace_q", "somebodys-recipes"))
    assert CliRunner().invoke(app, ["recipes", "broken"]).exit_code == 2


def test_one_with_the_name_of_ours_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, {"gigpo": "no_such_module:Thing"})
    assert list(RECIPES) == list(BUILT_IN)
    assert recipe("gigpo").name == "gigpo"


FOR_GIGPO = {
    "ascribe",
    "ascribe.estimators.diagnostics",
    "ascribe.estimators",
    "ascribe.estimators.assign",
    "ascribe.estimators.base",
    "ascribe.estimators.credit",
    "ascribe.estimators.gigpo",
    "ascribe.estimators.relative",
    "ascribe.groups",
    "ascribe.groups.actions",
    "ascribe.groups.exact",
    "ascribe.groups.responses",
    "ascribe.groups.similar",
    "ascribe.steps",
    "ascribe.steps.arrays",
    "ascribe.steps.atomic",
    "ascribe.steps.check",
    "ascribe.steps.hints",
    "ascribe.steps.plugins",
    "ascribe.steps.files",
    "ascribe.steps.lines",
    "ascribe.steps.problems",
    "ascribe.steps.returns",
    "ascribe.steps.errors",
    "ascribe.steps.segments",
    "ascribe.steps.select",
    "ascribe.steps.starts",
    "ascribe.steps.strict_json",
    "ascribe.steps.table",
}
"""What ``ascribe.estimators.gigpo`` loads of this package: no other recipe."""


def test_a_recipe_loads_little() -> None:
    code = "import sys, ascribe.estimators.gigpo; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules = set(loaded.stdout.split())
    assert {name for name in modules if name.partition(".")[0] == "ascribe"} <= FOR_GIGPO
    assert not modules & {"pyarrow", "torch", "pandas", "rapidfuzz", "pydantic", "typer"}
