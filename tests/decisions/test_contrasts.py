"""Two sides compared inside strata, against slow references and known distributions."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.decisions.contrasts import (
    _welch,
    both_sides,
    contrast,
    discovery_rate,
    sessions_needed,
    smallest_p,
)

ONE = np.zeros(8, dtype=np.int64)
WON = np.array([1, 1, 1, 0, 0, 0, 1, 1.0])
SIDE = np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=np.bool_)


def slow(outcome: np.ndarray, side: np.ndarray) -> tuple[float, float]:
    """Difference and two-sided p value of one stratum, by trying every choice of sessions."""
    observed = outcome[side].mean() - outcome[~side].mean()
    differences = []
    for chosen in combinations(range(outcome.size), int(side.sum())):
        mask = np.isin(np.arange(outcome.size), chosen)
        differences.append(outcome[mask].mean() - outcome[~mask].mean())
    above = np.mean([each >= observed - 1e-9 for each in differences])
    below = np.mean([each <= observed + 1e-9 for each in differences])
    return observed, min(1.0, 2 * min(above, below))


def test_three_of_three_against_two_of_five() -> None:
    found = contrast(WON, SIDE, ONE, np.random.default_rng(0))
    assert (found.with_, found.without, found.difference) == pytest.approx((1.0, 0.4, 0.6))
    assert found.p == pytest.approx(2 * 10 / 56)  # as Fisher's exact test has it, doubled
    assert found.low < 0.05
    assert found.high > 0.8


@given(st.integers(0, 10_000))
def test_equals_the_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 9))
    side = rng.permutation(size) < rng.integers(1, size)
    outcome = rng.integers(0, 3, size).astype(np.float64)
    found = contrast(outcome, side, np.zeros(size, dtype=np.int64), rng)
    difference, p = slow(outcome, side)
    assert found.difference == pytest.approx(difference)
    if np.unique(outcome).size > 2:  # never surer than Welch's test
        assert found.p >= p - 1e-9
    else:
        assert found.p == pytest.approx(p)
    possible = [
        slow(outcome, np.isin(np.arange(size), chosen))[1]
        for chosen in combinations(range(size), int(side.sum()))
    ]
    assert smallest_p(outcome, side, np.zeros(size, dtype=np.int64)) == pytest.approx(min(possible))


def test_the_interval_inverts_the_test() -> None:
    rng = np.random.default_rng(1)
    outcome, side = rng.normal(size=9), np.arange(9) < 4
    found = contrast(outcome, side, np.zeros(9, dtype=np.int64), rng)
    for end, out in ((found.low, -0.01), (found.high, 0.01)):
        assert slow(outcome - (end + out) * side, side)[1] <= 0.1
        for shift, refused in ((end + out, True), (end - out, False)):
            again = contrast(outcome - shift * side, side, np.zeros(9, dtype=np.int64), rng)
            assert (again.p <= 0.1) == refused


def test_a_rare_and_risky_action_is_not_taken_for_a_bad_one() -> None:
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        side = np.arange(60) < 8
        outcome = rng.normal(size=60) * np.where(side, 1.0, 0.1)
        found.append(contrast(outcome, side, np.zeros(60, dtype=np.int64), rng))
    assert np.mean([each.p <= 0.1 for each in found]) < 0.17
    assert np.mean([each.low <= 0 <= each.high for each in found]) > 0.83


def test_welch_agrees_with_tables_of_students_t() -> None:
    # With equal variances and sizes it is Student's test with 2 (n - 1) degrees of freedom.
    five = np.array([10])
    for score, p in ((1.86, 0.1), (2.306, 0.05), (3.355, 0.01)):
        # Variances 1: the error of the sum is sqrt(2.5 * (1 + 1) / 2).
        found, reach = _welch(score * math.sqrt(2.5), (4.0, 4.0), five, five / 2, 0.1)
        assert found == pytest.approx(p, rel=0.03)
        assert reach == pytest.approx(1.86 * math.sqrt(2.5), rel=0.01)


def test_easy_tasks_do_not_speak_for_a_side() -> None:
    # The easy task takes the side often and always wins; inside tasks the side changes nothing.
    side = np.array([1] * 9 + [0] + [1] + [0] * 9, dtype=np.bool_)
    outcome = np.array([1.0] * 10 + [0.0] * 10)
    task = np.repeat([0, 1], 10)
    rng = np.random.default_rng(0)
    assert contrast(outcome, side, task, rng).difference == 0
    assert contrast(outcome, side, task * 0, rng).p < 0.01


@given(st.integers(0, 10_000))
def test_row_order_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    side, outcome = np.arange(12) % 2 == 0, rng.integers(0, 3, 12).astype(np.float64)
    stratum = np.repeat([0, 1, 2], 4)
    order = rng.permutation(12)
    one, other = (
        contrast(outcome[at], side[at], stratum[at], np.random.default_rng(5))
        for at in (np.arange(12), order)
    )
    assert one == other


def test_p_values_hold_their_level_and_intervals_theirs() -> None:
    rng = np.random.default_rng(0)
    refused = missed = 0
    for _ in range(400):
        task = rng.random(10)[np.repeat(np.arange(10), 8)]
        side = rng.random(80) < 0.2 + 0.6 * task
        outcome = (rng.random(80) < task).astype(np.float64)
        inside, stratum = both_sides(side, np.repeat(np.arange(10), 8))
        found = contrast(outcome[inside], side[inside], stratum, rng)
        refused += found.p <= 0.1
        missed += not found.low <= 0 <= found.high
    assert refused / 400 < 0.13
    assert missed / 400 < 0.13


def test_discovery_rates_by_hand() -> None:
    rates = discovery_rate([0.04, 0.01, 0.5, 0.02])
    assert rates == pytest.approx([0.04 * 4 / 3, 0.04, 0.5, 0.04])
    assert discovery_rate([]).size == 0


def test_more_sessions_are_needed_where_less_is_known() -> None:
    assert sessions_needed(1.0, (20, 20), 1) is None
    assert sessions_needed(0.5, (20, 20), 1) is None  # it may well be nothing
    few, many = (sessions_needed(p, (20, 20), 5) for p in (0.03, 0.1))
    assert few is not None
    assert many is not None
    assert 0 < few < many
    again = sessions_needed(0.03, (20, 20), 50)
    assert again is not None
    assert again > few  # more tests ask for more
    assert sessions_needed(0.03, (200, 200), 5) == pytest.approx(10 * few, rel=0.1)


def test_few_sessions_on_a_side_need_a_test_at_all() -> None:
    needed = sessions_needed(0.2, (1, 4), 1)
    assert needed is None or math.comb(5 + needed, round((5 + needed) / 5)) >= 20
