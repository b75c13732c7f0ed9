"""Simulated teams in which every agent's part is known: 10,000 prompts, with intervals."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from experiments.ccpo import team as simulated
from experiments.ccpo.coalitions import contributions, shapley, speaks_again
from tests.estimators import reference_ccpo as reference

pytestmark = pytest.mark.unit

PROMPTS = 10_000
NAMES = [*simulated.VOTERS, "follower"]
EVERYONE = np.ones(len(NAMES), dtype=bool)


def holds(found, expected):
    """Three standard errors and a half: one wrong alarm in two thousand."""
    return abs(found.value - expected) <= 3.5 / 1.96 * (found.high - found.value) + 1e-12


@pytest.fixture(scope="module")
def village():
    team, right = simulated.village(PROMPTS, np.random.default_rng(11))
    return team, right, contributions(team)


def by_hand(value):
    """Expected value of each agent, by counting votes one outcome at a time."""
    out = np.zeros(len(NAMES))
    for harder in simulated.DIFFICULTY:
        chances = [accuracy - harder for accuracy in simulated.VOTERS.values()]
        for answers in product(range(simulated.CHOICES), repeat=len(chances)):
            likely = 1.0
            for answer, right in zip(answers, chances, strict=True):
                wrong = (1 - right) * (0.6 if answer == 1 else 0.2)
                likely *= right if answer == 0 else wrong
            out += likely * np.array(value(len(NAMES), reward_of(answers))) / 3
    return out


def reward_of(answers):
    """A follower repeats a clear winner of those present, or is silent."""

    @cache
    def earned(present):
        voters = [agent for agent in present if agent < len(answers)]
        said = list(answers)
        counts = sorted(([said[v] for v in voters].count(a), a) for a in {said[v] for v in voters})
        clear = counts and (len(counts) == 1 or counts[-1][0] > counts[-2][0])
        said.append(counts[-1][1] if clear else -1)
        return reference.vote(said, [float(a == 0) for a in said], present)

    return lambda present: earned(tuple(sorted(present)))


def test_helpful_redundant_and_harmful_agents_are_told_apart(village):
    *_, added = village
    expected = by_hand(reference.contributions)
    found = [simulated.interval(simulated.mean, column) for column in added.T]
    assert all(map(holds, found, expected))
    helpful, plain, _, harmful, follower = found
    assert helpful.low > plain.high
    assert plain.low > 0.0 > harmful.high
    assert (follower.low, follower.high) == (0.0, 0.0)
    assert (added[:, -1] == 0.0).all()  # in every single rollout


def test_shared_reward_pays_them_all_alike(village):
    """So the follower, who adds nothing, earns as much as the helpful one."""
    team, *_ = village
    assert team.reward(EVERYONE).mean() > 0.5


def test_shapley_orders_them_too(village):
    team, *_ = village
    values = shapley(team)
    expected = by_hand(reference.shapley)
    found = [simulated.interval(simulated.mean, column) for column in values.T]
    assert all(map(holds, found, expected))
    assert found[0].low > found[1].high > found[1].low > 0.0 > found[3].high
    assert (values[:, -1] == 0.0).all()


def test_the_follower_reads_all_and_so_speaks_again(village):
    reads = village[0].reads
    assert [speaks_again(reads, agent)[-1] for agent in range(4)] == [True] * 4
    assert not speaks_again(reads, 4).any()


@pytest.mark.parametrize("agent", range(4))
def test_voting_gradient_is_unbiased_and_its_variance_as_computed(village, agent):
    team, right, added = village
    score = (team.voters[:, agent] == 0) - right[:, agent]
    ours, theirs = score * added[:, agent], score * team.reward(EVERYONE)
    both = simulated.interval(simulated.mean, ours - theirs)
    assert holds(both, 0.0)
    ratio = simulated.interval(simulated.variance_ratio, ours, theirs)
    assert holds(ratio, simulated.voting_ratios(agent)[0])
    assert ratio.high < 0.25


@pytest.mark.parametrize(("name", "right"), simulated.THINKERS.items())
def test_thinkers_are_told_apart(name, right):
    joint, solo = simulated.pairs(PROMPTS, right, np.random.default_rng(5))
    found = simulated.interval(simulated.mean, joint - solo)
    assert holds(found, right - simulated.SOLO)
    trust = simulated.train(joint, solo)[-1]
    if name == "redundant":
        assert trust == pytest.approx(0.5, abs=0.02)
    else:
        assert (trust > 0.55) == (name == "helpful")
        assert (trust < 0.45) == (name == "harmful")


@pytest.mark.parametrize("thinker", [simulated.EASY, simulated.HARD], ids=["easy", "hard"])
def test_think_solve_variance_is_as_theorem_53_says(thinker):
    """Less than with shared reward on easy prompts (b* = 0.75), more on hard ones (b* = 0.25)."""
    score, joint, solo = thinker.play(4 * PROMPTS, np.random.default_rng(6))
    both = simulated.interval(simulated.mean, score * (joint - solo))
    assert holds(both, thinker.gradient)
    ratio = simulated.interval(simulated.variance_ratio, score * (joint - solo), score * joint)
    assert holds(ratio, thinker.variance_ratio)
    assert (ratio.high < 1.0) == (thinker.best_baseline > 0.5)
    assert (ratio.low > 1.0) == (thinker.best_baseline < 0.5)


@pytest.mark.parametrize(("name", "source"), simulated.COPIES.items())
def test_copies_bias_the_gradient(name, source):
    answers = simulated.draw_votes(np.full((4 * PROMPTS, 3), 0.6), np.random.default_rng(7))
    ours, shared = simulated.gradients(answers, source, 0)
    true = simulated.true_gradient(source, 0)
    assert holds(simulated.interval(simulated.mean, shared), true)
    found = simulated.interval(simulated.mean, ours)
    assert holds(found, true) == (name == "three agents")
    if name == "three copies":
        assert (ours == 0.0).all()
