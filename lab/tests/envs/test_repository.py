"""The repository: tasks, the shell and its confinement, rewards, states, and trajectory files."""

import json
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.sessions.reading import import_files
from ascribe_lab.envs import make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.registry import check_file_options
from ascribe_lab.envs.repository import Repository, SandboxError, make_project, run, sandbox
from ascribe_lab.envs.repository.sandbox import check_sandbox, pack
from ascribe_lab.envs.repository.tasks import BUGS, MODULES, TESTS
from ascribe_lab.rollout import Model, Plan, Sample, Setup, Trajectory, play, table
from ascribe_lab.rollout.episode import Step
from ascribe_lab.rollout.mini_swe_agent import save_trajectories

ROOT = Path(__file__).parents[3]
FILL = "for i in $(seq 40); do head -c 900000 /dev/zero > $i; done"


@cache
def confined() -> bool:
    try:
        check_sandbox()
    except SandboxError:
        return False
    return True


needs_sandbox = pytest.mark.skipif(not confined(), reason="needs namespaces")


def shell(command: str) -> sandbox.Ran:
    return run(command, pack({"a.py": "a = 1\n"}, "tmp/work"), "tmp/work", {"LC_ALL": "C.UTF-8"})


def test_every_bug_has_one_place() -> None:
    for bug in BUGS:
        assert MODULES[bug.module].count(bug.right) == 1
        assert MODULES[bug.module].replace(bug.right, bug.wrong) != MODULES[bug.module]
    assert len({bug.kind for bug in BUGS}) == 5


def test_right_edits_lead_from_the_first_stage_to_the_last() -> None:
    for task in range(50):
        project = make_project((1, 2), np.random.default_rng(task))
        edits = sum(len(stages) - 1 for stages in project.stages.values())
        assert edits in (1, 2)
        assert project.kind in {*(bug.kind for bug in BUGS), "2 bugs"}
        for path, stages in project.stages.items():
            assert project.edit(path, stages[-1]) is None
            assert project.edit(path, "something else") is None
            assert all(project.edit(path, text) for text in stages[:-1])
    assert make_project((1,), np.random.default_rng(3)) == make_project(
        (1,), np.random.default_rng(3)
    )


def test_a_data_file_does_not_have_it_made() -> None:
    with pytest.raises(ValueError, match="may not have repository made"):
        check_file_options("repository", {})


def test_it_is_refused_where_commands_cannot_be_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise SandboxError("unshare failed: Operation not permitted")

    monkeypatch.setattr(sandbox, "run", refused)
    check_sandbox.cache_clear()
    with pytest.raises(SandboxError, match=r"commands that a model writes.*not permitted.*needs"):
        Repository()


@needs_sandbox
def test_the_contract_is_kept() -> None:
    factory = partial(make, "repository", horizon=3, listed=True)
    report = check_environment(factory, seeds=2)
    assert report.findings == ()


@needs_sandbox
def test_the_expert_mends_the_code() -> None:
    env = Repository(expert=True)
    observation, info = env.reset(seed=0, options={"task": 1})
    assert observation.startswith("<returncode>0</returncode>\n<output>\n/tmp/tmp")
    states, over = [info["state"]], False
    while not over:
        _, reward, terminated, truncated, info = env.step(info["expert_action"])
        assert info["valid"]
        assert reward == float(terminated)
        states.append(info["state"])
        over = terminated or truncated
    assert info["won"]
    assert states[0].endswith("tests not run")
    assert states[-1].endswith("tests passed")
    # Reading changes nothing, edits and tests do.
    assert len(set(states)) < len(states)


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        f"echo 'def test(): pass' > {TESTS}; echo 'import os; os._exit(0)' > conftest.py",
        "sed -i '1i import os; os._exit(0)' *.py; rm -r .git",
    ],
)
def test_the_reward_is_for_the_code_alone(command: str) -> None:
    env = Repository()
    env.reset(seed=0, options={"task": 0})
    env.step(command)
    _, reward, terminated, _, info = env.step("submit")
    assert (reward, terminated, info["won"]) == (0.0, True, False)


@needs_sandbox
def test_what_the_machine_has_does_not_leave_it() -> None:
    private = Path(__file__)
    done = shell(
        f"cat {private}; ls /home /root /proc /etc/passwd; touch /usr/x /x; id -u; "
        "cat /proc/1/environ; env; unshare -Ur true; mount -t tmpfs none /tmp; kill -9 1; "
        "python -c 'import socket; socket.create_connection((\"127.0.0.1\", 22), 1)'; "
        "echo $PYTEST_CURRENT_TEST; ls"
    )
    assert "needs_sandbox" not in done.output
    for refused in ("/proc", "/etc/passwd", "/x", "/usr/x", "unshare", "mount", "unreachable"):
        assert refused in done.output
    assert "PYTEST_CURRENT_TEST" not in done.output
    assert "lab/tests" not in done.output.replace(str(private), "")
    assert done.files == {"a.py": b"a = 1\n"}


@needs_sandbox
def test_commands_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(shell("head -c 5000000 /dev/zero > big").files["big"]) == 1_000_000
    assert "MemoryError" in shell("python -c 'x = bytearray(2_000_000_000)'").output
    started = time.monotonic()
    assert shell("sleep 100 & sleep 100 & echo done").output == "done\n"
    with pytest.raises(SandboxError):
        shell(FILL)
    bomb = shell(
        "python -c 'import os, signal; [os.fork() or signal.pause() for _ in range(99)]'"
    ).output
    assert "Resource temporarily unavailable" in bomb
    monkeypatch.setattr(sandbox, "SCRIPT", sandbox.SCRIPT.replace("KILL 30 ", "KILL 0.5 "))
    assert shell("sleep 100").code == 137
    assert shell("yes").output == "y\n" * 500_000
    assert time.monotonic() - started < 25


@needs_sandbox
def test_a_command_that_fills_the_folder_changes_nothing() -> None:
    env = Repository()
    _, start = env.reset(seed=0, options={"task": 0})
    observation, _, _, _, info = env.step(FILL)
    assert "Nothing has changed" in observation
    assert (info["valid"], info["state"]) == (False, start["state"])
    _, _, _, _, info = env.step("no_such_program")
    assert (info["valid"], info["state"]) == (False, start["state"])


@needs_sandbox
@pytest.mark.parametrize("command", ["rm -r $PWD", "mv $PWD /tmp/b; ln -s /etc $OLDPWD$PWD"])
def test_the_folder_cannot_go(command: str) -> None:
    with pytest.raises(SandboxError, match="cannot be read back"):
        shell(command)


@needs_sandbox
def test_a_file_with_two_names_is_both() -> None:
    assert shell("ln a.py b.py").files == dict.fromkeys(("a.py", "b.py"), b"a = 1\n")


@needs_sandbox
def test_live_texts_do_not_recur_and_states_do() -> None:
    env = Repository(live=True)
    seen = []
    for _ in range(2):
        first, start = env.reset(seed=0, options={"task": 0})
        second, _, _, _, info = env.step("ls")
        seen.append((first, second, start["state"], info["state"]))
    (one, other) = seen
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert one[2:] == other[2:]


def test_a_response_without_a_command_is_a_step(tmp_path: Path) -> None:
    def step(text: str, action: str, problem: str | None = None, reward: float = 0.0) -> Step:
        flags = (problem is None, problem, reward, bool(reward), False, bool(reward))
        return Step("state", f"before {action}", [], Sample(text), action, *flags)

    steps = step("Hello!", "echo", "no_action"), step("<action>submit</action>", "submit", reward=1)
    save_trajectories([Trajectory("task", "task/0", "Mend it.", "", steps)], tmp_path)
    rows = import_files([tmp_path], reward="info.reward").table.to_dicts()
    assert [row["reward"] for row in rows] == [0.0, 1.0]
    assert rows[0]["action"] == "Hello!"
    assert "submit" in rows[1]["action"]


@needs_sandbox
def test_trajectory_files_are_read_back(tmp_path: Path) -> None:
    setup = Setup("repository", {"horizon": 4, "live": True}, "plain", "serial")
    played = play(setup, Model("faulty"), Plan(2, 2, 4, seed=1))
    files = save_trajectories(played.trajectories, tmp_path)
    imported = import_files([tmp_path], reward="info.reward", state="observation")
    assert imported.format == "mini-swe-agent"
    rows, steps = imported.table.to_dicts(), table(played).to_dicts()
    assert len({row["trajectory"] for row in rows}) == len(files) == 4
    for name in ("group", "step", "reward"):
        assert [row[name] for row in rows] == [step[name] for step in steps], name
    assert [json.loads(row["action"])["arguments"]["command"] for row in rows] == [
        step["action"] for step in steps
    ]
    for row, step in zip(rows, steps, strict=True):
        assert row["state"].endswith(step["state"])
    # The keys are those of a file that the package wrote.
    real = json.loads((ROOT / "tests/data/packages/mini_swe_agent/port_0.traj.json").read_text())
    ours = json.loads(files[0].read_text())
    assert ours.keys() == real.keys()
    assert ours["info"].keys() == real["info"].keys() - {"mini_version"}
    assert ours["trajectory_format"] == real["trajectory_format"]
    shapes = {each["role"]: each.keys() - {"extra"} for each in real["messages"]}
    for message in ours["messages"]:
        assert message.keys() - {"extra"} == shapes[message["role"]]
