"""What PivotRL proves, checked in numbers."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import StepTable, recipe

Floats = npt.NDArray[np.float64]
betas = st.floats(0.2, 5.0)
logits = st.lists(st.floats(-3, 3), min_size=2, max_size=8)


def softmax(values: npt.ArrayLike) -> Floats:
    shifted = np.exp(np.asarray(values, dtype=np.float64) - np.max(values))
    return shifted / shifted.sum()


def group(rewards: list[float]) -> StepTable:
    """One turn, a group of answers to it: episodes of one step."""
    count = len(rewards)
    return StepTable.from_columns(
        {
            "group": ["turn"] * count,
            "trajectory": [f"answer {number}" for number in range(count)],
            "step": [0] * count,
            "state": ["history"] * count,
            "action": [f"a{number}" for number in range(count)],
            "reward": rewards,
        }
    )


# Proposition 3.1: only mixed outcomes give an update.


@given(st.integers(2, 16), st.booleans())
def test_equal_rewards_have_no_advantage(size: int, right: bool) -> None:
    advantage = recipe("grpo")(group([float(right)] * size)).advantage
    assert not np.nan_to_num(advantage).any()


@given(st.lists(st.integers(0, 1), min_size=2, max_size=16))
def test_only_groups_of_positive_variance_have_an_advantage(rewards: list[int]) -> None:
    advantage = np.nan_to_num(recipe("grpo")(group([float(r) for r in rewards])).advantage)
    assert bool(advantage.any()) == (np.var(rewards) > 0)
    assert advantage.sum() == pytest.approx(0, abs=1e-9)


@given(logits, st.lists(st.integers(0, 1), min_size=2, max_size=32), st.data())
def test_the_update_of_a_group_without_variance_is_zero(
    given_logits: list[float], rewards: list[int], data: st.DataObject
) -> None:
    """The policy gradient of a softmax policy: Σ_i A_i ∇ log π(a_i)."""
    policy = softmax(given_logits)
    actions = data.draw(
        st.lists(st.integers(0, policy.size - 1), min_size=len(rewards), max_size=len(rewards))
    )
    advantage = np.nan_to_num(recipe("grpo")(group([float(r) for r in rewards])).advantage)
    score = np.eye(policy.size)[actions] - policy
    if np.var(rewards) == 0:
        assert not (advantage @ score).any()


# Theorem 3.2: the GRPO score along the KL path is the standard deviation over β².


def tilted(reference: Floats, reward: Floats, beta: float) -> Floats:
    """π_β ∝ π_0 exp(r / β)."""
    return softmax(np.log(reference) + reward / beta)


@st.composite
def states(draw: st.DrawFn) -> tuple[Floats, Floats, float]:
    reference = softmax(draw(logits))
    binary = draw(st.booleans())
    values = st.integers(0, 1) if binary else st.floats(-1, 1)
    reward = draw(st.lists(values, min_size=reference.size, max_size=reference.size))
    return reference, np.array(reward, dtype=np.float64), draw(betas)


@given(states())
def test_the_score_is_the_standard_deviation(state: tuple[Floats, Floats, float]) -> None:
    reference, reward, beta = state
    policy = tilted(reference, reward, beta)
    mean = policy @ reward
    deviation = np.sqrt(policy @ (reward - mean) ** 2)
    assume(deviation > 1e-3)
    width = 1e-5 * beta
    above, below = (np.log(tilted(reference, reward, beta + d)) for d in (width, -width))
    slope = (above - below) / (2 * width)
    score = -policy @ ((reward - mean) / deviation * slope)
    assert score == pytest.approx(deviation / beta**2, rel=1e-4)


@given(states())
def test_the_natural_gradient_is_the_centred_reward(state: tuple[Floats, Floats, float]) -> None:
    """DJ[v] = <r - q, v> for every direction v, by finite differences along exponential paths."""
    reference, reward, beta = state
    policy = tilted(reference, reward, beta)
    gradient = reward - policy @ reward
    assert policy @ gradient == pytest.approx(0, abs=1e-12)
    for direction in np.eye(policy.size):
        tangent = direction - policy @ direction
        width = 1e-5
        ahead, behind = (softmax(np.log(policy) + d * tangent) @ reward for d in (width, -width))
        slope = (ahead - behind) / (2 * width)
        assert slope == pytest.approx(policy @ (gradient * tangent), abs=1e-8)
    assert policy @ gradient**2 == pytest.approx(policy @ (reward - policy @ reward) ** 2)


@given(betas, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_the_more_mixed_the_outcomes_the_larger_the_signal(
    beta: float, one: float, other: float
) -> None:
    def score(share: float) -> float:
        return float(np.sqrt(share * (1 - share)) / beta**2)

    larger, smaller = sorted((one, other), key=lambda share: -share * (1 - share))
    assert score(larger) >= score(smaller)
    if larger * (1 - larger) > smaller * (1 - smaller) + 1e-12:  # more than rounding
        assert score(larger) > score(smaller)


# Theorem 3.3: mass moves to acceptable actions, and the order inside and outside them is kept.


@st.composite
def acceptances(draw: st.DrawFn) -> tuple[Floats, npt.NDArray[np.bool_], float]:
    values = draw(st.lists(st.floats(-3, 3), min_size=3, max_size=8))
    size = len(values)
    chosen = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    accepted = np.array(chosen)
    assume(0 < accepted.sum() < size)
    return softmax(values), accepted, draw(betas)


def loss(policy: Floats, reference: Floats, accepted: npt.NDArray[np.bool_], beta: float) -> float:
    """Eq. 11 at one state."""
    return float(-policy[accepted].sum() + beta * (policy @ np.log(policy / reference)))


@given(acceptances(), st.data())
def test_the_minimiser_rescales_the_two_blocks(
    state: tuple[Floats, npt.NDArray[np.bool_], float], data: st.DataObject
) -> None:
    reference, accepted, beta = state
    share = reference[accepted].sum()
    mass = share * np.exp(1 / beta) / (1 - share + share * np.exp(1 / beta))
    best = np.where(accepted, mass / share, (1 - mass) / (1 - share)) * reference
    assert best.sum() == pytest.approx(1)
    assert mass > share
    assert best == pytest.approx(tilted(reference, accepted.astype(np.float64), beta))
    noise = data.draw(st.lists(st.floats(-1, 1), min_size=reference.size, max_size=reference.size))
    other = softmax(np.log(best) + np.array(noise))
    assert loss(best, reference, accepted, beta) <= loss(other, reference, accepted, beta) + 1e-12
    # Among all with this mass on acceptable actions it is the one nearest to the reference.
    blocks = [np.where(side, other, 0.0) for side in (accepted, ~accepted)]
    same_mass = sum(
        part / part.sum() * total for part, total in zip(blocks, (mass, 1 - mass), strict=True)
    )
    near, far = (p @ np.log(p / reference) for p in (best, same_mass))
    assert near <= far + 1e-12


def trained(
    start: Floats, reward: Floats, beta: float, steps: int = 4_000, rate: float = 0.5
) -> Floats:
    """A softmax policy after gradient descent on Eq. 11, from logits of the reference."""
    reference, values = softmax(start), start.copy()
    for _ in range(steps):
        policy = softmax(values)
        # What each action is worth: its reward less β times how far the policy has moved there.
        worth = reward - beta * np.log(policy / reference)
        values += rate * policy * (worth - policy @ worth)
    return softmax(values)


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_a_small_softmax_policy_learns_what_the_theorem_says(beta: float) -> None:
    start = np.array([1.2, -0.3, 0.4, -1.0, 0.9, 0.0])
    accepted = np.array([False, True, False, True, False, False])
    reference = softmax(start)
    policy = trained(start, accepted.astype(np.float64), beta)
    share = reference[accepted].sum()
    mass = share * np.exp(1 / beta) / (1 - share + share * np.exp(1 / beta))
    assert policy[accepted].sum() == pytest.approx(mass, abs=1e-4)
    for block in (accepted, ~accepted):
        ratio = policy[block] / reference[block]
        assert ratio == pytest.approx(np.full(ratio.size, ratio[0]), rel=1e-3)
        assert (np.argsort(policy[block]) == np.argsort(reference[block])).all()


def test_the_strict_reward_does_not_keep_the_order_of_acceptable_actions() -> None:
    """With one demonstrated string alone, its equals are pushed down like any wrong action."""
    start = np.array([1.2, -0.3, 0.4, -1.0, 0.9, 0.0])
    reference = softmax(start)
    strict = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])  # of the acceptable 1 and 3, only 3
    policy = trained(start, strict, 0.3)
    assert reference[1] > reference[3]
    assert policy[1] < policy[3]
    assert policy[1] < reference[1]
