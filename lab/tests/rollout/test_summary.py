"""Success by family, with an interval."""

import math

import pytest

from ascribe.estimators.diagnostics import wilson
from ascribe_lab.rollout import Clock, Rollout, Sample, Trajectory, success
from ascribe_lab.rollout.episode import Step


def trajectory(group: str, member: int, family: str, *, won: bool, turns: int = 2) -> Trajectory:
    step = Step("s", "o", [], Sample("a"), "a", True, None, 0.0, False, False, False)
    last = Step("s", "o", [], Sample("a"), "", False, None, float(won), won, not won, won)
    steps = (*[step] * (turns - 1), last)
    return Trajectory(group, f"{group}/{member}", "task", family, steps)


def rollout(*trajectories: Trajectory) -> Rollout:
    return Rollout(trajectories, (), (), Clock(1.0, 1.0, 2.0, 10), 0)


def test_a_task_counts_once() -> None:
    played = rollout(
        *(trajectory("a", i, "pick", won=True) for i in range(9)),
        trajectory("b", 0, "pick", won=False),
        trajectory("c", 0, "look", won=True, turns=4),
    )
    look, pick, everything = success(played)
    assert (look.family, pick.family, everything.family) == ("look", "pick", "all")
    assert (pick.rate, pick.tasks, pick.episodes) == (0.5, 2, 10)
    assert (pick.low, pick.high) == wilson(0.5, 2)
    assert everything.rate == pytest.approx(2 / 3)
    assert (look.turns, look.valid, look.reward) == (4.0, 0.75, 1.0)


def test_nothing_played_has_no_success() -> None:
    assert success(rollout()) == []


def test_tokens_per_second() -> None:
    assert Clock(2.0, 1.0, 3.0, 10).tokens_per_second == 5.0
    assert math.isclose(Clock(0.0, 1.0, 3.0, 0).tokens_per_second, 0.0)
