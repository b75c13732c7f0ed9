"""Voting, any topology, and both ways from contributions to advantages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.estimators.ccpo import CCPO, Statistics, allocated, counterfactual
from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm
from experiments.ccpo.coalitions import (
    Recorded,
    Votes,
    contributions,
    in_line,
    rewards_without,
    side_by_side,
    speaks_again,
)
from tests.estimators import reference_ccpo as reference

pytestmark = pytest.mark.unit

TIES = st.sampled_from(("share", "first"))
SEEDS = st.integers(0, 2**32 - 1)
WORTH = np.array([0.0, 1.0, 0.1, 0.3])


def votes(seed, agents, rollouts, ties="share"):
    answers = np.random.default_rng(seed).integers(-1, 4, (rollouts, agents))
    return Votes(answers, WORTH[answers], ties)  # an answer that was not given is worth anything


VOTES = st.builds(votes, SEEDS, st.integers(1, 5), st.integers(1, 8), TIES)


def earned(team, row):
    """The obvious reward of one rollout, by who is there."""
    answers, rewards = team.answers[row].tolist(), team.rewards[row].tolist()
    return lambda present: reference.vote(answers, rewards, sorted(present), team.ties)


@given(VOTES, SEEDS)
def test_reward_equals_counting_votes(team, seed):
    rollouts = len(team.answers)
    present = np.random.default_rng(seed).random(team.answers.shape) < 0.6
    wanted = [earned(team, row)(np.flatnonzero(present[row])) for row in range(rollouts)]
    np.testing.assert_allclose(team.reward(present), wanted, atol=1e-15)
    together = [earned(team, row)(np.flatnonzero(present[0])) for row in range(rollouts)]
    np.testing.assert_allclose(team.reward(present[0]), together, atol=1e-15)


@given(VOTES)
def test_contributions_equal_the_loop(team):
    rollouts, agents = team.answers.shape
    wanted = [reference.contributions(agents, earned(team, row)) for row in range(rollouts)]
    np.testing.assert_allclose(contributions(team), wanted, atol=1e-15)


def test_by_hand():
    """Two right and one wrong, all right, two wrong and one right."""
    answers = np.array([[7, 7, 9], [7, 7, 7], [9, 9, 7]])
    team = Votes(answers, (answers == 7).astype(float))
    assert rewards_without(team).tolist() == [[0.5, 0.5, 1.0], [1.0] * 3, [0.5, 0.5, 0.0]]
    assert contributions(team).tolist() == [[0.5, 0.5, 0.0], [0.0] * 3, [-0.5, -0.5, 0.0]]
    first = Votes(team.answers, team.rewards, "first")
    assert contributions(first).tolist() == [[0.0] * 3] * 3


def test_a_vote_that_changes_nothing_is_worth_exactly_nothing():
    """Also where rewards cannot be written in binary."""
    answers = np.array([[0, 0, 0, 1, -1]])
    team = Votes(answers, np.where(answers == 0, 0.1, 0.7))
    assert contributions(team).tolist() == [[0.0] * 5]


def test_no_vote_no_reward():
    team = Votes(np.full((2, 3), -1), np.ones((2, 3)))
    assert team.reward(np.ones(3, bool)).tolist() == [0.0, 0.0]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="two rewards"):
        Votes(np.array([[1, 1]]), np.array([[0.0, 1.0]]))
    with pytest.raises(ValueError, match="answers"):
        Votes(np.array([[1, 1]]), np.array([[0.0]]))
    with pytest.raises(ValueError, match="ties"):
        Votes(np.array([[1, 1]]), np.array([[1.0, 1.0]]), "last")


# Any topology.


def test_who_speaks_again():
    assert not speaks_again(side_by_side(3), 1).any()
    assert speaks_again(in_line(4), 1).tolist() == [False, False, True, True]
    # 1 reads 0 and 2 reads 1: who reads a reader speaks again, too; 3 reads nobody.
    chain = side_by_side(4)
    chain[1, 0] = chain[2, 1] = True
    assert speaks_again(chain, 0).tolist() == [False, True, True, False]
    assert speaks_again(chain, 2).tolist() == [False] * 4
    debate = ~np.eye(3, dtype=bool)  # all read all, in rounds
    assert speaks_again(debate, 0).tolist() == [False, True, True]


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.booleans(), min_size=n * n, max_size=n * n)))
def test_who_speaks_again_is_who_can_be_reached(flags):
    agents = int(len(flags) ** 0.5)
    reads = np.array(flags).reshape(agents, agents)
    for absent in range(agents):
        reached, new = set(), {absent}
        while new:
            reached |= new
            new = {i for i in range(agents) for j in new if reads[i, j]} - reached
        assert set(np.flatnonzero(speaks_again(reads, absent))) == reached - {absent}


def test_a_line_of_three_from_what_was_played():
    played = {(0, 1, 2): [1.0, 1.0], (1, 2): [0.0, 1.0], (0, 2): [1.0, 0.0], (0, 1): [0.0, 0.0]}
    team = Recorded.of(in_line(3), {who: np.array(what) for who, what in played.items()})
    assert contributions(team).tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    with pytest.raises(ValueError, match=r"agents \(2,\) was not played"):
        team.reward(np.array([False, False, True]))
    with pytest.raises(ValueError, match="number of rollouts"):
        Recorded.of(in_line(2), {(0, 1): np.zeros(2), (1,): np.zeros(3)})


# From contributions to advantages.


@given(st.integers(1, 4), st.lists(st.integers(0, 12), max_size=3), st.sampled_from((0, 8)), SEEDS)
def test_the_first_way_equals_the_equations(agents, sizes, minimum, seed):
    random, shaping = np.random.default_rng(seed), CCPO(minimum=minimum)
    history = Statistics.start([f"agent {agent}" for agent in range(agents)])
    streams = [reference.Stream(shaping) for _ in range(agents)]
    for rollouts in sizes:
        delta = random.choice([-1.0, -0.5, 0.0, 0.5, 1.0], (rollouts, agents))
        prompt = random.integers(0, 4, rollouts)
        credit, history = counterfactual(delta, prompt, 4, history=history, recipe=shaping)
        for agent, stream in enumerate(streams):
            column = delta[:, agent].tolist()
            scores, *_ = stream.scores(column)
            rewards = column if scores is None else np.tanh(scores).tolist()
            wanted = reference.within_prompts(rewards, prompt.tolist(), shaping.epsilon)
            np.testing.assert_allclose(credit.advantage[:, agent], wanted, rtol=1e-6, atol=1e-6)


@given(VOTES, SEEDS, st.sampled_from((1e-6, 0.5)))
def test_the_second_way_equals_the_equations(team, seed, epsilon):
    rollouts, agents = team.answers.shape
    prompt = np.random.default_rng(seed).integers(0, 3, rollouts)
    reward = team.reward(np.ones(agents, bool))
    delta = contributions(team)
    credit = allocated(reward, delta, prompt, 3, Norm("std", epsilon=epsilon))
    wanted = reference.allocated(reward.tolist(), delta.tolist(), prompt.tolist(), epsilon)
    np.testing.assert_allclose(credit.advantage, wanted, atol=1e-9)


@given(SEEDS)
def test_the_second_way_never_blames_where_the_team_earns_0_or_1(seed):
    """If the team fails, no agent has contributed, and all weights are 0."""
    answers = np.random.default_rng(seed).integers(0, 2, (16, 3))  # two answers: no ties
    team = Votes(answers, (answers == 0).astype(float))
    reward, prompt = team.reward(np.ones(3, bool)), np.arange(16) // 4
    credit = allocated(reward, contributions(team), prompt, 4)
    assert (credit.advantage >= 0.0).all()
    assert (credit.advantage[reward == 0.0] == 0.0).all()


def test_one_batch_does_not_see_another_prompt():
    """Inside a prompt: the same rollouts get the same advantages whatever stands beside them."""
    delta = np.array([[1.0], [0.0], [0.0], [-1.0]])
    start = Statistics.start(["agent"])
    alone, _ = counterfactual(delta[:2], np.zeros(2, int), 1, history=start)
    beside, _ = counterfactual(delta, np.array([0, 0, 1, 1]), 2, history=start)
    np.testing.assert_array_equal(beside.advantage[:2], alone.advantage)
    assert (beside.reason == Reason.CREDITED).all()


def test_a_rollout_that_takes_no_part_changes_nothing():
    delta, prompt = np.array([[1.0], [0.0], [-1.0]]), np.array([0, 0, -1])
    start, shaping = Statistics.start(["agent"]), CCPO(minimum=0)
    credit, after = counterfactual(delta, prompt, 1, history=start, recipe=shaping)
    alone, same = counterfactual(delta[:2], prompt[:2], 1, history=start, recipe=shaping)
    assert after == same
    np.testing.assert_array_equal(credit.advantage[:2], alone.advantage)
    assert credit.reason[2] == Reason.GROUP_OF_ONE
