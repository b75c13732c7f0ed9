"""Shapley values: equal to all orders, and the properties that define them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ccpo.coalitions import (
    EXACT,
    Recorded,
    Votes,
    contributions,
    exact,
    sampled,
    shapley,
    side_by_side,
)
from tests.estimators import reference_ccpo as reference

pytestmark = pytest.mark.unit


@st.composite
def games(draw, most=5, rollouts=3):
    """Any rewards for any coalition."""
    agents = draw(st.integers(1, most))
    number = st.floats(-2, 2).map(lambda x: round(x, 3))
    size = 2**agents * rollouts
    rewards = np.array(draw(st.lists(number, min_size=size, max_size=size)))
    return Recorded(side_by_side(agents), rewards.reshape(2**agents, rollouts))


def voters(seed, agents, rollouts=20):
    answers = np.random.default_rng(seed).integers(-1, 3, (rollouts, agents))
    return Votes(answers, (answers == 0).astype(float))


@given(games())
def test_equals_the_mean_over_all_orders(team):
    agents = len(team.reads)
    for rollout, values in enumerate(shapley(team)):
        reward = team.rewards[:, rollout]
        wanted = reference.shapley(agents, lambda who, r=reward: r[sum(1 << a for a in who)])
        np.testing.assert_allclose(values, wanted, atol=1e-9)


@given(games(), st.booleans(), st.integers(0, 2**32 - 1))
def test_efficiency(team, drawn, seed):
    """What agents earn adds up to what the team earns above an empty one."""
    found = sampled(team, np.random.default_rng(seed), 2) if drawn else exact(team)
    np.testing.assert_allclose(found.sum(axis=1), team.rewards[-1] - team.rewards[0], atol=1e-9)


@given(games(most=4), st.data())
def test_symmetry(team, data):
    """Two agents that add the same to every coalition of the others earn the same."""
    agents = len(team.reads) + 1
    twin = data.draw(st.integers(0, agents - 2))
    # The new agent, last, stands in for its twin; the two together are worth anything.
    rewards = np.concatenate([team.rewards, team.rewards])
    for coalition in range(2 ** (agents - 1)):
        if not coalition >> twin & 1:
            alone = team.rewards[coalition | 1 << twin]
            rewards[coalition | 1 << (agents - 1)] = alone
        else:
            rewards[coalition | 1 << (agents - 1)] = np.cos(coalition) * team.rewards[coalition]
    values = exact(Recorded(side_by_side(agents), rewards))
    np.testing.assert_allclose(values[:, twin], values[:, -1], atol=1e-9)


@given(games(most=4), st.booleans(), st.integers(0, 2**32 - 1))
def test_null_player(team, drawn, seed):
    """An agent that never adds anything earns exactly nothing, and changes nobody's value."""
    agents = len(team.reads) + 1
    with_null = Recorded(side_by_side(agents), np.concatenate([team.rewards, team.rewards]))
    if drawn:
        assert (sampled(with_null, np.random.default_rng(seed), 3)[:, -1] == 0.0).all()
        return
    values = exact(with_null)
    assert (values[:, -1] == 0.0).all()
    np.testing.assert_allclose(values[:, :-1], exact(team), atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_voters_are_alike_but_for_what_they_say(seed, agents):
    """Same answers, same values; a silent agent has none; and it does not matter who sits where."""
    team = voters(seed, agents)
    values, order = shapley(team), np.random.default_rng(seed).permutation(agents)
    same = (team.answers[:, :, None] == team.answers[:, None, :]) & (team.answers >= 0)[:, None, :]
    apart = np.abs(values[:, :, None] - values[:, None, :])
    assert apart[same].max(initial=0.0) < 1e-12
    assert (values[team.answers < 0] == 0.0).all()
    seated = Votes(team.answers[:, order], team.rewards[:, order])
    np.testing.assert_allclose(shapley(seated), values[:, order], atol=1e-12)


def test_copies_share_what_leaving_one_out_denies_them():
    """Three agents with one right answer: nobody is missed, yet together they are everything."""
    team = Votes(np.zeros((1, 3), int), np.ones((1, 3)))
    assert contributions(team).tolist() == [[0.0, 0.0, 0.0]]
    np.testing.assert_allclose(shapley(team), [[1 / 3] * 3])


def test_sampling_comes_close():
    team = voters(0, 5, rollouts=400)
    error = sampled(team, np.random.default_rng(1), 200) - exact(team)
    assert np.abs(error.mean(axis=0)).max() < 4 * error.std() / np.sqrt(len(error))
    few = sampled(team, np.random.default_rng(1), 50) - exact(team)
    assert few.std() == pytest.approx(2 * error.std(), rel=0.1)  # a quarter of the orders


def test_large_teams_are_sampled():
    team = voters(0, EXACT + 1)
    with pytest.raises(ValueError, match="Generator"):
        shapley(team)
    found = shapley(team, np.random.default_rng(3), samples=4)
    np.testing.assert_array_equal(found, sampled(team, np.random.default_rng(3), 4))
    small = voters(0, EXACT)
    np.testing.assert_array_equal(shapley(small), exact(small))


def test_every_order_is_also_taken_backwards():
    """Two agents have two orders: one draw sees both, and is exact."""
    team = voters(0, 2)
    np.testing.assert_allclose(sampled(team, np.random.default_rng(0), 1), exact(team), atol=1e-12)
