"""A value against the mean, and the spread, of its group."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm, relative
from tests.estimators import reference

pytestmark = pytest.mark.unit

NORMS = st.builds(
    Norm,
    by=st.sampled_from(("std", "mean", "leave_one_out")),
    std=st.sampled_from(("sample", "population")),
    epsilon=st.sampled_from((0.0, 1e-6, 0.5)),
    floor=st.sampled_from((0.0, 0.25, 2.0)),
)
ALONE = st.sampled_from((Reason.SINGLETON, Reason.GROUP_OF_ONE))


def labels(reason):
    return [Reason(code).label for code in reason]


@given(st.integers(0, 25), st.integers(1, 6), NORMS, ALONE, st.integers(0, 2**32 - 1))
def test_equals_loops(rows, count, norm, alone, seed):
    random = np.random.default_rng(seed)
    groups = random.integers(-1, count, rows)
    values = random.choice([*random.uniform(-10, 10, 3), 0.0, 0.1, 1.0], rows)
    wanted = reference.relative(
        {i: Fraction(value) for i, value in enumerate(values.tolist())},
        {i: label for i, label in enumerate(groups.tolist()) if label >= 0},
        by=norm.by,
        std=norm.std,
        epsilon=norm.epsilon,
        floor=norm.floor,
        alone=alone.label,
    )
    assume(wanted.narrowest > 1e-5)
    given_values, given_groups = values.copy(), groups.copy()
    advantage, reason = relative(values, groups, count, norm, alone)
    np.testing.assert_allclose(
        advantage, [wanted.values.get(i, 0.0) for i in range(rows)], rtol=1e-9, atol=1e-9
    )
    assert labels(reason) == [wanted.reasons.get(i, alone.label) for i in range(rows)]
    np.testing.assert_array_equal(values, given_values)
    np.testing.assert_array_equal(groups, given_groups)


def one_group(values, norm):
    advantage, reason = relative(np.array(values), np.zeros(len(values), np.int64), 1, norm)
    return advantage.tolist(), labels(reason)


def test_forms_by_hand():
    # Values 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, variance 14/2 = 7 or 14/3.
    values = [1.0, 2.0, 6.0]
    assert one_group(values, Norm("mean"))[0] == [-2.0, -1.0, 3.0]
    assert one_group(values, Norm("leave_one_out"))[0] == [-3.0, -1.5, 4.5]
    sample = one_group(values, Norm("std", "sample", 0.0))[0]
    assert sample == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5])
    population = one_group(values, Norm("std", "population", 0.0))[0]
    assert population == pytest.approx([x / (14 / 3) ** 0.5 for x in (-2, -1, 3)])


def test_epsilon_is_added_and_the_floor_is_not():
    # Values 0, 2: sample standard deviation sqrt(2) = 1.41.
    assert one_group([0.0, 2.0], Norm("std", epsilon=0.5))[0] == pytest.approx(
        [-1 / (2**0.5 + 0.5), 1 / (2**0.5 + 0.5)]
    )
    assert one_group([0.0, 2.0], Norm("std", epsilon=0.0, floor=1.0))[0] == pytest.approx(
        [-(2**-0.5), 2**-0.5]
    )
    assert one_group([0.0, 2.0], Norm("std", epsilon=0.0, floor=4.0))[0] == [-0.25, 0.25]


@pytest.mark.parametrize("by", ["std", "mean", "leave_one_out"])
def test_equal_values_are_no_signal(by):
    # The mean of three times 0.1 is not 0.1; the advantage must be 0 all the same.
    assert one_group([0.1] * 3, Norm(by, epsilon=0.0)) == ([0.0] * 3, ["zero_variance"] * 3)
    assert one_group([0.1], Norm(by, epsilon=0.0)) == ([0.0], ["singleton"])


def test_a_value_at_the_mean_is_credited_with_zero():
    assert one_group([0.0, 1.0, 2.0], Norm("mean")) == ([-1.0, 0.0, 1.0], ["credited"] * 3)


def test_rows_that_take_no_part():
    advantage, reason = relative(
        np.array([5.0, 1.0, 3.0]), np.array([-1, 0, 0]), 1, Norm("mean"), Reason.GROUP_OF_ONE
    )
    assert advantage.tolist() == [0.0, -1.0, 1.0]
    assert labels(reason) == ["group_of_one", "credited", "credited"]
