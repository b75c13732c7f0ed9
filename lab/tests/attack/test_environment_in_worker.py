"""Point 5: an environment is asked for its facts, and checked, in a worker.

Before, the command made the environment in its own process: what the environment printed came into
the output, ``os._exit`` and a crash ended the command, and a ``close`` that hangs hung it.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe_lab.rollout import Setup
from lab.tests.envs.toys import Corridor

ROOT = Path(__file__).parents[3]
HERE = __name__


class Trouble(Corridor):
    """An environment that exits, crashes, hangs or prints; ``at`` says in which method."""

    def __init__(self, at: str, how: str = "exit") -> None:
        super().__init__()
        self.at, self.how = at, how
        self.trouble("make")

    def trouble(self, place: str) -> None:
        if place != self.at:
            return
        if self.how == "exit":
            os._exit(0)
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "hang":
            time.sleep(600)
        os.write(1, b"{not json\n")

    def reset(self, **arguments: Any) -> Any:
        self.trouble("reset")
        return super().reset(**arguments)

    def close(self) -> None:
        self.trouble("close")


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, since it may end with its environment."""
    command = [sys.executable, "-c", "from ascribe.cli import main; main()"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab/src"), str(ROOT)])
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", "") + os.pathsep + paths},
    )


def rollout(tmp_path: Path, *settings: str) -> "subprocess.CompletedProcess[str]":
    options = [word for setting in settings for word in ("--set", setting)]
    out = ("--groups", 1, "--size", 1, "--out", tmp_path / "r.jsonl", "--json")
    return run("rollout", "--env", f"{HERE}:Trouble", "--model", "random", *options, *out)


@pytest.mark.parametrize(
    ("how", "reason"), [("exit", "exited with code 0"), ("segfault", "ended by signal 11")]
)
def test_an_environment_that_ends_its_process_does_not_end_the_command(
    tmp_path: Path, how: str, reason: str
) -> None:
    done = rollout(tmp_path, "at=make", f"how={how}")
    assert done.returncode == 2
    message = " ".join(done.stderr.split())
    assert "Trouble cannot be made: crashed: the worker" in message
    assert reason in message


def test_what_an_environment_prints_while_it_is_made_is_not_output(tmp_path: Path) -> None:
    done = rollout(tmp_path, "at=make", "how=print")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failed"] == []
    assert "{not json" in done.stderr


def test_an_environment_that_does_not_close_does_not_hang_the_command(tmp_path: Path) -> None:
    started = time.monotonic()
    assert Setup(f"{HERE}:Trouble", {"at": "close", "how": "hang"}).facts == (8, 12)
    assert time.monotonic() - started < 60  # it sleeps for much longer


def test_an_environment_that_is_never_made_is_given_up() -> None:
    setup = Setup(f"{HERE}:Trouble", {"at": "make", "how": "hang"}, reset_limit=2.0)
    with pytest.raises(ValueError, match="cannot be made: hung: no result within 2 s"):
        setup.facts  # noqa: B018


@pytest.mark.parametrize(
    ("at", "how", "fault", "detail"),
    [
        ("make", "exit", "ends_its_process", "random episodes: the worker exited with code 0"),
        ("reset", "segfault", "ends_its_process", "random episodes: the worker was ended by"),
        ("close", "hang", "hangs", "no result within 2 s"),
    ],
)
def test_a_check_survives_the_environment(at: str, how: str, fault: str, detail: str) -> None:
    check = ["env", "check", f"{HERE}:Trouble", "--set", f"at={at}", "--set", f"how={how}"]
    limit = "2" if how == "hang" else "60"
    done = CliRunner().invoke(app, [*check, "--limit", limit, "--seeds", "1", "--json"])
    assert done.exit_code == 1, done.output
    finding = json.loads(done.stdout)["findings"][0]
    assert finding["fault"] == fault
    assert detail in finding["detail"]


def test_a_name_that_gives_no_environment_is_a_message(tmp_path: Path) -> None:
    arguments = ["--env", "os:getcwd", "--model", "random", "--out", str(tmp_path / "r.jsonl")]
    done = CliRunner().invoke(app, ["rollout", *arguments])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert "os:getcwd gives str, which is no environment" in " ".join(done.output.split())


@pytest.mark.parametrize("limit", ["-1", "0", "nan"])
def test_an_episode_limit_is_above_zero(tmp_path: Path, limit: str) -> None:
    arguments = ["--env", "lab.tests.envs.toys:Corridor", "--pool", "serial", "--model", "random"]
    arguments += ["--episode-limit", limit, "--out", str(tmp_path / "r.jsonl")]
    done = CliRunner().invoke(app, ["rollout", *arguments])
    assert done.exit_code == 2
    assert "episode_limit must be above 0 seconds" in " ".join(done.output.split())
