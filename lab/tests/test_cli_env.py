"""``ascribe env``: what the commands print and how they end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import screen
from ascribe_lab.cli.env import env
from ascribe_lab.envs import ADAPTERS, ENVIRONMENTS
from ascribe_lab.envs.faults import Fault
from ascribe_lab.envs.registry import Entry, catalogue

GOOD = "lab.tests.envs.toys:Corridor"

SPOILT = """
from lab.tests.envs.toys import Corridor

class Spoilt(Corridor):
    def state_key(self, episode, observation):
        return "\\x1b[2J" + "\\ud800"

class NeverMade(Corridor):
    def __init__(self):
        raise RuntimeError("no server")
"""


def run(*arguments: object) -> Result:
    """The command in this process; no exception but the one that carries the exit code."""
    screen.out.width = screen.err.width = 300  # so that no cell is broken into lines
    result = CliRunner().invoke(env, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a module in it, which is the current one."""
    (tmp_path / "spoilt_environments.py").write_text(SPOILT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    sys.modules.pop("spoilt_environments", None)


def test_a_good_environment_ends_with_0() -> None:
    result = run("check", GOOD, "--seeds", 2)
    assert result.exit_code == 0
    assert f"{GOOD}: the contract is kept. 2 episodes, " in result.stdout


def test_options_are_json_or_text_and_reach_the_environment() -> None:
    result = run("check", GOOD, "--set", "horizon=1", "--set", "expert=true", "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert said["options"] == {"horizon": 1, "expert": True}
    assert said["steps"] == 5
    assert said["findings"] == []
    assert run("check", GOOD, "--set", "horizon=tall").exit_code == 2


def test_a_broken_environment_of_the_users_folder_ends_with_1(folder: Path) -> None:
    result = run("check", "spoilt_environments:Spoilt", "--seeds", 1)
    assert result.exit_code == 1
    assert "malformed_text" in result.stdout
    assert "the contract is broken" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_same_in_json(folder: Path) -> None:
    result = run("check", "spoilt_environments:Spoilt", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["worst"] == "error"
    assert {one["fault"] for one in said["findings"]} == {
        Fault.MALFORMED_TEXT.label,
        Fault.HOSTILE_TEXT_COMES_BACK.label,
    }


def test_an_environment_that_cannot_be_made_is_a_finding(folder: Path) -> None:
    result = run("check", "spoilt_environments:NeverMade")
    assert result.exit_code == 1
    assert "cannot_be_made" in result.stdout
    assert "RuntimeError: no server" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chess"], "there is no environment 'chess'"),
        (["no_such_module_anywhere:Thing"], "No module named"),
        (["lab.tests.envs.toys:Garden"], "Garden"),
        ([GOOD, "--set", "width=3"], "width"),
        ([GOOD, "--set", "horizon=0"], "horizon must be at least 1"),
        ([GOOD, "--set", "horizon"], "name=value"),
        ([GOOD, "--set", "1x=2"], "has no option"),
        ([GOOD, "--seeds", "0"], ""),
    ],
)
def test_a_wrong_call_ends_with_2(arguments: list[str], said: str) -> None:
    result = run("check", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_the_list_names_every_environment_and_adapter() -> None:
    result = run("list")
    assert result.exit_code == 0
    for name in (*ENVIRONMENTS, *ADAPTERS):
        assert f" {name} " in result.stdout
    said = json.loads(run("list", "--json").stdout)
    assert [one["name"] for one in said] == [*ENVIRONMENTS, *ADAPTERS]
    assert all(one["installed"] == (not one["missing"]) for one in said)


def test_an_extra_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [
        "numpy>=1.26",
        "no-such-package>=1; extra == 'search-qa'",
        "numpy; (python_version > '3') and extra == 'search-qa'",
        "numpy; extra == 'gymnasium'",
    ]
    monkeypatch.setattr("ascribe_lab.envs.registry.requires", lambda _: needs)
    entries = {entry.name: entry for entry in catalogue()}
    assert entries["search_qa"].extra == "search_qa"
    assert entries["search_qa"].missing == ("no-such-package",)
    assert entries["gymnasium"].installed
    assert entries["gymnasium"].extra == "gymnasium"
    assert entries["sokoban"] == Entry(
        "sokoban", "environment", ENVIRONMENTS["sokoban"], extra=None, missing=(), installed=True
    )
    assert "no: no-such-package" in run("list").stdout
