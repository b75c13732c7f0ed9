"""People's own code: ``module:Name`` and entry points, in every command, and what is never run."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from ascribe import Reason, assign, recipe
from ascribe.cli import app, screen
from ascribe.estimators.credit import Term
from ascribe.steps.files import read_table
from ascribe.steps.plugins import PluginError
from ascribe_lab.envs import make
from ascribe_lab.envs.registry import catalogue, list_options
from ascribe_lab.train.config import Config
from ascribe_lab.train.launch import check_config
from tests.conftest import good_rows, write_jsonl

MINE = '''
"""A recipe and an environment of a user's own."""
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ascribe_lab.envs import Outcome, Start, TextEnvironment
from ascribe.estimators import DrGRPO
from ascribe.estimators.credit import Credit, Reason, Term


@dataclass(frozen=True, kw_only=True)
class Mine(DrGRPO):
    """Nothing new under the sun."""

    name: ClassVar[str] = "mine"
    paper: ClassVar[str] = "none"
    strength: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Swapped(Mine):
    """Reasons and labels in the wrong order."""

    def compute(self, table, inputs):
        rows = len(table)
        reason = np.full(rows, Reason.CREDITED, np.int8)
        term = Term(np.ones(rows), np.arange(rows), reason)
        return Credit.of({"step": term}, repr(self))


class Door(TextEnvironment[dict]):
    """A door.

    Args:
        key: which one fits; any of
            three.
        colour: of the door.
    """

    tasks = 3

    def __init__(self, *, key: int = 0, colour: Literal["red", "blue"] = "red"):
        super().__init__(horizon=3)
        self.key = key

    def begin(self, task, generator):
        return Start({"fits": self.key}, "Three keys lie before a door.", "Open the door.", "door")

    def act(self, episode, action):
        won = action == f"key {episode['fits']}"
        text = "It opens." if won else "It stays shut."
        return Outcome(text, float(won), terminated=won, won=won)

    def admissible(self, episode):
        return ["key 0", "key 1", "key 2"]


NOT_A_RECIPE = 3
'''


def run(*arguments: object) -> Result:
    screen.out.width = screen.err.width = 300
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a user, with a module and a file of steps."""
    (tmp_path / "own_code.py").write_text(MINE)
    write_jsonl(tmp_path / "steps.jsonl", good_rows())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    yield tmp_path
    sys.modules.pop("own_code", None)


def test_a_recipe_of_this_folder_in_every_command(folder: Path) -> None:
    own = ["--recipe", "own_code:Mine", "--set", "strength=2"]
    credited = run("credit", "steps.jsonl", "--out", "c.jsonl", *own, "--json")
    assert credited.exit_code == 0, credited.stderr
    assert json.loads(credited.stdout)["recipe"] == "mine"
    assert run("show", "steps.jsonl", *own).exit_code == 0
    listed = run("recipes", "own_code:Mine")
    assert "strength" in listed.stdout
    assert "Nothing new under the sun." in listed.stdout
    wrong = run("credit", "steps.jsonl", "--out", "c.jsonl", *own[:2], "--set", "strenght=2")
    assert wrong.exit_code == 2
    assert "did you mean strength?" in wrong.stderr


def test_an_environment_of_this_folder_in_every_command(folder: Path) -> None:
    own = ["--env", "own_code:Door", "--set", "key=1", "--model", "random"]
    played = run("rollout", *own, "--groups", 2, "--size", 2, "--out", "r.jsonl", "--workers", 1)
    assert played.exit_code == 0, played.stderr
    assert len(set(read_table(folder / "r.jsonl").trajectory.texts())) == 4
    assert run("eval", *own, "--tasks", 2, "--pool", "serial").exit_code == 0
    assert run("env", "check", "own_code:Door", "--set", "key=2", "--seeds", 1).exit_code == 0
    wrong = run("rollout", *own, "--set", "color=red", "--out", "x.jsonl")
    assert wrong.exit_code == 2
    assert "has no option 'color'\nhint: did you mean colour? it takes: key, colour" in wrong.stderr


def test_the_options_of_an_environment_are_listed(folder: Path) -> None:
    table = re.sub(r"[\s│]+", " ", run("env", "options", "own_code:Door").stdout)
    assert 'key int 0 which one fits; any of three. colour red, blue "red" of the door.' in table
    listed = json.loads(run("env", "options", "sokoban", "--json").stdout)
    assert [one["name"] for one in listed] == ["size", "boxes", "horizon", "expert"]
    assert listed[1] | {"meaning": ""} == {
        "name": "boxes",
        "type": "list of int",
        "default": [1, 2],
        "required": False,
        "meaning": "",
    }
    wrong = run("env", "options", "sokobam")
    assert wrong.exit_code == 2
    assert "did you mean sokoban?" in wrong.stderr


@pytest.mark.parametrize("name", ["textcraft", "webshop", "search_qa", "maths", "pivots", "team"])
def test_every_option_of_ours_has_a_type_and_a_meaning(name: str) -> None:
    options = list_options(name)
    assert options
    assert [one.name for one in options if not (one.type and one.meaning)] == []
    assert not any("``" in one.meaning or "[" in one.type for one in options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_code:NOT_A_RECIPE", "is no subclass of ascribe.Recipe"),
        ("own_code:Absent", "AttributeError"),
        ("no_such_module:Mine", "No module named"),
        ("own code:Mine", "is not of the form package.module:Name"),
    ],
)
def test_what_is_no_recipe_is_said(folder: Path, name: str, message: str) -> None:
    result = run("credit", "steps.jsonl", "--out", "c.jsonl", "--recipe", name)
    assert result.exit_code == 2
    assert message in result.stderr


# Terms.


def test_swapped_arguments_of_a_term_are_found(folder: Path) -> None:
    said = "Term: reason is int64, but must be an array of int8, a Reason for each row"
    for command in (
        ("credit", "steps.jsonl", "--out", "c.jsonl", "--recipe", "own_code:Swapped"),
        ("audit", "--recipe", "own_code:Swapped", "--world", "graph", "--processes", 1),
    ):
        result = run(*command)
        assert result.exit_code == 2, result.stdout
        assert said in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"values": np.zeros(3, int)}, "values is int64"),
        ({"values": [0.0, 0.0, 0.0]}, "values is list"),
        ({"reason": np.zeros(2, np.int8)}, r"reason has the shape \(2,\)"),
        ({"values": np.zeros((3, 1))}, "has the shape"),
        ({"reason": np.array([0, 99, 0], np.int8)}, "codes that no Reason has"),
        ({"labels": np.array([0, -2, 0])}, "below -1"),
        ({"labels": np.zeros(3)}, "labels is float64"),
        ({"reason": np.array([0, Reason.PADDING, 0], np.int8)}, r"rows \[1\] are not 0"),
    ],
)
def test_a_term_validates_what_it_holds(changes: dict[str, Any], error: str) -> None:
    good = {"values": np.ones(3), "reason": np.zeros(3, np.int8), "labels": np.zeros(3, int)}
    Term(**good)
    with pytest.raises((TypeError, ValueError), match=error):
        Term(**(good | changes))


# Installed packages.


def test_environments_of_other_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "somebodys_games-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-games\nVersion: 1.0\n")
    points = ["door = own_code:Door", "broken = own_code:Absent", "sokoban = own_code:Door"]
    (info / "entry_points.txt").write_text("\n".join(["[ascribe_lab.envs]", *points, ""]))
    monkeypatch.syspath_prepend(folder)
    assert type(make("door", key=2)).__name__ == "Door"
    assert type(make("sokoban")).__name__ == "Sokoban"
    others = [one.name for one in catalogue() if one.kind == "of somebodys-games"]
    assert others == ["broken", "door"]
    assert "somebodys-games" in run("env", "list").stdout
    played = run("eval", "--env", "door", "--model", "random", "--tasks", 1, "--pool", "serial")
    assert played.exit_code == 0, played.stderr
    with pytest.raises(PluginError, match="broken = own_code:Absent of somebodys-games"):
        make("broken")


# What is never run.


def test_a_config_that_is_only_looked_at_imports_no_recipe(folder: Path) -> None:
    pytest.importorskip("yaml", reason="needs the extra trl")
    (folder / "base").mkdir()
    (folder / "base" / "model.safetensors").touch()
    (folder / "evil_recipe.py").write_text("open('made', 'w')")
    document = {
        "model": {"path": "base"},
        "environment": {"name": "evil_recipe:Thing"},
        "recipe": {"name": "evil_recipe:Thing"},
        "output": {"folder": "out"},
        "rollout": {"max_turns": 3},
    }
    Path("run.yaml").write_text(json.dumps(document))
    for engine in ("trl", "verl"):
        done = run("train", "run.yaml", "--dry-run", "--engine", engine)
        assert done.exit_code == 0, done.output
    assert not Path("made").exists()
    assert str(folder) not in sys.path


def test_a_folder_of_data_lends_no_modules(folder: Path) -> None:
    """``rapidfuzz.py`` beside the data is not imported in place of a package that is missing."""
    assert run("check", "steps.jsonl").exit_code == 0
    assert run("credit", "steps.jsonl", "--out", "c.jsonl").exit_code == 0
    assert str(folder) not in sys.path


def test_a_recipe_of_ones_own_in_a_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    (folder / "model.safetensors").touch()
    config = Config(
        model={"path": str(folder)},
        environment={"name": "sokoban"},
        recipe={"name": "own_code:Mine", "parameters": {"strength": 3.0}},
        output={"folder": "out"},
    )
    check_config(config)
    assert "own_code" not in sys.modules
    assert config.recipe.recipe().name == "mine"
    table = read_table(folder / "steps.jsonl")
    own = assign(table, config.recipe.recipe()).credit.advantage
    np.testing.assert_array_equal(own, assign(table, recipe("dr_grpo")).credit.advantage)
