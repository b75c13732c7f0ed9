"""The commands ``rollout`` and ``eval``, on environments that need nothing installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.steps.files import read
from lab.tests.envs.toys import Corridor

CORRIDOR = ["--env", "lab.tests.envs.toys:Corridor", "--pool", "serial"]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_rollout_writes_a_file_that_check_and_credit_take(tmp_path: Path) -> None:
    file, credited = tmp_path / "rollouts.parquet", tmp_path / "credited.parquet"
    code, said = run(
        "rollout", *CORRIDOR, "--model", "random", "--groups", 3, "--size", 4, "--out", file
    )
    assert code == 0, said
    assert "Wrote" in said
    assert run("check", file)[0] == 0
    assert run("credit", file, "--out", credited, "--recipe", "gigpo")[0] == 0
    assert {"advantage", "reason"} <= set(read(credited).credit.column_names)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for file in files:
        assert run("rollout", *CORRIDOR, "--model", "random", "--seed", 5, "--out", file)[0] == 0
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("states", ["observation", "environment"])
def test_observations_or_keys_are_the_states(states: str, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    options = ("--groups", 1, "--size", 2, "--states", states, "--out", file)
    assert run("rollout", *CORRIDOR, "--model", "expert", *options)[0] == 0
    *rows, end = [json.loads(line) for line in file.read_text().splitlines()]
    assert end["rows"] == len(rows)
    assert all(row["state"] == row["observation"] for row in rows) == (states == "observation")


def test_eval_prints_an_interval_for_each_family() -> None:
    code, said = run("eval", *CORRIDOR, "--model", "expert", "--json")
    assert code == 0, said
    found = json.loads(said)
    assert [row["family"] for row in found["success"]] == ["far", "near", "all"]
    assert [row["tasks"] for row in found["success"]] == [4, 4, 8]
    assert all(row["low"] < row["rate"] == 1.0 for row in found["success"])


def test_eval_takes_tasks_from_the_first(tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    options = ("--first", 6, "--tasks", 100, "--repeats", 3, "--out", file)
    code, said = run("eval", *CORRIDOR, "--model", "expert", *options)
    assert code == 0, said
    assert "far" in said
    assert "near" not in said
    assert len(set(read(file).table.trajectory.texts())) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--env", "tetris", "--model", "random"), "there is no environment 'tetris'"),
        ((*CORRIDOR, "--model", "nowhere"), "there is no policy 'nowhere'"),
        ((*CORRIDOR, "--model", "random", "--backend", "magic"), "no backend 'magic'"),
        ((*CORRIDOR, "--model", "random", "--style", "loud"), "there is no style 'loud'"),
        ((*CORRIDOR, "--model", "random", "--set", "depth=2"), "depth"),
        ((*CORRIDOR, "--model", "random", "--set", "depth"), "--set takes name=value"),
        ((*CORRIDOR, "--model", "random", "--states", "all"), "no states 'all'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, output = run("rollout", *arguments, "--out", tmp_path / "r.parquet")
    assert code == 2
    assert said in " ".join(output.split())


def test_a_wrong_ending_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    for command in ("rollout", "eval"):
        code, said = run(command, *CORRIDOR, "--model", "random", "--out", tmp_path / "r.csv")
        assert code == 2
        assert "cannot tell the format" in " ".join(said.split())


def test_a_task_that_is_not_there() -> None:
    code, said = run("eval", *CORRIDOR, "--model", "expert", "--first", 8)
    assert code == 2
    assert "there is no task 8 hint: there are 8" in " ".join(said.split())


class Cursed:
    """An environment that never plays."""

    tasks = None
    horizon = 3

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no \x1b[31mplay\x1b[0m today")

    def step(self, action):
        raise RuntimeError("no play today")

    def close(self) -> None:
        """Nothing to give back."""


def test_a_run_without_a_single_episode_fails(tmp_path: Path) -> None:
    file = tmp_path / "r.parquet"
    env = ("--env", "lab.tests.rollout.test_cli_rollout:Cursed", "--pool", "serial")
    code, said = run(
        "rollout", *env, "--model", "random", "--groups", 1, "--size", 1, "--out", file
    )
    assert code == 1
    assert "no episode was completed" in said
    assert "raised" in said
    assert "\x1b[31mplay" not in said
    assert not file.exists()


class Chatty(Corridor):
    """An environment that prints, also past Python."""

    def reset(self, **options):
        print("{broken json")
        os.write(1, b"and more\n")
        return super().reset(**options)


def test_what_others_print_stays_out_of_the_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from ascribe.cli import main; main()", "rollout"]
    command += ["--env", "lab.tests.rollout.test_cli_rollout:Chatty", "--pool", "serial", "--json"]
    command += ["--model", "random", "--groups", "1", "--out", str(tmp_path / "r.parquet")]
    root = Path(__file__).parents[3]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "lab/src"), str(root)])
    }
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(run.stdout)["dropped"] == []
    assert "{broken json" in run.stderr
    assert "and more" in run.stderr
