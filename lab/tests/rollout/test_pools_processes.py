"""Worker processes that crash, hang, are killed, stopped or orphaned; and what is left of them."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.rollout.pools import (
    EnvironmentSpec,
    Failure,
    FailureKind,
    PoolBrokenError,
    ProcessPool,
    Reset,
)
from lab.tests.rollout.toys import TOY, begin, kinds

ROOT = Path(__file__).parents[3]
AGES = 30.0
"""Seconds after which something that should happen at once has not happened."""


def open_pool(
    workers: int = 2,
    slots: int = 4,
    step_limit: float = AGES,
    reset_limit: float = AGES,
    start_limit: float = 120.0,
    tries: int = 5,
    **options: Any,
) -> ProcessPool:
    spec = EnvironmentSpec(TOY, options)
    limits = {"start_limit": start_limit, "tries": tries}
    return ProcessPool(spec, workers, slots, step_limit, reset_limit, **limits)


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    """Slots 0 and 2 are with one worker, 1 and 3 with the other."""
    with open_pool() as pool:
        begin(pool)
        yield pool


def has_ended(child: int) -> bool:
    """Whether all threads of a child have ended: its first may have, and others not yet."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child, how) is not None


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ESRCH}
    return state in {"Z", "X"}


def soon(happens: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + AGES
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happens()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Crashes.


@pytest.mark.parametrize(
    ("action", "detail"),
    [
        ("crash 3", "the worker exited with code 3"),
        ("crash 0", "the worker exited with code 0"),
        ("kill", "the worker was ended by signal 9"),
    ],
)
def test_a_crash_is_blamed_on_its_slot(pool: ProcessPool, action: str, detail: str) -> None:
    results = pool.step({0: "go", 1: "go", 2: action, 3: "go"})
    assert kinds(results) == {0: "lost", 1: "ok", 2: "crashed", 3: "ok"}
    assert results[2] == Failure(FailureKind.CRASHED, detail)
    assert results[0].detail == "slot 2 on the same worker crashed"


def test_after_a_crash_every_slot_of_the_worker_has_lost_its_episode(pool: ProcessPool) -> None:
    assert kinds(pool.step({0: "crash"})) == {0: "crashed"}
    results = pool.step(dict.fromkeys(range(4), "go"))
    assert kinds(results) == {0: "lost", 1: "ok", 2: "lost", 3: "ok"}
    assert kinds(pool.reset({0: Reset(0)})) == {0: "ok"}
    assert kinds(pool.step({0: "go", 2: "go"})) == {0: "ok", 2: "lost"}


def test_an_episode_that_has_ended_cannot_be_lost(pool: ProcessPool) -> None:
    results = pool.step({0: "end", 2: "crash"})
    assert kinds(results) == {0: "ok", 2: "crashed"}
    assert results[0].terminated


def test_a_failure_of_its_own_stays_with_a_slot(pool: ProcessPool) -> None:
    results = pool.step({0: "raise no", 2: "crash"})
    assert kinds(results) == {0: "raised", 2: "crashed"}


def test_an_episode_goes_on_where_it_was_after_a_replay(pool: ProcessPool) -> None:
    recorded = pool.replay({1: (Reset(0), ["go", "stay", "go"])})[1]
    pool.step({0: "go"})
    pool.step({0: "stay"})
    pool.step({0: "kill"})
    assert pool.replay({0: (Reset(0), ["go", "stay"])})[0] == recorded[:3]
    assert pool.step({0: "go"})[0] == recorded[3]


def test_a_crash_in_the_middle_of_a_replay(pool: ProcessPool) -> None:
    results = pool.replay(
        {0: (Reset(0), ["go", "end"]), 2: (Reset(0), ["go", "crash", "go"]), 3: (Reset(0), ["go"])}
    )
    assert kinds(results) == {0: "ok", 2: "crashed", 3: "ok"}


def test_a_worker_that_dies_between_calls(pool: ProcessPool) -> None:
    victim, other = pool.processes
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    assert soon(lambda: has_ended(victim))
    assert kinds(pool.step(dict.fromkeys(range(4), "go"))) == {
        0: "lost",
        1: "ok",
        2: "lost",
        3: "ok",
    }
    assert pool.processes[0] != victim
    assert pool.processes[1] == other


def test_a_reset_does_not_mind_that_the_worker_died(pool: ProcessPool) -> None:
    victim = pool.processes[0]
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    assert soon(lambda: has_ended(victim))
    begin(pool)


@pytest.mark.parametrize("action", ["fork", "c_fork"])
def test_a_fork_that_holds_the_line_hides_no_death(pool: ProcessPool, action: str) -> None:
    began = time.monotonic()
    assert kinds(pool.step({0: "go", 2: action})) == {0: "lost", 2: "crashed"}
    assert time.monotonic() - began < 15  # the fork holds it for 20 s


# Limits.


@pytest.mark.parametrize("action", ["hang", "lock", "stop"])
def test_a_step_over_its_limit_is_ended(action: str) -> None:
    with open_pool(step_limit=1.0) as pool:
        begin(pool)
        victim = pool.processes[0]
        began = time.monotonic()
        results = pool.step({0: "go", 1: "go", 2: action, 3: "go"})
        assert 1.0 <= time.monotonic() - began < AGES
        assert kinds(results) == {0: "lost", 1: "ok", 2: "hung", 3: "ok"}
        assert results[2] == Failure(FailureKind.HUNG, "no result within 1 s")
        assert victim is not None
        assert is_gone(victim)
        begin(pool)


def test_the_limit_is_that_of_one_step() -> None:
    with open_pool(workers=1, slots=3, step_limit=3.0) as pool:
        begin(pool)
        results = pool.step(dict.fromkeys(range(3), "wait 1.2"))
        assert kinds(results) == dict.fromkeys(range(3), "ok")
        assert kinds(pool.replay({0: (Reset(0), ["wait 1.2"] * 3)})) == {0: "ok"}
        assert 1.2 <= results[0].seconds < 3.0


def test_a_reset_has_a_limit_of_its_own() -> None:
    with open_pool(step_limit=0.2, reset_limit=2.0) as pool:
        begin(pool)
        assert kinds(pool.reset({0: Reset(0, {"do": "wait 0.5"})})) == {0: "ok"}
        assert kinds(pool.reset({1: Reset(0, {"do": "hang"})})) == {1: "hung"}


@pytest.mark.slow
def test_making_an_environment_has_a_limit_of_its_own() -> None:
    with open_pool(workers=1, reset_limit=0.4, start="slow") as pool:
        begin(pool)
    with open_pool(workers=1, reset_limit=0.4, start_limit=3.0, start="hang") as pool:
        results = pool.reset({0: Reset(0), 1: Reset(0)})
        assert kinds(results) == {0: "hung", 1: "lost"}
        assert results[0].detail == "no result within 3.4 s"


def test_a_worker_that_stopped_takes_no_orders() -> None:
    with open_pool(step_limit=0.5) as pool:
        begin(pool)
        assert pool.processes[0] is not None
        os.kill(pool.processes[0], signal.SIGSTOP)
        results = pool.step({0: "x" * 10**7, 1: "go"})
        assert kinds(results) == {0: "hung", 1: "ok"}


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_limits_are_above_zero(limit: float) -> None:
    with pytest.raises(ValueError, match="step_limit must be above 0"):
        open_pool(step_limit=limit)


# Restarts.


def test_a_worker_that_never_answers_breaks_the_pool() -> None:
    with open_pool(workers=1, slots=2, tries=3, start="crash") as pool:
        began = time.monotonic()
        for _ in range(3):
            assert kinds(pool.reset({0: Reset(0), 1: Reset(0)})) == {0: "crashed", 1: "lost"}
        with pytest.raises(PoolBrokenError, match=r"died 3 times .*: .* exited with code 7"):
            pool.reset({0: Reset(0)})
        assert time.monotonic() - began > 0.1  # the third start was put off


def test_a_worker_that_answers_in_between_may_die_as_often_as_it_likes() -> None:
    with open_pool(workers=1, slots=1, tries=2) as pool:
        for _ in range(4):
            begin(pool)
            assert kinds(pool.step({0: "crash"})) == {0: "crashed"}


def test_a_worker_that_cannot_start_breaks_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        open_pool(workers=1, tries=2) as pool,
        pytest.raises(PoolBrokenError, match=r"died 2 times .*: the worker exited with code 1"),
    ):
        pool.reset({0: Reset(0)})


def test_a_worker_that_is_never_ready_breaks_the_pool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 1000\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    with (
        open_pool(workers=1, tries=2, start_limit=0.2) as pool,
        pytest.raises(PoolBrokenError, match=r"not ready within 0\.2 s"),
    ):
        pool.reset({0: Reset(0)})


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    with pytest.raises(FileNotFoundError):
        open_pool()
    assert descriptors() == before


# The caller.


def test_an_order_that_cannot_travel_disturbs_nobody(pool: ProcessPool) -> None:
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        pool.reset({0: Reset(0), 1: Reset(0, {"lock": threading.Lock()})})
    assert kinds(pool.step(dict.fromkeys(range(4), "go"))) == dict.fromkeys(range(4), "ok")


def test_an_interrupted_call_leaves_no_answers_behind(pool: ProcessPool) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            pool.step({0: "wait 5", 1: "go"})
    finally:
        signal.signal(signal.SIGALRM, before)
    results = pool.step({0: "who", 1: "who"})
    assert kinds(results) == {0: "lost", 1: "ok"}
    assert results[1].observation.isdigit()


def test_workers_ignore_an_interrupt(pool: ProcessPool) -> None:
    assert pool.step({0: "interrupt"})[0].observation == "still here"


def test_workers_outlive_the_thread_that_made_them() -> None:
    made: list[ProcessPool] = []

    def make() -> None:
        made.append(open_pool())
        begin(made[0])

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    with made[0] as pool:
        assert kinds(pool.step(dict.fromkeys(range(4), "go"))) == dict.fromkeys(range(4), "ok")


def test_noise_mixes_with_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with open_pool() as pool:
        begin(pool)
        results = pool.step(dict.fromkeys(range(4), "shout HELLO"))
        assert {result.observation for result in results.values()} == {"read ''"}
    captured = capfd.readouterr()
    assert captured.out == ""
    assert [captured.err.count(f"{who} HELLO") for who in ("out", "err", "raw", "child")] == [4] * 4


# What is left.


def test_closing_leaves_nothing() -> None:
    before = descriptors()
    with open_pool() as pool:
        begin(pool)
        child = int(pool.step({0: "child"})[0].observation)
        pool.step({1: "crash"})
        workers = [pid for pid in pool.processes if pid is not None]
        assert len(workers) == 1
    assert all(is_gone(pid) for pid in workers)
    assert soon(lambda: is_gone(child))
    assert pool.processes == [None, None]
    assert descriptors() == before


def test_a_hang_takes_the_children_with_it() -> None:
    with open_pool(step_limit=0.5) as pool:
        begin(pool)
        child = int(pool.step({0: "child"})[0].observation)
        assert kinds(pool.step({2: "hang"})) == {2: "hung"}
        assert soon(lambda: is_gone(child))


@pytest.mark.slow
def test_an_environment_that_does_not_close_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "slow"
    with open_pool(workers=1, slots=2, log=str(log)) as pool:
        begin(pool)
        began = time.monotonic()
    assert time.monotonic() - began < AGES
    assert log.read_text().split() == ["made", "made", "closed"]


def test_a_forgotten_pool_is_closed(tmp_path: Path) -> None:
    pool = open_pool()
    begin(pool)
    workers = [pid for pid in pool.processes if pid is not None]
    del pool
    assert all(is_gone(pid) for pid in workers)


PARENT = """
import signal, sys, time
# A program that a shell started in the background ignores interrupts, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ascribe_lab.rollout.pools import Reset, EnvironmentSpec, ProcessPool
pool = ProcessPool(EnvironmentSpec({toy!r}), 2, 2, 1000.0, 100.0)
pool.reset({{0: Reset(0), 1: Reset(1)}})
child = pool.step({{0: "child"}})[0].observation
print(child, *pool.processes, flush=True)
{then}
"""


def run_parent(then: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """A program without a guard for its main module, and the processes that it leads to."""
    program = textwrap.dedent(PARENT).format(toy=TOY, then=then)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, [int(word) for word in parent.stdout.readline().split()]


@pytest.mark.parametrize("doing", ["time.sleep(1000)", "pool.step({0: 'hang', 1: 'lock'})"])
def test_no_orphans_when_the_parent_is_killed(doing: str) -> None:
    parent, processes = run_parent(doing)
    with parent:
        time.sleep(0.3)
        assert len(processes) == 3
        assert not any(is_gone(pid) for pid in processes)
        parent.kill()
    assert soon(lambda: all(is_gone(pid) for pid in processes))


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "raise SystemExit", "1 / 0"])
def test_no_orphans_when_the_parent_leaves_without_closing(ending: str) -> None:
    parent, processes = run_parent(f"sys.stderr = None; {ending}")
    with parent:
        try:
            parent.wait(AGES)
        finally:
            parent.kill()
    assert len(processes) == 3
    assert soon(lambda: all(is_gone(pid) for pid in processes))


def test_an_interrupt_ends_parent_and_workers() -> None:
    parent, processes = run_parent("sys.stderr = None; pool.step({0: 'hang', 1: 'hang'})")
    with parent:
        time.sleep(0.3)
        parent.send_signal(signal.SIGINT)
        try:
            assert parent.wait(AGES) != 0
        finally:
            parent.kill()
    assert soon(lambda: all(is_gone(pid) for pid in processes))


def test_a_fork_of_the_parent_does_not_close_the_pool(pool: ProcessPool) -> None:
    # By the C library, because Python warns of forks in programs with threads.
    pid = ctypes.CDLL(None).fork()
    if pid == 0:
        pool.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert kinds(pool.step({0: "go", 1: "go"})) == {0: "ok", 1: "ok"}
