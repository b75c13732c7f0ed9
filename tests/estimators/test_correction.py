"""IBPO's parts against slow versions, and what must hold of them whatever the data."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascribe.estimators.correction import (
    Compared,
    Consistency,
    Correction,
    Ranking,
    Shaping,
    Signal,
    Tuples,
    advantages,
    draw_tuples,
    every_tuple,
    joint_rows,
    moments,
    sequence_ratio,
    shape,
)
from ascribe.estimators.credit import Reason
from tests import reference_correction as reference

pytestmark = pytest.mark.unit

EXAMPLES = settings(max_examples=300, deadline=None)
TASKS = 3


@dataclass(frozen=True)
class Batch:
    right: np.ndarray
    group: np.ndarray
    size: int
    itself: bool
    seed: int

    @property
    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def tuples(self) -> Tuples:
        return draw_tuples(
            self.right, self.group, TASKS, self.random, size=self.size, itself=self.itself
        )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    members = draw(
        st.lists(st.tuples(st.booleans(), st.integers(-1, TASKS - 1)), min_size=0, max_size=14)
    )
    return Batch(
        np.array([one[0] for one in members], dtype=np.bool_),
        np.array([one[1] for one in members], dtype=np.int64),
        draw(st.integers(2, 5)),
        draw(st.booleans()),
        draw(st.integers(0, 2**32 - 1)),
    )


def random_outcomes(batch: Batch, tuples: Tuples, corrections: int = 3) -> np.ndarray:
    return batch.random.choice([0.0, 1.0, np.nan], (len(tuples), corrections))


# Tuples.


@EXAMPLES
@given(batch=batches())
def test_references_come_from_the_right_ones_or_else_from_the_wrong(batch: Batch) -> None:
    tuples = batch.tuples
    assert tuples.target.tolist() == reference.targets(batch.right, batch.group)
    for target, drawn, good in zip(
        tuples.target, tuples.references, tuples.among_right, strict=True
    ):
        pool = reference.pool(target, batch.right, batch.group, batch.itself)
        assert good == any(batch.right[j] for j in pool)
        if not pool:
            assert (drawn == -1).all()
            continue
        assert set(drawn.tolist()) <= set(pool)
        # As many different ones as there are, then all of them again in the same order.
        assert len(set(drawn.tolist())) == min(len(pool), batch.size - 1)
        assert all(drawn[k] == drawn[k % len(pool)] for k in range(batch.size - 1))


@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_the_same_seed_draws_the_same(batch: Batch) -> None:
    np.testing.assert_array_equal(batch.tuples.references, batch.tuples.references)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("good", [0, 3])
def test_every_ordered_choice_is_as_likely(good: int, itself: bool) -> None:
    """Pearson's χ² of all ordered pairs of references stays where chance would leave it."""
    tasks, each = 6000, 4
    right = np.tile(np.arange(each) < good, tasks)
    group = np.repeat(np.arange(tasks), each)
    random = np.random.default_rng(11)
    tuples = draw_tuples(right, group, tasks, random, size=3, itself=itself)
    chosen = tuples.references % each
    kind = (tuples.target % each) * each * each + chosen[:, 0] * each + chosen[:, 1]
    seen = np.bincount(kind, minlength=each**3)
    pools = {i: reference.pool(i, right[:each], group[:each], itself) for i in range(good, each)}
    cells = [i * 16 + j * 4 + k for i, p in pools.items() for j in p for k in p if j != k]
    assert seen.sum() == seen[cells].sum()
    per_cell = seen.sum() / len(cells)
    freedom = len(cells) - len(pools)
    chi2 = float(((seen[cells] - per_cell) ** 2).sum() / per_cell)
    assert abs(chi2 - freedom) < 4 * math.sqrt(2 * freedom)


@EXAMPLES
@given(batch=batches())
def test_every_tuple_holds_the_whole_pool(batch: Batch) -> None:
    tuples = every_tuple(batch.right, batch.group, TASKS)
    assert tuples.target.tolist() == reference.targets(batch.right, batch.group)
    for target, beside in zip(tuples.target, tuples.references, strict=True):
        pool = reference.pool(target, batch.right, batch.group, itself=False)
        assert beside.tolist() == pool + [-1] * (beside.size - len(pool))


def test_a_tuple_needs_two() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        draw_tuples(np.array([True]), np.array([0]), 1, np.random.default_rng(0), size=1)


def test_one_wrong_trajectory_alone_has_no_reference() -> None:
    random = np.random.default_rng(0)
    lonely = draw_tuples(np.array([False]), np.array([0]), 1, random)
    assert lonely.references.tolist() == [[-1]]
    assert lonely.complete.tolist() == [False]
    itself = draw_tuples(np.array([False]), np.array([0]), 1, random, itself=True)
    assert itself.references.tolist() == [[0]]


# Operators.


@EXAMPLES
@given(batch=batches(), corrections=st.integers(0, 4))
def test_correction(batch: Batch, corrections: int) -> None:
    tuples = batch.tuples
    outcomes = random_outcomes(batch, tuples, corrections)
    assert_signal(
        Correction(outcomes)(tuples),
        [
            reference.correction(drawn, judged)
            for drawn, judged in zip(tuples.references, outcomes, strict=True)
        ],
    )


@EXAMPLES
@given(batch=batches(), rows=st.lists(st.tuples(st.integers(0, 13), st.integers(-1, 4))))
def test_consistency(batch: Batch, rows: list[tuple[int, int]]) -> None:
    tuples = batch.tuples
    rows = [row for row in rows if row[0] < batch.right.size]
    trajectory = np.array([row[0] for row in rows], dtype=np.int64)
    states = np.array([row[1] for row in rows], dtype=np.int64)
    assert_signal(
        Consistency(states, 5, trajectory)(tuples),
        [
            reference.consistency(target, drawn, rows)
            for target, drawn in zip(tuples.target, tuples.references, strict=True)
        ],
    )


@EXAMPLES
@given(batch=batches(), data=st.data())
def test_ranking(batch: Batch, data: st.DataObject) -> None:
    tuples, count = batch.tuples, batch.right.size
    values = st.sampled_from((0.0, 0.5, 1.0, math.nan, math.inf, -math.inf))
    scores = np.array(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=float)
    assert_signal(
        Ranking(scores)(tuples),
        [
            reference.ranking(target, drawn, scores)
            for target, drawn in zip(tuples.target, tuples.references, strict=True)
        ],
    )


def assert_signal(found: Signal, expected: list[tuple[float, int]]) -> None:
    np.testing.assert_allclose(found.values, [value for value, _ in expected], atol=1e-12)
    assert found.why.tolist() == [why for _, why in expected]
    assert ((found.values >= 0) & (found.values <= 1)).all()


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        (np.array([1.0]), "a row for each tuple"),
        (np.array([[0.5]]), "0, 1 or NaN"),
        (np.array([[1.0], [0.0]]), "2 rows for 1 tuples"),
    ],
)
def test_outcomes_that_do_not_fit_are_refused(outcomes: np.ndarray, message: str) -> None:
    tuples = Tuples(np.array([0]), np.array([[1]]), np.array([True]))
    with pytest.raises(ValueError, match=message):
        Correction(outcomes)(tuples)


# Shaping.


@EXAMPLES
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
    signal = Correction(random_outcomes(batch, tuples))(tuples)
    shaping = Shaping(weight, scale)
    shaped = shape(reward, batch.right, batch.group, tuples, signal, shaping=shaping)
    recovered = dict(zip(tuples.target.tolist(), signal.values.tolist(), strict=True))
    value, reason = advantages(shaped.reward, batch.group, TASKS)
    expected = reference.algorithm_1(reward, batch.group, recovered, weight, scale)
    for i, known in enumerate(expected):
        assert (reason[i] == Reason.CREDITED) == (known is not None)
        assert value[i] == pytest.approx(known or 0.0, abs=1e-9)
    np.testing.assert_array_equal(
        shaped.overtakes, reference.overtakes(shaped.reward, reward, batch.right, batch.group)
    )
    np.testing.assert_allclose(shaped.reward, reward + shaped.bonus)
    assert (shaped.bonus[batch.right | (batch.group < 0)] == 0).all()


def test_no_bonus_has_four_meanings() -> None:
    """Right; compared, and not recovered; never judged; nothing to compare with."""
    right = np.array([True, False, False, False, False])
    group = np.array([0, 0, 0, 1, -1])
    tuples = draw_tuples(right, group, 2, np.random.default_rng(0))
    outcomes = np.array([[0.0], [np.nan], [1.0]])
    shaped = shape(right.astype(float), right, group, tuples, Correction(outcomes)(tuples))
    assert shaped.bonus.tolist() == [0.0] * 5
    assert [Compared(why).name for why in shaped.why] == [
        "RIGHT",
        "COMPARED",
        "UNJUDGED",
        "NO_REFERENCE",
        "OUT",
    ]


def test_a_task_that_nobody_solved_gets_credit_where_recoverability_differs() -> None:
    group, right = np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.bool_)
    tuples = draw_tuples(right, group, 2, np.random.default_rng(0))
    signal = Correction(np.array([[1.0], [0.0], [1.0], [1.0]]))(tuples)
    shaped = shape(np.zeros(4), right, group, tuples, signal)
    value, reason = advantages(shaped.reward, group, 2)
    assert value == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-6)
    assert reason[:2].tolist() == [Reason.CREDITED] * 2
    assert reason[2:].tolist() == [Reason.ZERO_VARIANCE] * 2


@EXAMPLES
@given(batch=batches())
def test_where_every_wrong_one_is_recovered_shaping_changes_nothing(batch: Batch) -> None:
    """The bonus is then an affine change of the reward, which the standard deviation undoes."""
    tuples, reward = batch.tuples, batch.right.astype(float)
    signal = Correction(np.ones((len(tuples), 1)))(tuples)
    shaped = shape(reward, batch.right, batch.group, tuples, signal)
    plain, _ = advantages(reward, batch.group, TASKS)
    value, _ = advantages(shaped.reward, batch.group, TASKS)
    mixed = np.isin(batch.group, batch.group[batch.right])  # others have references of their own
    np.testing.assert_allclose(value[mixed], plain[mixed], atol=1e-6)


@pytest.mark.parametrize("parameter", ["weight", "scale"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_a_shaping_that_makes_no_sense_is_refused(parameter: str, value: float) -> None:
    with pytest.raises(ValueError, match=parameter):
        Shaping(**{parameter: value})


# Joint training.


@EXAMPLES
@given(batch=batches(), baseline=st.sampled_from(("prompt", "task")))
def test_joint_rows(batch: Batch, baseline: str) -> None:
    tuples = batch.tuples
    outcomes = random_outcomes(batch, tuples)
    shaped = batch.random.choice([0.0, 0.3, 1.0], batch.right.size)
    found = joint_rows(shaped, batch.group, TASKS, tuples, outcomes, baseline=baseline)

    rows = [(i, -1, batch.group[i], shaped[i]) for i in range(shaped.size) if batch.group[i] >= 0]
    compared_in = [int(row[2]) for row in rows]
    for number, target in enumerate(tuples.target):
        for k, outcome in enumerate(outcomes[number]):
            if tuples.references[number, 0] >= 0 and not math.isnan(outcome):
                rows.append((target, k, TASKS + number, outcome))
                beside = number if baseline == "prompt" else batch.group[target]
                compared_in.append(100 + int(beside))
    assert found.trajectory.tolist() == [row[0] for row in rows]
    assert found.correction.tolist() == [row[1] for row in rows]
    assert found.prompt.tolist() == [row[2] for row in rows]
    assert found.reward.tolist() == [row[3] for row in rows]
    expected = reference.standardised([row[3] for row in rows], compared_in)
    np.testing.assert_allclose(found.advantage, [a or 0.0 for a in expected], atol=1e-9)
    assert (found.reason == Reason.CREDITED).tolist() == [a is not None for a in expected]
    prompts = [row[2] for row in rows]
    assert found.weight.tolist() == [1 / prompts.count(prompt) for prompt in prompts]


def test_one_correction_a_prompt_has_nothing_to_compare_unless_the_task_is_the_baseline() -> None:
    right, group = np.array([True, False, False]), np.zeros(3, dtype=np.int64)
    tuples = draw_tuples(right, group, 1, np.random.default_rng(0))
    outcomes = np.array([[1.0], [0.0]])
    by_prompt = joint_rows(right.astype(float), group, 1, tuples, outcomes)
    assert by_prompt.reason[3:].tolist() == [Reason.GROUP_OF_ONE] * 2
    by_task = joint_rows(right.astype(float), group, 1, tuples, outcomes, baseline="task")
    assert by_task.advantage[3:] == pytest.approx([1.0, -1.0], abs=1e-6)


# The ratio.


@EXAMPLES
@given(
    tokens=st.lists(st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.integers(-1, 3)), max_size=30)
)
def test_the_sequence_ratio_is_the_root_of_the_ratio_of_products(
    tokens: list[tuple[float, float, int]],
) -> None:
    new, old = np.array([t[0] for t in tokens]), np.array([t[1] for t in tokens])
    found = sequence_ratio(new, old, np.array([t[2] for t in tokens], dtype=np.int64), 4)
    for number in range(4):
        mine = [token for token in tokens if token[2] == number]
        expected = reference.sequence_ratio([t[0] for t in mine], [t[1] for t in mine])
        assert found[number] == pytest.approx(expected)


def test_a_ratio_beyond_all_numbers_is_infinite() -> None:
    assert sequence_ratio(np.zeros(1), np.array([-1e4]), np.zeros(1, dtype=np.int64), 1) == math.inf


# The theorem.


@EXAMPLES
@given(batch=batches(), weight=st.floats(0, 5))
def test_the_variance_is_the_quadratic_of_the_theorem(batch: Batch, weight: float) -> None:
    tuples, reward = batch.tuples, batch.right.astype(float)
    signal = Correction(random_outcomes(batch, tuples))(tuples)
    shaped = shape(reward, batch.right, batch.group, tuples, signal, shaping=Shaping(weight, 0.5))
    bonus = np.zeros(reward.size)
    bonus[tuples.target] = 0.5 * signal.values
    found = moments(reward, bonus, batch.group, TASKS)
    plain, after = squares(reward, batch.group), squares(shaped.reward, batch.group)
    tasks = len(set(batch.group.tolist()) - {-1})
    freedom = max(np.count_nonzero(batch.group >= 0) - tasks, 1)
    assert found.reward == pytest.approx(plain / freedom)
    if plain == 0:
        assert math.isnan(found.ratio(weight))
        return
    assert found.ratio(weight) == pytest.approx(after / plain, abs=1e-9)
    if abs(weight - found.limit) > 1e-6 and weight > 1e-6 and found.signal > 0:
        assert (after < plain) == (weight < found.limit)


def squares(values: np.ndarray, group: np.ndarray) -> float:
    tasks = [values[group == task] for task in range(TASKS) if (group == task).any()]
    return math.fsum(float(((task - task.mean()) ** 2).sum()) for task in tasks)


def test_a_signal_that_does_not_vary_lowers_nothing() -> None:
    """Then its covariance is 0 too (Cauchy and Schwarz), whatever the weight."""
    group = np.array([0, 0, 0, 1])
    found = moments(np.array([0.0, 0.0, 1.0, 0.0]), np.array([0.1, 0.1, 0.1, 0.7]), group, 2)
    assert (found.signal, found.covariance, found.limit) == (0.0, 0.0, 0.0)


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
        tuples = draw_tuples(right, group, tasks, random, itself=True)
        signal = Correction((random.random((len(tuples), 1)) < q).astype(float))(tuples)
        shaping = Shaping(share * limit, 0.5)
        shaped = shape(right.astype(float), right, group, tuples, signal, shaping=shaping)

        def centred(values: np.ndarray) -> np.ndarray:
            return values - values.reshape(tasks, size).mean(axis=1).repeat(size)

        ratios.append(centred(shaped.reward).var() / centred(right.astype(float)).var())
    mean, error = np.mean(ratios), np.std(ratios, ddof=1) / math.sqrt(len(ratios))
    assert (mean + 4 * error < 1) if falls else (mean - 4 * error > 1)
