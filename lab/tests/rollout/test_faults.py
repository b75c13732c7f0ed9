"""A run through real faults: workers killed, a step that hangs, an environment that raises.

Every trajectory of the result must be, step by step, the one of a run without faults; every group
that is not there must be reported with its reason.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ascribe_lab.envs import Outcome
from ascribe_lab.rollout import (
    FailurePolicy,
    Plan,
    Request,
    Rollout,
    Sample,
    Sampling,
    rollout,
    table,
)
from ascribe_lab.rollout.pools import EnvironmentSpec, ProcessPool, SerialPool
from lab.tests.envs.toys import Corridor, Walk
from lab.tests.rollout.test_run import AGENT, Walker

PLAN = Plan(groups=8, size=8, max_turns=14, seed=11, name="faults")
WORKERS = 8
CURSED = 6
"""The goal of the first group of the plan, among others."""


class Accidents(Corridor):
    """A corridor where, once in all processes, a step hangs, and once it raises.

    With ``always``, one task raises whenever it is played.
    """

    def __init__(self, *, folder: str, always: bool = False) -> None:
        super().__init__(expert=True)
        self.folder, self.always = Path(folder), always

    def act(self, episode: Walk, action: str) -> Outcome:
        time.sleep(0.002)
        if self.always and episode.goal == CURSED:
            raise ValueError("this task is cursed")
        if self._first("hang"):
            time.sleep(600)
        if self._first("raise"):
            raise RuntimeError("an accident")
        return super().act(episode, action)

    def _first(self, accident: str) -> bool:
        """Whether this is the one who takes the token of an accident."""
        with suppress(OSError):
            (self.folder / accident).unlink()
            return True
        return False


class Killer(Walker):
    """Answers as the walker does, and kills a worker at random moments, in the middle of steps."""

    def __init__(self, pool: ProcessPool, seed: int, kills: int) -> None:
        super().__init__()
        self.pool, self.random = pool, random.Random(seed)
        self.moments = Counter(self.random.choices(range(1, 7), k=kills))
        self.calls = 0

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        self.calls += 1
        for _ in range(self.moments.pop(self.calls, 0)):
            self._kill_soon()
        return super().__call__(requests, sampling)

    def _kill_soon(self) -> None:
        """While the pool is at work, not now."""
        victim = self.random.choice([pid for pid in self.pool.processes if pid is not None])
        threading.Timer(self.random.random() * 0.02, _kill, [victim]).start()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def unbroken(plan: Plan) -> Rollout:
    with SerialPool(
        EnvironmentSpec("lab.tests.envs.toys:Corridor", {"expert": True}), slots=8
    ) as pool:
        return rollout(plan, pool, AGENT, Walker())


def with_faults(folder: Path, seed: int, *, always: bool = False, **policy: int) -> Rollout:
    """64 episodes on 8 workers: ten are killed, one hangs, one environment raises."""
    for accident in ("hang", "raise"):
        (folder / accident).touch()
    spec = EnvironmentSpec(
        "lab.tests.rollout.test_faults:Accidents", {"folder": str(folder), "always": always}
    )
    limits = {"step_limit": 3.0, "reset_limit": 60.0}
    with ProcessPool(spec, workers=WORKERS, slots=64, **limits) as pool:
        killer = Killer(pool, seed, kills=10)
        played = rollout(PLAN, pool, AGENT, killer, failures=FailurePolicy(**policy))
    if policy["retries"]:  # else the run may be over before all of it has happened
        assert not killer.moments
        assert not list(folder.iterdir())
    return played


def assert_sound(played: Rollout) -> None:
    """Nothing doubled, nothing lost: every group is complete, or dropped with its reason."""
    whole = {trajectory.name: trajectory for trajectory in unbroken(PLAN).trajectories}
    assert all(trajectory == whole[trajectory.name] for trajectory in played.trajectories)
    kept = Counter(trajectory.group for trajectory in played.trajectories)
    assert set(kept.values()) <= {PLAN.size}
    dropped = {group.group: group for group in played.dropped}
    assert sorted([*kept, *dropped]) == sorted({t.group for t in whole.values()})
    for group in dropped.values():
        assert group.remaining < group.needed
        assert all(lost.kind and lost.detail for lost in group.failed)
    steps = table(played)
    rows = set(zip(steps.trajectory.texts(), steps.step.tolist(), strict=True))
    assert len(rows) == len(steps) == sum(len(whole[t.name].steps) for t in played.trajectories)


def seeds() -> list[object]:
    """Ten workers are killed in each run: 30 in CI, 200 at night."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3)]
    return [0, *slow, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 20))]


@pytest.mark.parametrize("seed", seeds())
def test_a_run_outlives_its_faults(tmp_path: Path, seed: int) -> None:
    played = with_faults(tmp_path, seed, retries=20)
    assert_sound(played)
    assert len(played.trajectories) == 64
    assert played.retries >= 10


@pytest.mark.slow
def test_a_group_that_cannot_be_played_is_dropped_and_the_others_stay(tmp_path: Path) -> None:
    played = with_faults(tmp_path, 0, always=True, retries=12)
    assert_sound(played)
    assert played.dropped
    assert played.trajectories
    cursed = {str(lost.detail) for group in played.dropped for lost in group.failed}
    assert any("this task is cursed" in detail for detail in cursed)


@pytest.mark.slow
def test_without_retries_what_fails_is_reported(tmp_path: Path) -> None:
    played = with_faults(tmp_path, 1, retries=0)
    assert_sound(played)
    assert played.dropped
