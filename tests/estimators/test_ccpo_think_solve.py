"""A thinker and a solver: the paper's form, the authors' two releases, and the trust between."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.estimators.ccpo import (
    CCPO,
    PAPER,
    SOLVER,
    STREAMS,
    THINKER,
    Statistics,
    think_solve,
    within_prompts,
)
from ascribe.estimators.credit import Reason
from experiments.ccpo.coalitions import MEAN, contributions, outcome_bonus, pair, shapley
from tests.estimators import reference_ccpo as reference

pytestmark = pytest.mark.unit

ROLLOUTS, SEEDS = st.integers(0, 16), st.integers(0, 2**32 - 1)
SHAPINGS = st.builds(
    CCPO,
    alpha=st.sampled_from((0.5, 1.0, 2.0)),
    eta=st.sampled_from((0.0, 1.0, 3.0)),
    decay=st.sampled_from((0.0, 0.5, 0.99)),
    minimum=st.sampled_from((0, 1, 10)),
    epsilon=st.sampled_from((1e-6, 1e-3)),
    statistics=st.sampled_from(("after", "before")),
    flat=st.sampled_from(("epsilon", "one")),
)


def rollouts_of(size, random):
    """Rewards together and alone, and prompts."""
    joint, solo = random.choice([0.0, 1.0, 0.5, 0.25, -1.0], (2, size))
    return joint, solo, random.integers(0, 4, size)


@given(st.lists(ROLLOUTS, max_size=4), SHAPINGS, SEEDS)
def test_equals_the_equations_batch_after_batch(sizes, shaping, seed):
    history, wanted = Statistics.start(STREAMS), reference.ThinkSolve(shaping)
    random = np.random.default_rng(seed)
    for size in sizes:
        joint, solo, prompt = rollouts_of(size, random)
        credit, history = think_solve(joint, solo, prompt, 4, history=history, recipe=shaping)
        thinker, solver = wanted(joint.tolist(), solo.tolist(), prompt.tolist())
        # A solver's scores reach 1 / ε where a stream has not varied yet.
        np.testing.assert_allclose(credit.advantage[:, THINKER], thinker, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(credit.advantage[:, SOLVER], solver, rtol=1e-6, atol=1e-6)
        assert (credit.advantage[credit.reason != Reason.CREDITED] == 0.0).all()


def test_by_hand():
    """Four rollouts of one prompt: right together, right alone; μ and σ are those of the batch."""
    joint, solo = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
    credit, after = think_solve(
        joint,
        solo,
        np.zeros(4, int),
        1,
        history=Statistics.start(STREAMS),
        recipe=CCPO(minimum=4),
    )
    mean, std = 0.25, math.sqrt(3 / 16)  # Δ is 0, 1, 0, 0
    assert after == Statistics(STREAMS, (0.25, 0.5, 0.25), (3 / 16, 1 / 4, 3 / 16), 4)
    rewards = np.tanh((np.array([0.0, 1.0, 0.0, 0.0]) - mean) / (std + 1e-6))
    assert credit.reward[:, THINKER] == pytest.approx(rewards)
    gate = 1 / (1 + math.exp(-mean / (std + 1e-6)))
    assert credit.metrics == {"trust": pytest.approx(gate)}
    solver = gate * (joint - 0.5) / 0.500001 + (1 - gate) * (solo - 0.25) / (std + 1e-6)
    assert credit.reward[:, SOLVER] == pytest.approx(solver)
    assert credit.advantage[:, THINKER] == pytest.approx([-0.5, 1.5, -0.5, -0.5], abs=1e-5)


def test_rewards_are_compared_as_they_are_until_enough_was_seen():
    joint, solo = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    prompt, history = np.zeros(2, int), Statistics.start(STREAMS)
    seen = []
    for _ in range(4):
        credit, history = think_solve(
            joint, solo, prompt, 1, history=history, recipe=CCPO(minimum=5)
        )
        seen.append("trust" in credit.metrics)
        if not seen[-1]:
            np.testing.assert_array_equal(credit.reward, np.stack([joint - solo, joint], axis=1))
    assert seen == [False, False, True, True]  # 2, 4, 6 samples, with the batch itself
    before = CCPO(minimum=5, statistics="before")
    credit, _ = think_solve(joint, solo, prompt, 1, history=history, recipe=before)
    assert "trust" in credit.metrics


def test_nothing_to_compare_is_no_credit():
    joint, solo = np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0])
    prompt = np.array([0, 0, 1, -1])
    credit, after = think_solve(joint, solo, prompt, 2, history=Statistics.start(STREAMS))
    reasons = [Reason.ZERO_VARIANCE] * 2 + [Reason.GROUP_OF_ONE] * 2
    assert credit.reason[:, THINKER].tolist() == reasons
    assert (credit.advantage == 0.0).all()
    assert after.samples == 3  # a rollout that takes no part is not counted either


def test_first_release_uses_what_it_knew_before_the_batch():
    """Its statistics stem from earlier batches; a stream that has not varied is divided by one."""
    prompt, history = np.zeros(12, int), Statistics.start(STREAMS)
    joint, solo = np.ones(12), np.zeros(12)
    first, history = think_solve(
        joint, solo, prompt, 1, history=history, recipe=CCPO.preset("first-release")
    )
    assert not first.metrics
    joint = np.repeat([1.0, 0.0], 6)
    second, _ = think_solve(
        joint, solo, prompt, 1, history=history, recipe=CCPO.preset("first-release")
    )
    assert second.reward[:, THINKER] == pytest.approx(np.tanh((joint - 1.0) / 1.000001))
    assert second.metrics["trust"] == pytest.approx(1 / (1 + math.exp(-1 / 1.000001)))


@given(
    ROLLOUTS,
    SEEDS,
    st.sampled_from(("event", "margin")),
    st.sampled_from((0.0, 0.2, 1.0)),
    st.sampled_from(("prompt", "rollout")),
)
def test_second_release_equals_the_loop(size, seed, bonus, weight, baseline):
    joint, solo, prompt = rollouts_of(size, np.random.default_rng(seed))
    credit = outcome_bonus(joint, solo, prompt, 4, bonus=bonus, weight=weight, baseline=baseline)
    wanted = reference.outcome_bonus(
        joint.tolist(), solo.tolist(), prompt.tolist(), bonus, weight, baseline
    )
    np.testing.assert_allclose(credit.reward, np.array(wanted).reshape(2, -1).T, atol=1e-12)
    again = within_prompts(credit.reward, prompt, 4, MEAN)
    np.testing.assert_array_equal(credit.advantage, again.advantage)


def test_second_release_by_hand():
    """Right where the solver mostly fails alone: +0.2. Wrong where it mostly succeeds: -0.2."""
    joint = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
    solo = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    credit = outcome_bonus(joint, solo, np.repeat([0, 1], 3), 2)
    assert credit.reward[:, THINKER] == pytest.approx([1.2, -1.0, -1.0, 1.0, -1.2, 1.0])
    assert credit.reward[:, SOLVER].tolist() == [1.0, -1.0, -1.0, 1.0, -1.0, 1.0]
    assert credit.advantage[:3, SOLVER] == pytest.approx([4 / 3, -2 / 3, -2 / 3])


def test_a_pair_is_a_team():
    """The thinker added Δ; the solver the whole. By Shapley they share what both bring about."""
    joint, solo = np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])
    team = pair(joint, solo)
    assert contributions(team)[:, THINKER].tolist() == (joint - solo).tolist()
    assert contributions(team)[:, SOLVER].tolist() == joint.tolist()
    assert shapley(team)[:, THINKER] == pytest.approx((joint - solo) / 2)
    assert shapley(team)[:, SOLVER] == pytest.approx((joint + solo) / 2)


def test_the_defaults_are_the_papers():
    assert (PAPER.alpha, PAPER.eta, PAPER.decay, PAPER.minimum) == (1.0, 1.0, 0.99, 50)
