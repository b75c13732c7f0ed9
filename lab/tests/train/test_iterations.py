"""Credit for groups whose members were played on several processes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ascribe.estimators import recipe
from ascribe.estimators.assign import assign
from ascribe.estimators.diagnostics import diagnose
from ascribe.steps.problems import TableError
from ascribe_lab.rollout import Clock, FailedEpisode, FailurePolicy, Rollout, Sample, Trajectory
from ascribe_lab.rollout.episode import Step
from ascribe_lab.rollout.pools import FailureKind
from ascribe_lab.train.iterations import (
    Iteration,
    LocalRollout,
    credit_iteration,
    episode_metrics,
    iteration_metrics,
    trl_metrics,
    without_texts,
)


def step(state: str, reward: float = 0.0, last: bool = False) -> Step:
    return Step(
        state=state,
        observation=f"you see {state}",
        messages=({"role": "user", "content": state},),
        sample=Sample("go", (1, 2), (3,), (-0.5,)),
        action="go",
        valid=True,
        problem=None,
        reward=reward,
        terminated=last,
        truncated=False,
        won=last and reward > 0,
    )


def trajectory(group: str, member: int, reward: float, length: int = 2) -> Trajectory:
    steps = [step(f"{group} {n}") for n in range(length - 1)]
    steps.append(step(f"{group} {length - 1}", reward, last=True))
    return Trajectory(group, f"{group}/{member}", "", "toy", tuple(steps))


def part(
    trajectories: Sequence[Trajectory], lost: Sequence[tuple[str, FailureKind]] = ()
) -> LocalRollout:
    failed = tuple(FailedEpisode(group, f"{group}/9", kind, "", 0) for group, kind in lost)
    groups = [t.group for t in trajectories] + [group for group, _ in lost]
    rollout = Rollout(tuple(trajectories), (), failed, Clock(0.0, 0.0, 0.0, 0), 0)
    return LocalRollout(tuple(groups), rollout)


def credited(played: Sequence[LocalRollout], failures: FailurePolicy | None = None) -> Iteration:
    return credit_iteration(played, recipe("gigpo"), size=4, failures=failures or FailurePolicy())


def groups(*names: str) -> list[Trajectory]:
    rewards = (0.0, 1.0, 0.25, 1.0)
    return [
        trajectory(name, member, reward, length=2 + member % 2)
        for name in names
        for member, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7])
def test_credit_does_not_depend_on_who_played(cut: int) -> None:
    every = groups("a", "b")
    alone, apart = credited([part(every)]), credited([part(every[:cut]), part(every[cut:])])
    np.testing.assert_array_equal(apart.advantage, alone.advantage)
    assert apart.signal.all()
    assert not apart.dropped


def test_it_is_the_recipe_s_credit() -> None:
    found = credited([part(groups("a", "b"))])
    np.testing.assert_array_equal(
        found.advantage, assign(found.table, recipe("gigpo")).credit.advantage
    )


def test_a_failure_on_one_process_drops_the_group_on_all() -> None:
    every = groups("a", "b")
    found = credited([part(every[:3], [("a", FailureKind.RAISED)]), part(every[4:])])
    assert found.dropped == {"a": "raised"}
    assert not found.counts[:7].any()
    assert found.counts[7:].all()
    assert (found.advantage[:7] == 0).all()
    assert {t.group for t in found.counted.trajectories} == {"b"}


def test_a_group_that_may_be_smaller_goes_on() -> None:
    every = groups("a")
    lenient = FailurePolicy(smallest_group=2)
    found = credited([part(every[:3], [("a", FailureKind.RAISED)])], lenient)
    assert not found.dropped
    assert found.signal.all()


def test_a_group_of_one_is_kept_and_teaches_nothing() -> None:
    lost = [("a", FailureKind.HUNG)] * 3
    found = credited([part(groups("a")[:1], lost)], FailurePolicy(smallest_group=1))
    assert not found.dropped
    assert found.counts.all()
    assert not found.signal.any()


def test_nothing_left_is_no_error() -> None:
    found = credited([part([], [("a", FailureKind.CRASHED)] * 4), part([])])
    assert found.dropped == {"a": "crashed"}
    assert len(found.table) == 0
    assert found.advantage.size == 0
    told = iteration_metrics(found)
    assert told["ascribe/dropped/crashed"] == 1
    assert told["ascribe/episodes"] == 0
    assert "reward" not in told


def broken(group: str) -> list[Trajectory]:
    """A group whose first trajectory says that it ended before its last step."""
    first, *others = groups(group)
    steps = (replace(first.steps[0], terminated=True), *first.steps[1:])
    return [replace(first, steps=steps), *others]


def test_steps_that_cannot_be_credited_drop_their_group(caplog: pytest.LogCaptureFixture) -> None:
    found = credited([part(broken("a") + groups("b"))])
    assert found.dropped == {"a": "steps_after_end"}
    (line,) = caplog.messages
    assert "steps_after_end" in line
    assert line.endswith("Groups dropped: those of 'a/0'")
    alone = credited([part(groups("b"))])
    np.testing.assert_array_equal(found.advantage[found.counts], alone.advantage)


def test_all_groups_may_be_dropped_at_the_door() -> None:
    found = credited([part(broken("a") + broken("b"))])
    assert found.dropped == {"a": "steps_after_end", "b": "steps_after_end"}
    assert not found.counts.any()
    assert not found.signal.any()


def test_a_policy_that_refuses_is_heard() -> None:
    with pytest.raises(TableError, match="steps_after_end"):
        credit_iteration(
            [part(broken("a"))],
            recipe("gigpo"),
            size=4,
            failures=FailurePolicy(),
            on_problem="raise",
        )


def test_fingerprints_of_all_processes_are_put_together() -> None:
    every = groups("a", "b")
    vectors = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float16)
    parts = [
        replace(part(every[:3]), fingerprints=vectors[:7]),
        replace(part(every[3:]), fingerprints=vectors[7:]),
    ]
    found = credit_iteration(parts, recipe("bigpo", radius=0.5), size=4, failures=FailurePolicy())
    np.testing.assert_array_equal(found.table.fingerprint, vectors)


def test_trajectories_without_texts_are_credited_alike() -> None:
    every = groups("a", "b")
    small = [without_texts(trajectory) for trajectory in every]
    assert all(not s.messages and not s.sample.prompt_ids for t in small for s in t.steps)
    np.testing.assert_array_equal(
        credited([part(small)]).advantage, credited([part(every)]).advantage
    )


def test_numbers() -> None:
    found = credited([part(groups("a", "b"))])
    told = iteration_metrics(found) | trl_metrics(found.counted)
    assert told["ascribe/episodes"] == 8
    assert told["ascribe/success"] == 0.75
    assert told["ascribe/return"] == 0.5625
    assert told["ascribe/turns"] == 2.5
    assert told["ascribe/invalid_share"] == 0
    assert told["ascribe/signal_share"] == 1
    assert told["ascribe/parse_rate"] == 1
    assert told["ascribe/dropped_groups"] == 0
    assert {"ascribe/rms/episode", "ascribe/rms/step"} <= told.keys()
    states = diagnose(found.table, found.credit).states
    assert told["ascribe/singleton_share"] == states.singleton_share_of_groups
    assert told["ascribe/singleton_share_of_rows"] == states.singleton_share_of_rows
    assert told["ascribe/mean_group_size"] == states.mean_size
    assert told["ascribe/matched_pairs"] == states.matched_pairs


def test_parse_rate_is_of_responses_with_a_well_formed_action() -> None:
    """Text without tags is no action, and one that lacks a thought is carried out (BiPACE, L)."""
    one = groups("a")[0]
    problems = (None, "no_action", "no_thought", "action_not_closed")
    steps = [replace(one.steps[0], problem=problem) for problem in problems]
    told = episode_metrics(part([replace(one, steps=tuple(steps))]).rollout)
    assert told["ascribe/parse_rate"] == 0.5


def test_numbers_of_trl() -> None:
    found = credited([part(groups("a", "b"))])
    told = trl_metrics(found.counted)
    assert told["reward"] == 0.5625
    assert told["frac_reward_zero_std"] == 0
    assert told["completions/clipped_ratio"] == 0
