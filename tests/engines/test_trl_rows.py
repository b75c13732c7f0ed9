"""Trajectories as rows of tokens."""

from collections.abc import Sequence

import pytest

pytest.importorskip("torch", reason="needs the extra actor")

from ascribe.engines.trl.batch import TrajectoryLayoutError, rows_of
from ascribe.rollout import Sample, Trajectory
from ascribe.rollout.episode import Step


def trajectory(*samples: tuple[Sequence[int], Sequence[int]], name: str = "g/0/0") -> Trajectory:
    """A trajectory of samples, each prompt and response."""
    steps = tuple(
        Step(
            state="",
            observation="",
            messages=(),
            sample=Sample("", tuple(prompt), tuple(response)),
            action="",
            valid=True,
            problem=None,
            reward=0.0,
            terminated=False,
            truncated=False,
            won=False,
        )
        for prompt, response in samples
    )
    return Trajectory("g/0", name, "", "", steps)


GROWING = trajectory(([1, 2], [3]), ([1, 2, 3, 4, 5], [6, 7]), ([1, 2, 3, 4, 5, 6, 7, 8], [9]))
FORGETFUL = trajectory(([1, 2], [3]), ([1, 4], [5]))


def test_a_step_is_a_row() -> None:
    rows = rows_of([FORGETFUL, GROWING], "step")
    assert [row.prompt for row in rows[:3]] == [(1, 2), (1, 4), (1, 2)]
    assert [row.completion for row in rows] == [(3,), (5,), (3,), (6, 7), (9,)]
    assert [row.steps.tolist() for row in rows] == [[0], [1], [2], [3], [4]]
    assert [row.decides.tolist() for row in rows] == [[1], [1], [1], [4], [7]]
    assert [row.tokens for row in rows] == [1, 1, 1, 2, 1]


def test_a_trajectory_is_a_row() -> None:
    first, second = rows_of([GROWING, GROWING], "trajectory")
    assert first.prompt == (1, 2)
    assert first.completion == (3, 4, 5, 6, 7, 8, 9)
    assert first.step.tolist() == [0, -1, -1, 1, 1, -1, 2]
    assert first.decides.tolist() == [1, 4, 7]
    assert first.tokens == 4
    assert second.steps.tolist() == [3, 4, 5]


def test_an_agent_that_forgets_gives_no_row_for_a_trajectory() -> None:
    with pytest.raises(
        TrajectoryLayoutError, match=r"g/0/0: the prompt of step 1 .* layout='step'"
    ):
        rows_of([FORGETFUL], "trajectory")


def test_other_tokens_for_the_same_text_are_refused() -> None:
    with pytest.raises(TrajectoryLayoutError):
        rows_of([trajectory(([1], [2, 3]), ([1, 23, 4], [5]))], "trajectory")


def test_a_policy_without_tokens_teaches_nothing() -> None:
    with pytest.raises(ValueError, match="g/0/0: the policy gave no token ids"):
        rows_of([trajectory(([], []))], "step")
