"""Outcomes without the effects of task and version, against matrices and all permutations."""

import math
from itertools import permutations as orders

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.decisions.contrasts import contrast
from ascribe.decisions.residuals import fit, permutations, strata, telling
from ascribe.decisions.sides import LEAST_UNUSUAL, Sides, _robust, compared, rests_on_one

pytestmark = pytest.mark.unit

seeds = st.integers(0, 10_000)


def design(stratum: np.ndarray, version: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """Columns of ones and zeros for strata and versions."""
    dummies = [label[:, None] == np.unique(label) for label in (stratum, version)]
    return np.column_stack([*dummies, *more]).astype(np.float64)


def log(rng: np.random.Generator, tasks: int = 12, versions: int = 4) -> tuple[np.ndarray, ...]:
    """One attempt of each version at most tasks, and several at some."""
    cell = np.array([(t, v) for t in range(tasks) for v in range(versions)])
    times = rng.choice([0, 1, 1, 1, 3], len(cell))
    task, version = np.repeat(cell, times, axis=0).T
    return strata(task, version), version, task


def sample(seed: int) -> tuple[Sides, np.ndarray, np.ndarray] | None:
    """Sides where strata mix versions, with outcomes and versions; None if there are none."""
    rng = np.random.default_rng(seed)
    stratum, version, _ = log(rng)
    side = rng.random(stratum.size) < 0.3 + 0.1 * version
    sides = compared(side, stratum, version)
    outcome = rng.normal(version, 1.0 + side)
    if sides.model is None:
        return None
    return sides, outcome[sides.inside], version[sides.inside]


def test_attempts_of_a_version_that_tried_several_times_are_a_stratum() -> None:
    task = np.array([0, 0, 0, 0, 0, 1, 1])
    version = np.array([0, 0, 1, 2, 2, 0, 1])
    label = strata(task, version)
    assert label[0] == label[1] != label[3] == label[4]
    assert label[2] not in (label[0], label[3])
    assert label[5] == label[6]
    assert telling(label, version).tolist() == [True, True, False, True, True, False, False]


@given(seeds)
def test_residuals_are_those_of_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stratum, version, _ = log(rng)
    values = rng.normal(size=(stratum.size, 3))
    # Effects of versions count in strata that mix them; in others they are part of the stratum's.
    matrix = design(stratum, version)
    expected = values - matrix @ np.linalg.lstsq(matrix, values, rcond=None)[0]
    model = fit(stratum, version)
    assert model.residuals(values) == pytest.approx(expected, abs=1e-8)
    assert model.residuals(values[:, 1]) == pytest.approx(expected[:, 1], abs=1e-8)
    hat = matrix @ np.linalg.pinv(matrix)
    assert model.leverage == pytest.approx(np.diag(hat), abs=1e-8)


@given(seeds)
def test_what_tells_nothing_has_no_residual(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stratum, version, _ = log(rng, tasks=5, versions=6)
    told = telling(stratum, version)
    left = fit(stratum, version).residuals(rng.normal(size=stratum.size))
    assert left[~told] == pytest.approx(0.0, abs=1e-8)


def test_permutations_stay_inside_strata() -> None:
    stratum = np.array([0, 1, 0, 1, 1, 2])
    parts = list(permutations(stratum, 500, np.random.default_rng(0)))
    every = np.concatenate(parts)
    assert every.shape == (500, 6)
    assert (stratum[every] == stratum).all()
    assert len(np.unique(every, axis=0)) == 2 * 6


@given(seeds)
def test_the_difference_is_a_coefficient_of_least_squares(seed: int) -> None:
    if (drawn := sample(seed)) is None:
        return
    sides, outcome, version = drawn
    found = sides.contrast(outcome, np.random.default_rng(0))
    matrix = design(sides.stratum, version, sides.side)
    assert found.difference == pytest.approx(
        np.linalg.lstsq(matrix, outcome, rcond=None)[0][-1], abs=1e-7
    )
    assert found.low <= found.difference <= found.high
    assert outcome.min() <= found.without <= outcome.max()
    again = sides.contrast(7.0 + 3.0 * outcome, np.random.default_rng(0))
    assert again.p == pytest.approx(found.p)
    assert (again.low, again.high) == pytest.approx((3 * found.low, 3 * found.high))


@given(seeds)
def test_the_variance_and_its_degrees_are_those_of_the_matrices(seed: int) -> None:
    if (drawn := sample(seed)) is None:
        return
    sides, outcome, version = drawn
    assert sides.model is not None
    matrix = design(sides.stratum, version, sides.side)
    maker = np.eye(outcome.size) - matrix @ np.linalg.pinv(matrix)
    rest, free = maker @ outcome, np.diag(maker)
    side = sides.residual
    weight = np.where(free > 1e-9, side**2 / np.where(free > 1e-9, free, 1.0), 0.0)
    part = np.sqrt(weight)[:, None] * maker * np.sqrt(weight)
    variance, degrees = _robust(sides.model, side, rest)
    assert variance == pytest.approx((weight * rest**2).sum())
    assert degrees == pytest.approx(max(1.0, np.trace(part) ** 2 / (part**2).sum()), rel=1e-6)


def test_the_smallest_p_is_that_of_all_permutations() -> None:
    """Three tasks, each tried once by three versions: 6 ** 3 permutations."""
    task, version = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
    side = np.array([1, 0, 0, 0, 1, 0, 0, 1, 1], dtype=np.bool_)
    outcome = np.array([1, 0, 0, 1, 1, 0, 0, 0, 1.0])
    model = fit(strata(task, version), version)
    sides = Sides(np.ones(9, dtype=np.bool_), side, model.stratum, model, 3)
    left, own = model.residuals(outcome), sides.residual
    inside = [list(orders(range(start, start + 3))) for start in (0, 3, 6)]
    sums = np.array(
        [left[list(a + b + c)] @ own for a in inside[0] for b in inside[1] for c in inside[2]]
    )
    ends = [np.isclose(sums, end).mean() for end in (sums.min(), sums.max())]
    assert sides.smallest_p(outcome) == pytest.approx(min(1.0, 2 * min(ends)))
    variance = (sums * model.stretch[0]) ** 2
    assert sides.score(outcome) == pytest.approx(
        abs(left @ own) / math.sqrt(variance.mean()), rel=1e-6
    )


def test_one_version_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    stratum, side = np.repeat([0, 1], 8), rng.random(16) < 0.5
    outcome = rng.normal(size=16)
    sides = compared(side, stratum, np.zeros(16, dtype=np.int64))
    assert sides.model is None
    assert sides.contrast(outcome, np.random.default_rng(1)) == contrast(
        outcome, side, stratum, np.random.default_rng(1)
    )


def test_what_only_tells_versions_apart_is_not_compared() -> None:
    """Each version has its own side, but for a few sessions."""
    task, version = np.repeat(np.arange(20), 2), np.tile([0, 1], 20)
    for unusual in (0, LEAST_UNUSUAL - 1):
        side = version == 1
        side[: 2 * unusual : 2] = True
        sides = compared(side, strata(task, version), version)
        assert not sides.inside.any()
        assert sides.model is None


def false_alarms(chances: tuple[float, ...], habits: tuple[float, ...], tasks: int) -> float:
    """How often the p value is at most .1, where sides change nothing."""
    refused = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        task = np.repeat(np.arange(tasks), len(chances))
        version = np.tile(np.arange(len(chances)), tasks)
        ease = rng.uniform(-0.15, 0.15, tasks)[task]
        outcome = (rng.random(task.size) < np.array(chances)[version] + ease).astype(np.float64)
        sides = compared(
            rng.random(task.size) < np.array(habits)[version], strata(task, version), version
        )
        p = sides.contrast(outcome[sides.inside], rng).p if sides.inside.any() else 1.0
        refused.append(p <= 0.1)
    return float(np.mean(refused))


@pytest.mark.parametrize(
    ("chances", "habits", "tasks"),
    [
        ((0.2, 0.7), (0.7, 0.3), 40),
        ((0.2, 0.5, 0.8), (0.2, 0.5, 0.8), 8),
        ((0.2, 0.4, 0.6, 0.8), (0.1, 0.9, 0.9, 0.9), 30),
    ],
)
def test_versions_of_different_strength_raise_no_alarm(
    chances: tuple[float, ...], habits: tuple[float, ...], tasks: int
) -> None:
    assert false_alarms(chances, habits, tasks) < 0.16


@pytest.mark.parametrize(("effects", "one"), [((0.9, 0.0, 0.0), True), ((0.5, 0.5, 0.5), False)])
def test_a_difference_that_rests_on_one_version_is_found(
    effects: tuple[float, ...], one: bool
) -> None:
    rng = np.random.default_rng(0)
    task, version = np.repeat(np.arange(80), 3), np.tile(np.arange(3), 80)
    side = rng.random(240) < 0.5
    outcome = np.array(effects)[version] * side + 0.01 * rng.random(240)
    sides = compared(side, task, version)
    assert rests_on_one(sides, outcome[sides.inside], version[sides.inside]) is one
