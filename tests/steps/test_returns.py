"""Rewards to returns, against loops and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps.returns import (
    episode_outcome,
    episode_return,
    penalties,
    reward_to_go,
    snap,
)

pytestmark = pytest.mark.unit

seeds = st.integers(0, 2**32 - 1)
discounts = st.sampled_from((0.0, 0.5, 0.9, 0.95, 0.99, 1.0)) | st.floats(0.0, 1.0)


def episodes(seed, longest=40):
    """Random rewards of up to six trajectories, and the trajectory of each."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, random.integers(1, 7))
    trajectory = np.repeat(np.arange(lengths.size), lengths)
    reward = random.choice([0.0, 1.0, -0.1, 10.0], trajectory.size)
    if random.random() < 0.5:
        reward = random.uniform(-10, 10, trajectory.size)
    return reward, trajectory, random


def backwards(reward, trajectory, gamma):
    """Each trajectory from its last step to its first."""
    out = [0.0] * len(reward)
    following = 0.0
    for i in range(len(reward) - 1, -1, -1):
        if i == len(reward) - 1 or trajectory[i] != trajectory[i + 1]:
            following = 0.0
        following = reward[i] + gamma * following
        out[i] = following
    return out


@given(seeds, discounts)
def test_reward_to_go_is_the_backward_recursion(seed, gamma):
    reward, trajectory, _ = episodes(seed)
    wanted = backwards(reward.tolist(), trajectory.tolist(), gamma)
    np.testing.assert_allclose(
        reward_to_go(reward, trajectory, gamma), wanted, rtol=1e-9, atol=1e-9
    )


@pytest.mark.slow
@given(seeds, st.sampled_from((0.95, 0.999, 1.0)))
def test_long_trajectories(seed, gamma):
    random = np.random.default_rng(seed)
    lengths = [5_000, int(random.integers(1, 5_000)), 1]
    trajectory = np.repeat(np.arange(3), lengths)
    reward = random.choice([0.0, 0.0, 1.0, -0.1], trajectory.size)
    wanted = backwards(reward.tolist(), trajectory.tolist(), gamma)
    got = reward_to_go(reward, trajectory, gamma)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@given(seeds, discounts)
def test_equal_rewards_from_a_step_on_give_equal_bits(seed, gamma):
    reward, trajectory, random = episodes(seed, longest=12)
    shared = random.uniform(-1, 1, random.integers(1, 12))
    zeros = np.zeros(random.integers(0, 5))
    # The same rewards at the end of a trajectory, alone, and followed by nothing but zeros.
    both = np.concatenate([reward, shared, shared, shared, zeros])
    last = trajectory[-1]
    ends = np.repeat(
        [last, last + 1, last + 2], [shared.size, shared.size, shared.size + zeros.size]
    )
    got = reward_to_go(both, np.concatenate([trajectory, ends]), gamma)[reward.size :]
    n = shared.size
    np.testing.assert_array_equal(got[:n], got[n : 2 * n])
    np.testing.assert_array_equal(got[:n], got[2 * n : 3 * n])


@given(seeds)
def test_undiscounted_reward_to_go_starts_at_the_episode_return(seed):
    reward, trajectory, _ = episodes(seed)
    count = int(trajectory[-1]) + 1
    starts = np.searchsorted(trajectory, np.arange(count))
    np.testing.assert_allclose(
        reward_to_go(reward, trajectory, 1.0)[starts],
        episode_return(reward, trajectory, count),
        rtol=1e-9,
        atol=1e-9,
    )


@given(seeds)
def test_episode_return_adds_in_step_order(seed):
    reward, trajectory, _ = episodes(seed)
    wanted = [0.0] * (int(trajectory[-1]) + 1)
    for value, label in zip(reward.tolist(), trajectory.tolist(), strict=True):
        wanted[label] += value
    assert episode_return(reward, trajectory, len(wanted)).tolist() == wanted


def test_by_hand():
    # Trajectory 0: 4, then 2 + 0.5 * 4 = 4, then 1 + 0.5 * 4 = 3. Trajectory 1: 8 alone.
    reward, trajectory = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 0, 1])
    assert reward_to_go(reward, trajectory, 0.5).tolist() == [3.0, 4.0, 4.0, 8.0]
    assert reward_to_go(reward, trajectory, 0.0).tolist() == reward.tolist()


def test_rewards_are_left_as_they_were():
    reward, trajectory = np.array([1.0, 2.0]), np.array([0, 0])
    reward_to_go(reward, trajectory, 0.5)
    assert reward.tolist() == [1.0, 2.0]


def test_nothing_in_nothing_out():
    nothing, nowhere = np.empty(0), np.empty(0, dtype=np.int64)
    assert reward_to_go(nothing, nowhere, 0.9).size == 0
    assert episode_return(nothing, nowhere, 0).size == 0


def test_penalties():
    assert penalties(np.array([True, False, True]), 0.1).tolist() == [0.0, 0.1, 0.0]


def one_by_one(*sessions):
    """The outcome of each list of rewards."""
    trajectory = np.repeat(np.arange(len(sessions)), [len(rewards) for rewards in sessions])
    return episode_outcome(np.concatenate(sessions), trajectory, len(sessions))


def test_outcomes_that_differ_by_rounding_alone_are_one():
    sums = one_by_one([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.6], [0.1, 0.2, -0.3], [0.0], [-0.0])
    assert sums.tolist() == [0.6, 0.6, 0.6, 0.0, 0.0, 0.0]
    assert not np.signbit(sums).any()
    assert one_by_one([0.1] * 10).tolist() == [1.0]
    assert one_by_one([0.1, 0.2, -0.3]).tolist() == [0.0]  # no win, with nothing beside it
    thirds = one_by_one([1 / 3, 2 / 7, 1 / 9], [1 / 9, 1 / 3, 2 / 7], [2 / 7, 1 / 9, 1 / 3])
    assert np.unique(thirds).size == 1


def test_outcomes_that_differ_for_real_stay_as_they_are():
    values = np.array([1e100, 1 / 3, 1 / 3 + 1e-9, 0.7000001, 0.7, 123456789012345.0, 2e-300, 0.0])
    assert snap(values, np.abs(values)).tolist() == values.tolist()
    assert one_by_one([1e9], [0.001], [0.002]).tolist() == [1e9, 0.001, 0.002]
    assert snap(np.zeros(0), np.zeros(0)).size == 0


@given(seeds)
def test_neither_order_nor_scale_tells_equal_outcomes_apart(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 30))
    cents = random.integers(-100, 100, (count, 12)) * (random.random((count, 12)) < 0.5)
    reward, trajectory = (cents / 100.0).ravel(), np.repeat(np.arange(count), 12)
    exact = cents.sum(axis=1)
    for factor in (1.0, 7.3, 1e-6, 1e6):
        found = episode_outcome(factor * reward, trajectory, count)
        assert np.array_equal(
            np.unique(found, return_inverse=True)[1], np.unique(exact, return_inverse=True)[1]
        )
        assert np.array_equal(found > 0, exact > 0)
        assert found == pytest.approx(factor * exact / 100, rel=1e-12, abs=1e-12 * factor)
    # Another order of the steps, and of the trajectories.
    mixed = random.permuted(reward.reshape(count, 12), axis=1)
    assert episode_outcome(mixed.ravel(), trajectory, count).tolist() == (exact / 100).tolist()
    order = random.permutation(count)
    shuffled = episode_outcome(reward.reshape(count, 12)[order].ravel(), trajectory, count)
    assert np.array_equal(shuffled, (exact / 100)[order])
