"""Theorem 5.3 over all outcomes, without any noise: where it holds, and where it cannot.

Voters have a softmax over answers each; answer 0 is right. The expectation of anything is a sum
over all their answers, weighted by how likely they are.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.ccpo.coalitions import Votes, contributions, shapley

pytestmark = pytest.mark.unit

LOGITS = st.tuples(st.integers(2, 4), st.integers(2, 3), st.integers(0, 2**32 - 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).normal(0.0, 1.0, drawn[:2])
)
"""(agents, answers)."""


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def outcomes(logits):
    """All answers, their probability, and each agent's score ``∇ log π(y)``."""
    agents, count = logits.shape
    answers = np.array(list(product(range(count), repeat=agents)))
    policy = softmax(logits)
    likely = policy[np.arange(agents), answers].prod(axis=1)
    return answers, likely, np.eye(count)[answers] - policy


def voted(answers, ties="share"):
    return Votes(answers, (answers == 0).astype(float), ties)


def team_reward(answers, ties="share"):
    return voted(answers, ties).reward(np.ones(answers.shape[1], bool))


def gradient(likely, score, credit):
    """``E[g A]`` of each agent, from credit of each agent or, in one column, for all."""
    return np.einsum("r,rac,ra->ac", likely, score, np.broadcast_to(credit, score.shape[:2]))


def slope(success, logits, step=1e-5):
    """The gradient of a function of the logits, by finite differences."""
    out = np.empty(logits.shape)
    for place in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[place] += step
        down[place] -= step
        out[place] = (success(up) - success(down)) / (2 * step)
    return out


def success(logits):
    answers, likely, _ = outcomes(logits)
    return likely @ team_reward(answers)


@given(LOGITS, st.sampled_from(("share", "first")))
def test_independent_voters_have_an_unbiased_gradient(logits, ties):
    answers, likely, score = outcomes(logits)
    shared = gradient(likely, score, team_reward(answers, ties)[:, None])
    ours = gradient(likely, score, contributions(voted(answers, ties)))
    np.testing.assert_allclose(ours, shared, atol=1e-12)


@settings(max_examples=20)
@given(LOGITS)
def test_the_shared_gradient_is_that_of_success(logits):
    answers, likely, score = outcomes(logits)
    shared = gradient(likely, score, team_reward(answers)[:, None])
    np.testing.assert_allclose(shared, slope(success, logits), atol=1e-7)


@settings(max_examples=20)
@given(LOGITS)
def test_one_model_in_all_seats_is_no_obstacle_if_draws_are_independent(logits):
    """The same weights, other draws: the sum over seats is the gradient of success."""
    one = logits[0]

    def tied(weights):
        return success(np.tile(weights, (len(logits), 1)))

    answers, likely, score = outcomes(np.tile(one, (len(logits), 1)))
    ours = gradient(likely, score, contributions(voted(answers))).sum(axis=0)
    np.testing.assert_allclose(ours, slope(tied, one), atol=1e-7)


def copied(logits, source):
    """Agent i gives the draw of agent ``source[i]``: what counterfactual credit and truth say."""
    answers, likely, score = outcomes(logits)
    given = answers[:, list(source)]
    ours = gradient(likely, score, contributions(voted(given)))
    return ours, gradient(likely, score, team_reward(given)[:, None])


def test_copies_get_no_gradient_at_all():
    """All three give one draw: nobody is missed, so nobody is credited, right or wrong."""
    ours, true = copied(np.zeros((3, 2)), source=(0, 0, 0))
    assert (ours == 0.0).all()
    np.testing.assert_allclose(true[0], [0.25, -0.25])


def test_one_copy_halves_the_gradient():
    """Agent 1 repeats agent 0: without agent 0 its answer is still there, and depends on it."""
    ours, true = copied(np.zeros((3, 2)), source=(0, 0, 2))
    np.testing.assert_allclose(true[0], [0.25, -0.25])
    np.testing.assert_allclose(ours[0], [0.125, -0.125])


@settings(max_examples=50)
@given(LOGITS)
def test_a_follower_is_fixed_by_letting_it_speak_again(logits):
    """The last agent repeats the first. Its recorded vote biases the gradient; a new one does not.

    If the first is removed, a follower has nobody to repeat and is silent.
    """
    answers, likely, score = outcomes(logits)
    seen = np.column_stack([answers, answers[:, 0]])
    silent = np.column_stack([np.full(len(answers), -1), answers[:, 1:], np.full(len(answers), -1)])
    reward = team_reward(seen)
    spoken_again = reward - team_reward(silent)
    true = gradient(likely, score, reward[:, None])[0]
    fixed = gradient(likely, score, spoken_again[:, None])[0]
    np.testing.assert_allclose(fixed, true, atol=1e-12)
    recorded = gradient(likely, score, contributions(voted(seen))[:, :-1])[0]
    assert np.abs(recorded - true).max() > 1e-3 * np.abs(true).max()


@settings(max_examples=20)
@given(LOGITS)
def test_shapley_follows_another_objective(logits):
    """Its gradient is that of the success of all coalitions, not of the team's alone."""
    answers, likely, score = outcomes(logits)
    ours = gradient(likely, score, shapley(voted(answers)))

    def shared_out(weights):
        found, chance, _ = outcomes(weights)
        return chance @ shapley(voted(found))

    for agent in range(len(logits)):
        own = slope(lambda weights, a=agent: shared_out(weights)[a], logits)[agent]
        np.testing.assert_allclose(ours[agent], own, atol=1e-7)


# Variance.


def variances(likely, squares, reward, without):
    """Var(g Δ), Var(g R), what Eq. 26 says of the first, and the covariance that it leaves out.

    Both estimators have the same mean, so only second moments differ.
    """
    weight = likely * squares
    best = weight @ reward / weight.sum()
    ours, shared = weight @ (reward - without) ** 2, weight @ reward**2
    by_equation = shared + weight @ ((without - best) ** 2 - best**2)
    return ours, shared, by_equation, weight @ ((reward - best) * (without - best))


PROBABILITIES = st.floats(0.02, 0.98)


@given(PROBABILITIES, PROBABILITIES, PROBABILITIES, PROBABILITIES)
def test_think_solve_is_as_proved(good, with_good, with_bad, solo):
    """The solo answer is drawn apart, so Eq. 26 holds. With 0 and 1, it helps if b* is over 1/2."""
    cases = np.array(list(product((0, 1), repeat=3)), dtype=float)
    thought, joint, alone = cases.T
    right = np.where(thought > 0, with_good, with_bad)
    likely = np.prod(
        [np.where(x > 0, p, 1 - p) for x, p in ((thought, good), (joint, right), (alone, solo))],
        axis=0,
    )
    score = thought - good
    assert likely @ (score * alone) == pytest.approx(0.0, abs=1e-12)
    ours, shared, by_equation, covariance = variances(likely, score**2, joint, alone)
    assert ours == pytest.approx(by_equation, abs=1e-12)
    assert covariance == pytest.approx(0.0, abs=1e-12)
    best = (1 - good) * with_good + good * with_bad
    spread = good * (1 - good)
    assert ours - shared == pytest.approx(spread * solo * (1 - 2 * best), abs=1e-12)
    for baseline in np.linspace(-0.5, 1.5, 21):
        constant = likely * score**2 @ (joint - baseline) ** 2
        assert constant >= likely * score**2 @ (joint - best) ** 2 - 1e-12


@given(LOGITS)
def test_voting_does_better_than_proved(logits):
    """R and R_without share the others' answers: Eq. 26 leaves out twice their covariance."""
    answers, likely, score = outcomes(logits)
    reward, added = team_reward(answers), contributions(voted(answers))
    for agent in range(len(logits)):
        squares = (score[:, agent] ** 2).sum(axis=1)
        ours, _, by_equation, covariance = variances(
            likely, squares, reward, reward - added[:, agent]
        )
        assert ours == pytest.approx(by_equation - 2 * covariance, abs=1e-12)


@pytest.mark.parametrize(
    ("right", "others", "lower", "lower_by_equation"),
    [(0.5, 0.5, True, True), (0.7, 0.3, True, False), (0.9, 0.1, False, False)],
)
def test_when_voting_lowers_the_variance(right, others, lower, lower_by_equation):
    """Mostly, and more often than Eq. 26 says; not for an expert among agents mostly wrong."""
    logits = np.log([[right, 1 - right], [others, 1 - others], [others, 1 - others]])
    answers, likely, score = outcomes(logits)
    reward, added = team_reward(answers), contributions(voted(answers))[:, 0]
    squares = (score[:, 0] ** 2).sum(axis=1)
    ours, shared, by_equation, covariance = variances(likely, squares, reward, reward - added)
    assert (ours < shared, by_equation < shared) == (lower, lower_by_equation)
    assert covariance > 0


@given(LOGITS)
def test_a_redundant_vote_is_credited_with_nothing(logits):
    """Where the reward is the same without the agent, Δ is exactly 0, whatever the team earned."""
    answers, _, _ = outcomes(logits)
    assume(len(logits) > 2)
    added = contributions(voted(answers))
    unanimous = (answers == 0).all(axis=1)
    assert (added[unanimous] == 0.0).all()
