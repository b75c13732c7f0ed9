"""Runs whose parts die, with small trees of real processes, and with Ray where it is installed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ascribe_lab.train.config import Config
from ascribe_lab.train.launch import train
from ascribe_lab.train.resolve import EngineError
from ascribe_lab.train.verl import watch
from lab.tests.train.test_config import config as config_of
from tests.engines.needs import NEEDS_VERL

CHILD = """
import subprocess
sleep = subprocess.Popen(["sleep", "97"], start_new_session=True)
print(flush=True)
sleep.wait()
"""
TREE = f"""
import signal, subprocess, sys, time
words = [sys.executable, "-c", {CHILD!r}]
child = subprocess.Popen(words, start_new_session=True, stdout=-1)
child.stdout.readline()
"""
"""Starts a child that starts a process in a session of its own."""

WATCHED = """
sys.path[:0] = PATHS
from ascribe_lab.train.verl import watch
watch.POLL = watch.GRACE = watch.PATIENCE = 0.2
watch.Parts.dead = lambda self: ["Server, process 1"] * (child.poll() is not None)
with watch.watching():
    print("begun", flush=True)
    END
"""


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL", 0.2)
    monkeypatch.setattr(watch, "PATIENCE", 0.5)


def processes(folder: Path) -> list[Any]:
    """The processes that were started in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def soon(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(program: str, folder: Path, late: Callable[[], bool] = lambda: False) -> int:
    words = [sys.executable, "-c", f"import os; os.chdir({str(folder)!r}){TREE}{program}"]
    return watch.run(words, os.environ, late)


@pytest.mark.usefixtures("hurry")
def test_no_process_is_left_of_a_run_that_ends_or_is_killed(tmp_path: Path) -> None:
    wait = "time.sleep(2);"
    assert run(f"{wait} sys.exit(3)", tmp_path) == 3
    assert not processes(tmp_path)
    assert run(f"{wait} child.kill(); sys.exit(4)", tmp_path) == 4  # its process has no parent now
    assert not processes(tmp_path)
    assert run(f"{wait} import os; os.kill(os.getpid(), 9)", tmp_path) == -signal.SIGKILL
    assert not processes(tmp_path)


@pytest.mark.usefixtures("hurry")
def test_a_run_that_is_late_is_ended(tmp_path: Path) -> None:
    code = run("child.wait()", tmp_path, late=lambda: len(processes(tmp_path)) == 3)
    assert code == watch.LOST
    assert not processes(tmp_path)


def watched(folder: Path, end: str) -> "subprocess.Popen[str]":
    """A process that is ``watching`` and has begun what it does."""
    program = TREE + WATCHED.replace("PATHS", repr(sys.path)).replace("END", end)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=-1, stderr=-1, text=True, cwd=folder
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    soon(lambda: len(processes(folder)) == 3)
    return process


def kill_sleep(folder: Path) -> None:
    """Kill the last process of the tree, with which its parent ends."""
    for process in processes(folder):
        if process.name() == "sleep":
            process.kill()


def test_a_run_that_waits_for_a_dead_part_is_ended(tmp_path: Path) -> None:
    running = watched(tmp_path, "signal.pause()")
    kill_sleep(tmp_path)
    said = running.communicate(timeout=30)[1]
    assert running.returncode == watch.LOST
    assert said == "a part of the run died: Server, process 1\n"


def test_a_run_that_fails_says_which_part_had_died(tmp_path: Path) -> None:
    running = watched(tmp_path, "child.wait(); raise ValueError")
    kill_sleep(tmp_path)
    assert "a part of the run died: Server, process 1\n" in running.communicate(timeout=30)[1]
    assert running.returncode == watch.LOST


def test_a_run_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    program = TREE + WATCHED.replace("PATHS", repr(sys.path)).replace("END", "signal.pause()")
    command = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {program!r}])"
    with subprocess.Popen([sys.executable, "-c", command], stdout=-1, cwd=tmp_path) as running:
        assert running.stdout is not None
        running.stdout.readline()
        soon(lambda: len(processes(tmp_path)) == 4)
        running.kill()
    soon(lambda: not processes(tmp_path))


@pytest.mark.engine
@NEEDS_VERL
def test_what_ray_says_of_actors() -> None:
    """Those that the run ended itself, and those of tools, are no parts that died."""
    program = f"""
import os, ray, sys, time
sys.path[:0] = {sys.path!r}
from ascribe_lab.train.verl.watch import Parts
class Part:
    def process(self): return os.getpid()
class AgentLoopWorker(Part):
    def tool(self):
        self.own = ray.remote(num_cpus=0)(Part).remote()
        return ray.get(self.own.process.remote())
def make(of): return ray.remote(num_cpus=0)(of).remote()
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=10**8)
lost, killed, dropped, loop = make(Part), make(Part), make(Part), make(AgentLoopWorker)
processes = ray.get([one.process.remote() for one in (lost, killed, dropped)])
tool = ray.get(loop.tool.remote())
os.kill(tool, 9); ray.kill(killed); del dropped
time.sleep(3)
assert Parts().dead() == [], Parts().dead()
os.kill(processes[0], 9)
time.sleep(3)
print(chr(10) + "lost:", processes[0], *Parts().dead(), flush=True)
"""
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = [line for line in said.stdout.splitlines() if line.startswith("lost:")]  # others: Ray's
    process, _, part = found[0].removeprefix("lost: ").partition(" ")
    assert part.startswith(f"Part, process {process}: ")
    assert "worker process has died" in part


@NEEDS_VERL
def test_what_is_said_when_a_run_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").touch()
    config = config_of(
        model__path=str(tmp_path / "model"),
        rollout__context=320,
        update__rows_per_pass=2,
        output__folder=str(tmp_path / "run"),
        engine__verl={"trainer.device": "cpu", "trainer.n_gpus_per_node": 2},
    )
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)

    def error(code: int, config: Config) -> EngineError:
        def end(*_: Any) -> int:
            return code

        monkeypatch.setattr(watch, "run", end)
        with pytest.raises(EngineError) as caught:
            train(config, "verl")
        return caught.value

    lost = error(watch.LOST, config)
    assert lost.what == "verl lost a part, named above; there is no checkpoint yet"
    assert lost.hint == (
        "if memory was short, lower update.rows_per_pass (2), rollout.context (320), "
        "engine.verl.trainer.n_gpus_per_node (2), the shell variable VLLM_CPU_KVCACHE_SPACE (1 GiB)"
    )
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("7")
    kept = "the checkpoint of iteration 7 is kept, from which --resume goes on"
    assert error(-signal.SIGKILL, config).what == f"verl was killed; {kept}"
    late = error(watch.LOST, replace(config, engine=replace(config.engine, iteration_limit=1e-9)))
    assert late.what == f"no iteration ended within engine.iteration_limit, 0 s; {kept}"
    assert error(3, config).what == "verl ended with code 3; its output is above"
