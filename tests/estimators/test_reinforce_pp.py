"""REINFORCE++: by hand, and against its slow version.

Code: src/ascribe/estimators/reinforce_pp.py. Page: docs/estimators/grpo.md.
"""

import pytest
from hypothesis import given

from ascribe.estimators import ReinforcePP
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import TWO_GROUPS, close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("reinforce_pp"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


@pytest.mark.unit
def test_reinforce_pp_over_the_batch():
    # Returns 4, 2, 0, 2: mean 2, squares 8, sample std sqrt(8 / 3).
    credit = ReinforcePP(std_epsilon=0.0)(table(TWO_GROUPS))
    scale = (8 / 3) ** 0.5
    close(credit.advantage, [2 / scale, 0.0, -2 / scale, 0.0], 1e-12)
    assert set(reasons(credit.reason)) == {"credited"}


@pytest.mark.unit
def test_reinforce_pp_with_the_baseline_of_the_group():
    # Less the means 3 and 1: +1, -1, -1, +1; squares 4, sample std sqrt(4 / 3).
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(table(TWO_GROUPS))
    scale = (4 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, -1 / scale, 1 / scale], 1e-12)


@pytest.mark.unit
def test_reinforce_pp_and_a_trajectory_without_peers():
    # The third group has one trajectory: no baseline, and no say in the spread.
    rows = table([*TWO_GROUPS, [steps("e", reward=50.0)]])
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(rows)
    scale = (4 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, -1 / scale, 1 / scale, 0.0], 1e-12)
    assert reasons(credit.reason)[-1] == "group_of_one"


@pytest.mark.unit
def test_reinforce_pp_and_a_group_that_earned_the_same():
    # Deviations +1, -1, 0, 0: squares 2, sample std sqrt(2 / 3). The zeros count in the spread.
    rows = table([TWO_GROUPS[0], [steps("c"), steps("d")]])
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(rows)
    scale = (2 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, 0.0, 0.0], 1e-12)
    assert reasons(credit.reason) == ["credited"] * 2 + ["zero_variance"] * 2
