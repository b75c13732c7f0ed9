"""Point 4: a late failure does not lose a rollout.

Before, a rollout was written once, at its end: an error of a server, a broken pool, a missing
folder, a full disk or one value of a wrong type lost every episode.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.steps.check import check
from ascribe.steps.files import read_table
from ascribe.steps.problems import Severity
from ascribe_lab.json_journal import JournalError, open_journal
from ascribe_lab.models.http_client import ServerError
from ascribe_lab.models.policy import Request, Sample, Sampling
from ascribe_lab.rollout import FailurePolicy, Model, Plan, Setup, journal_beside, play_to_file
from lab.tests.envs.toys import Corridor

ROOT = Path(__file__).parents[3]
HERE = __name__
CORRIDOR = "lab.tests.envs.toys:Corridor"
PLAN = Plan(groups=4, size=3, max_turns=12, name="late")
SETUP = Setup(CORRIDOR, pool="serial")
RANDOM = Model("random")


class Fragile(Corridor):
    """Breaks for good, notes that it was played, or gives a reward that nobody can write.

    Args:
        broken: made at the end of an episode; while this file exists, every call ends the process.
        played: made by every reset.
        reward: the reward of every step.
    """

    def __init__(self, broken: str = "", played: str = "", reward: float = 0.0) -> None:
        super().__init__()
        self.broken, self.played, self.reward = broken, played, reward

    def reset(self, **arguments: Any) -> Any:
        if self.played:
            Path(self.played).touch()
        self.break_down()
        return super().reset(**arguments)

    def step(self, action: str) -> Any:
        self.break_down()
        observation, reward, terminated, truncated, info = super().step(action)
        if self.broken and (terminated or truncated):
            Path(self.broken).touch()
        return observation, self.reward or reward, terminated, truncated, info

    def break_down(self) -> None:
        if self.broken and Path(self.broken).exists():
            os._exit(1)


class FewResponses:
    """A policy whose server is gone after so many calls, or that gives a token id of 40 bits."""

    def __init__(self, policy: Any, calls: int, token: int = 0) -> None:
        self.policy, self.calls, self.token = policy, calls, token

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        self.calls -= 1
        if self.calls < 0:
            raise ServerError("the server closed the connection")
        samples = self.policy(requests, sampling)
        return [
            replace(sample, response_ids=(self.token if request.seed % 5 == 0 else 7,))
            for sample, request in zip(samples, requests, strict=True)
        ]

    def close(self) -> None:
        self.policy.close()


def with_policy(calls: int, token: int = 0) -> Model:
    class Patched(Model):
        def open(self, agent: Any) -> Any:
            return FewResponses(super().open(agent), calls, token)

    return Patched("random")


def command(out: Path, *arguments: object) -> list[str]:
    words = ["rollout", "--env", CORRIDOR, "--model", "random", "--groups", 40, "--size", 4]
    return list(map(str, [*words, "--workers", 1, "--out", out, *arguments]))


def start(arguments: list[str]) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-c", "from ascribe.cli import main; main()", *arguments]
    path = os.pathsep.join(
        [os.environ.get("PYTHONPATH", ""), str(ROOT / "src"), str(ROOT / "lab/src"), str(ROOT)]
    )
    return subprocess.Popen(
        program, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.DEVNULL
    )


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def unbroken(folder: Path, model: Model = RANDOM, suffix: str = ".jsonl") -> bytes:
    out = folder / f"unbroken{suffix}"
    play_to_file(SETUP, model, PLAN, out)
    return out.read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def play_unwritten(out: Path) -> None:
    """Play a rollout whose output cannot be written; its journal stays."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ascribe_lab.rollout.journal.save", full)
        with pytest.raises(OSError, match="No space"):
            play_to_file(SETUP, RANDOM, PLAN, out)


def test_a_killed_rollout_resumes_to_the_same_table(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert run(*command(whole))[0] == 0
    rng = random.Random(16)
    kept: list[int] = []
    for _ in range(2):
        process = start(command(out))
        journal = journal_beside(out)
        more = kept[-1] + 1 if kept else 1
        while process.poll() is None and not (journal.exists() and size(journal) > more):
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if out.exists():  # it was faster than the kill
            break
        kept.append(size(journal))
    assert kept
    code, output = run(*command(out))
    assert code == 0, output
    assert f"Resuming with {kept[-1] - 1:,} of 160 episodes" in output
    assert out.read_bytes() == whole.read_bytes()
    assert names(tmp_path) == {"whole.jsonl", "killed.jsonl"}


def size(journal: Path) -> int:
    """Whole lines of a journal."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_error_of_a_server_loses_nothing_that_was_played(tmp_path: Path, suffix: str) -> None:
    whole = unbroken(tmp_path, with_policy(1000), suffix)
    out = tmp_path / f"out{suffix}"
    with pytest.raises(ServerError):
        play_to_file(SETUP, with_policy(5), PLAN, out)
    messages: list[str] = []
    play_to_file(SETUP, with_policy(1000), PLAN, out, on_message=messages.append)
    assert "Resuming with" in messages[0]
    assert out.read_bytes() == whole
    assert not journal_beside(out).exists()


def test_a_broken_pool_loses_nothing_that_was_played(tmp_path: Path) -> None:
    broken, out = tmp_path / "broken", tmp_path / "out.jsonl"
    arguments: tuple[object, ...] = ("--set", f"broken={broken}", "--groups", 2, "--size", 1)
    arguments += ("--env", f"{HERE}:Fragile", "--model", "random", "--out", out)
    arguments += ("--workers", 1, "--retries", 9)
    code, output = run("rollout", *arguments)
    assert code == 1
    assert "a worker died 5 times in a row" in output
    assert "run the same command again to continue" in output
    broken.unlink()
    code, output = run("rollout", *arguments)
    assert code == 0
    assert "Resuming with 1 of 2 episodes" in output
    assert read_table(out).group.values.size == 2
    assert names(tmp_path) == {"out.jsonl", "broken"}


def test_a_missing_folder_is_told_before_anything_is_played(tmp_path: Path) -> None:
    played = tmp_path / "played"
    options = ("--env", f"{HERE}:Fragile", "--set", f"played={played}", "--pool", "serial")
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    outputs = {
        tmp_path / "missing" / "out.jsonl": "cannot write",
        folder: "is a folder hint: name a file",
    }
    for out, message in outputs.items():
        code, output = run("rollout", *options, "--model", "random", "--out", out)
        assert code == 2
        assert message in " ".join(output.split())
    assert not played.exists()


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of a disk."""
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run(*command(whole, "--pool", "serial"))[0] == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        code, output = run(*command(out, "--pool", "serial"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert "run the same command again" in output
    assert size(journal_beside(out)) > 1
    assert not out.exists()
    code, output = run(*command(out, "--pool", "serial"))
    assert "Resuming with" in output
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [1, 2, 100, -1])
def test_a_torn_line_is_no_episode(tmp_path: Path, cut: int) -> None:
    whole = unbroken(tmp_path)
    out = tmp_path / "out.jsonl"
    play_unwritten(out)
    journal = journal_beside(out)
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 13
    for kept in (0, 1, 7):
        journal.write_bytes(b"".join(lines[:kept]) + lines[kept][:cut])
        messages: list[str] = []
        play_to_file(SETUP, RANDOM, PLAN, out, on_message=messages.append)
        assert len(messages) == (kept > 1)
        assert out.read_bytes() == whole
        assert not journal.exists()


def test_a_rollout_that_was_only_not_written_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    play_unwritten(out)
    play_to_file(
        replace(SETUP, pool="processes", workers=9), RANDOM, PLAN, out
    )  # nothing is opened
    assert out.read_bytes() == unbroken(tmp_path)


def test_the_journal_of_another_rollout_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    play_unwritten(out)
    before = journal_beside(out).read_bytes()
    for change, key in (({"seed": 1}, "seed was 0, not 1"), ({"size": 2}, "size was 3, not 2")):
        with pytest.raises(JournalError, match=key):
            play_to_file(SETUP, RANDOM, replace(PLAN, **change), out)
    with pytest.raises(JournalError, match="model name was random, not expert"):
        play_to_file(SETUP, Model("expert"), PLAN, out)
    assert journal_beside(out).read_bytes() == before
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"journal": "something else"}', "is no journal of a rollout"),
        ('{"episode": [0, 0]}', "is no journal of a rollout"),
        ("[1, 2]", "is no record"),
    ],
)
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, line: str, message: str) -> None:
    out = tmp_path / "out.jsonl"
    journal_beside(out).write_text(f"{line}\n")
    with pytest.raises(JournalError, match=message):
        play_to_file(SETUP, RANDOM, PLAN, out)
    assert journal_beside(out).read_text() == f"{line}\n"


@pytest.mark.parametrize(
    "change",
    [
        {"episode": [99, 0]},
        {"episode": [0.5, 0]},
        {"episode": [0, True]},
        {"episode": "?"},
        {"steps": []},
        {"steps": 3},
        {"extra": 1},
        {"reward": 1e200},
        {"reward": "much"},
    ],
)
def test_a_line_of_a_journal_that_is_no_episode_is_told(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    out = tmp_path / "out.jsonl"
    play_unwritten(out)
    header, first, *others = map(json.loads, journal_beside(out).read_text().splitlines())
    reward = change.pop("reward", None)
    if reward is not None:
        first["steps"][0]["reward"] = reward
    lines = [header, first | change, *others]
    journal_beside(out).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(JournalError, match=r"line 2 of .* is no episode of this rollout"):
        play_to_file(SETUP, RANDOM, PLAN, out)


def test_two_rollouts_do_not_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with (
        open_journal(journal_beside(out)),
        pytest.raises(JournalError, match="another rollout is writing"),
    ):
        play_to_file(SETUP, RANDOM, PLAN, out)


def test_a_token_that_no_file_can_hold_fails_the_episode_that_has_it(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    failures = FailurePolicy(smallest_group=1)
    played = play_to_file(SETUP, with_policy(1000, 1 << 40), PLAN, out, failures=failures)
    assert played.failed
    assert {failed.kind.value for failed in played.failed} == {"malformed"}
    assert set(read_table(out).trajectory.texts()) == {one.name for one in played.trajectories}
    assert len(played.failed) + len(played.trajectories) == 12


def test_a_reward_that_check_refuses_is_not_written(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    setup = Setup(f"{HERE}:Fragile", {"reward": 1e200}, pool="serial")
    played = play_to_file(setup, RANDOM, PLAN, out)
    assert {failed.kind.value for failed in played.failed} == {"malformed"}
    assert "the reward is beyond 1e+100" in played.failed[0].detail
    assert not out.exists()
    play_to_file(SETUP, RANDOM, PLAN, out)
    worst = check(read_table(out)).worst
    assert worst is None or worst < Severity.ERROR
