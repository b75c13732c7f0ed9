"""IBPO's parts against slow versions, and what must hold of them whatever the data."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascribe.estimators.credit import Reason
from ascribe.estimators.ibpo import (
    NORM,
    Tuples,
    consistency,
    draw_tuples,
    every_tuple,
    overtakes,
    share_corrected,
    weight_limit,
)
from ascribe.estimators.relative import relative
from tests.estimators import reference_ibpo as reference

pytestmark = pytest.mark.unit

TASKS = 3


@dataclass(frozen=True)
class Batch:
    right: np.ndarray
    group: np.ndarray
    size: int
    seed: int

    @property
    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def tuples(self) -> Tuples:
        return draw_tuples(self.right, self.group, TASKS, self.random, size=self.size)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    members = draw(
        st.lists(st.tuples(st.booleans(), st.integers(-1, TASKS - 1)), min_size=0, max_size=14)
    )
    return Batch(
        np.array([one[0] for one in members], dtype=np.bool_),
        np.array([one[1] for one in members], dtype=np.int64),
        draw(st.integers(2, 5)),
        draw(st.integers(0, 2**32 - 1)),
    )


def signals(batch: Batch, tuples: Tuples) -> np.ndarray:
    """A share of right corrections for each wrong trajectory; 0 without references."""
    return np.where(tuples.complete, batch.random.choice([0.0, 0.5, 1.0], len(tuples)), 0.0)


def bonuses(tuples: Tuples, signal: np.ndarray, size: int, factor: float) -> np.ndarray:
    """``λ β s`` of each trajectory."""
    bonus = np.zeros(size)
    bonus[tuples.target] = factor * signal
    return bonus


def advantages(reward: np.ndarray, group: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    return relative(reward, group, count, NORM, Reason.GROUP_OF_ONE)


# Tuples.


@given(batch=batches())
def test_references_come_from_the_right_ones_or_else_from_the_wrong(batch: Batch) -> None:
    tuples = batch.tuples
    assert tuples.target.tolist() == reference.targets(batch.right, batch.group)
    for target, drawn in zip(tuples.target, tuples.references, strict=True):
        pool = reference.pool(target, batch.right, batch.group)
        if not pool:
            assert (drawn == -1).all()
            continue
        assert set(drawn.tolist()) <= set(pool)
        # As many different ones as there are, then all of them again in the same order.
        assert len(set(drawn.tolist())) == min(len(pool), batch.size - 1)
        assert all(drawn[k] == drawn[k % len(pool)] for k in range(batch.size - 1))


@settings(max_examples=50)
@given(batch=batches())
def test_the_same_seed_draws_the_same(batch: Batch) -> None:
    np.testing.assert_array_equal(batch.tuples.references, batch.tuples.references)


@pytest.mark.parametrize("good", [0, 3])
def test_every_ordered_choice_is_as_likely(good: int) -> None:
    """Pearson's χ² of all ordered pairs of references stays where chance would leave it."""
    tasks, each = 6000, 4
    right = np.tile(np.arange(each) < good, tasks)
    group = np.repeat(np.arange(tasks), each)
    random = np.random.default_rng(11)
    tuples = draw_tuples(right, group, tasks, random, size=3)
    chosen = tuples.references % each
    kind = (tuples.target % each) * each * each + chosen[:, 0] * each + chosen[:, 1]
    seen = np.bincount(kind, minlength=each**3)
    pools = {i: reference.pool(i, right[:each], group[:each]) for i in range(good, each)}
    cells = [i * 16 + j * 4 + k for i, p in pools.items() for j in p for k in p if j != k]
    assert seen.sum() == seen[cells].sum()
    per_cell = seen.sum() / len(cells)
    freedom = len(cells) - len(pools)
    chi2 = float(((seen[cells] - per_cell) ** 2).sum() / per_cell)
    assert abs(chi2 - freedom) < 4 * math.sqrt(2 * freedom)


@given(batch=batches())
def test_every_tuple_holds_the_whole_pool(batch: Batch) -> None:
    tuples = every_tuple(batch.right, batch.group, TASKS)
    assert tuples.target.tolist() == reference.targets(batch.right, batch.group)
    for target, beside in zip(tuples.target, tuples.references, strict=True):
        pool = reference.pool(target, batch.right, batch.group)
        assert beside.tolist() == pool + [-1] * (beside.size - len(pool))


def test_a_tuple_may_be_the_wrong_trajectory_alone() -> None:
    """Table 2, k = 1: nothing stands beside it, and it needs nothing."""
    right, task, random = np.array([True, False, False]), np.zeros(3, int), np.random.default_rng(0)
    alone = draw_tuples(right, task, 1, random, size=1)
    assert alone.target.tolist() == [1, 2]
    assert alone.references.shape == (2, 0)
    assert alone.complete.tolist() == [True, True]
    with pytest.raises(ValueError, match="at least 1"):
        draw_tuples(right, task, 1, random, size=0)


def test_one_wrong_trajectory_alone_has_no_reference() -> None:
    random = np.random.default_rng(0)
    lonely = draw_tuples(np.array([False]), np.array([0]), 1, random)
    assert lonely.references.tolist() == [[-1]]
    assert lonely.complete.tolist() == [False]


# Comparisons.


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 5)), min_size=6, max_size=14))
def test_the_share_of_right_corrections(members: list[tuple[bool, int]]) -> None:
    right, target = np.array([m[0] for m in members]), np.array([m[1] for m in members])
    signal, judged = share_corrected(right, target)
    for number in range(len(members)):
        outcomes = [good for good, of in members if of == number]
        assert judged[number] == bool(outcomes)
        assert signal[number] == pytest.approx(sum(outcomes) / max(len(outcomes), 1))


@given(batch=batches(), rows=st.lists(st.tuples(st.integers(0, 13), st.integers(-1, 4))))
def test_consistency(batch: Batch, rows: list[tuple[int, int]]) -> None:
    tuples = batch.tuples
    rows = [row for row in rows if row[0] < batch.right.size]
    trajectory = np.array([row[0] for row in rows], dtype=np.int64)
    states = np.array([row[1] for row in rows], dtype=np.int64)
    signal, unjudged = consistency(tuples, states, 5, trajectory)
    expected = [
        reference.consistency(target, drawn, rows)
        for target, drawn in zip(tuples.target, tuples.references, strict=True)
    ]
    np.testing.assert_allclose(signal, [value for value, _ in expected], atol=1e-12)
    assert unjudged.tolist() == [why == "unjudged" for _, why in expected]
    assert ((signal >= 0) & (signal <= 1)).all()


# Shaping.


@given(
    batch=batches(),
    weight=st.sampled_from((0.0, 0.6, 1.2, 3.0)),
    scale=st.sampled_from((0.0, 0.5, 1.0)),
    partial=st.booleans(),
)
def test_shaped_advantages_are_those_of_algorithm_1(
    batch: Batch, weight: float, scale: float, partial: bool
) -> None:
    tuples = batch.tuples
    reward = np.where(batch.right, 1.0, 0.25 * batch.random.integers(0, 4, batch.right.size))
    reward = reward if partial else batch.right.astype(float)
    signal = signals(batch, tuples)
    bonus = bonuses(tuples, signal, reward.size, weight * scale)
    recovered = dict(zip(tuples.target.tolist(), signal.tolist(), strict=True))
    value, reason = advantages(reward + bonus, batch.group, TASKS)
    expected = reference.algorithm_1(reward, batch.group, recovered, weight, scale)
    for i, known in enumerate(expected):
        assert (reason[i] == Reason.CREDITED) == (known is not None)
        assert value[i] == pytest.approx(known or 0.0, abs=1e-9)
    np.testing.assert_array_equal(
        overtakes(reward, bonus, batch.right, batch.group),
        reference.overtakes(reward + bonus, reward, batch.right, batch.group),
    )
    assert (bonus[batch.right | (batch.group < 0)] == 0).all()


def test_a_task_that_nobody_solved_gets_credit_where_recoverability_differs() -> None:
    group, right = np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.bool_)
    tuples = draw_tuples(right, group, 2, np.random.default_rng(0))
    bonus = bonuses(tuples, np.array([1.0, 0.0, 1.0, 1.0]), 4, 0.3)
    value, reason = advantages(bonus, group, 2)
    assert value == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-6)
    assert reason[:2].tolist() == [Reason.CREDITED] * 2
    assert reason[2:].tolist() == [Reason.ZERO_VARIANCE] * 2


@given(batch=batches())
def test_where_every_wrong_one_is_recovered_shaping_changes_nothing(batch: Batch) -> None:
    """The bonus is then an affine change of the reward, which the standard deviation undoes."""
    tuples, reward = batch.tuples, batch.right.astype(float)
    shaped = reward + bonuses(tuples, tuples.complete.astype(float), reward.size, 0.3)
    plain, _ = advantages(reward, batch.group, TASKS)
    value, _ = advantages(shaped, batch.group, TASKS)
    mixed = np.isin(batch.group, batch.group[batch.right])  # others have references of their own
    np.testing.assert_allclose(value[mixed], plain[mixed], atol=1e-6)


# The theorem.


@given(batch=batches(), weight=st.floats(0, 5))
def test_the_variance_falls_below_the_limit_and_rises_above(batch: Batch, weight: float) -> None:
    tuples, reward = batch.tuples, batch.right.astype(float)
    bonus = bonuses(tuples, signals(batch, tuples), reward.size, 0.5)
    limit = weight_limit(reward, bonus, batch.group, TASKS)
    plain, after = squares(reward, batch.group), squares(reward + weight * bonus, batch.group)
    if limit == 0:
        assert after >= plain - 1e-9
    elif abs(weight - limit) > 1e-6 and weight > 1e-6:
        assert (after < plain) == (weight < limit)
    if limit:
        at_limit = squares(reward + limit * bonus, batch.group)
        assert at_limit == pytest.approx(plain, abs=1e-9)


def squares(values: np.ndarray, group: np.ndarray) -> float:
    tasks = [values[group == task] for task in range(TASKS) if (group == task).any()]
    return math.fsum(float(((task - task.mean()) ** 2).sum()) for task in tasks)


def test_a_signal_that_does_not_vary_lowers_nothing() -> None:
    """Then its covariance is 0 too (Cauchy and Schwarz), whatever the weight."""
    group = np.array([0, 0, 0, 1])
    reward, bonus = np.array([0.0, 0.0, 1.0, 0.0]), np.array([0.1, 0.1, 0.1, 0.7])
    assert weight_limit(reward, bonus, group, 2) == 0.0


@pytest.mark.parametrize("size", [2, 6])
@pytest.mark.parametrize("solved", [0.1, 0.5])
def test_the_range_of_the_theorem_by_enumeration(solved: float, size: int) -> None:
    """Exact variance of a centred advantage, over all outcomes of a group, on both sides of λ_max.

    Rewards 0 and 1, Δ = β with chance q where wrong: λ_max = 2 p / (β (1 - (1 - p) q)).
    """
    q, beta = 0.4, 0.5
    limit = 2 * solved / (beta * (1 - (1 - solved) * q))
    outcomes = np.array(list(product(range(3), repeat=size)))
    chances = np.array([solved, (1 - solved) * q, (1 - solved) * (1 - q)])[outcomes].prod(axis=1)

    def variance(share: float) -> float:
        rewards = np.array([1.0, share * limit * beta, 0.0])[outcomes]
        first = rewards[:, 0] - rewards.mean(axis=1)
        return float(chances @ first**2 - (chances @ first) ** 2)

    assert all(variance(share) < variance(0.0) for share in (0.01, 0.1, 0.5, 0.9, 0.99))
    assert variance(1.0) == pytest.approx(variance(0.0))
    assert all(variance(share) > variance(0.0) for share in (1.01, 1.5, 4.0))
    assert variance(0.5) < min(variance(0.45), variance(0.55))
    # The paper's bound leaves (G - 1) / G out of the covariance: there the variance has risen.
    assert variance(size / (size - 1)) > variance(0.0)


@pytest.mark.parametrize(("share", "falls"), [(0.5, True), (0.9, True), (1.1, False), (2.0, False)])
@pytest.mark.parametrize("size", [2, 8])
def test_the_range_of_the_theorem_by_sampling(size: int, share: float, falls: bool) -> None:
    """The whole way from drawing tuples to centred rewards; the interval over seeds excludes 1."""
    solved, q, tasks = 0.3, 0.5, 4000
    limit = 2 * solved / (0.5 * (1 - (1 - solved) * q))
    ratios = []
    for seed in range(12):
        random = np.random.default_rng([seed, size])
        group = np.repeat(np.arange(tasks), size)
        right = random.random(group.size) < solved
        tuples = draw_tuples(right, group, tasks, random)
        signal = (random.random(len(tuples)) < q).astype(float)
        bonus = bonuses(tuples, signal, right.size, share * limit * 0.5)

        def centred(values: np.ndarray) -> np.ndarray:
            return values - values.reshape(tasks, size).mean(axis=1).repeat(size)

        ratios.append(centred(right + bonus).var() / centred(right.astype(float)).var())
    mean, error = np.mean(ratios), np.std(ratios, ddof=1) / math.sqrt(len(ratios))
    assert (mean + 4 * error < 1) if falls else (mean - 4 * error > 1)
