"""RLOO: by hand, and against its slow version.

Code: src/ascribe/estimators/rloo.py. Page: docs/estimators/grpo.md.
"""

import pytest
from hypothesis import given

from ascribe.estimators import RLOO
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, steps, table


@pytest.mark.slow
@given(case=cases("rloo"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


@pytest.mark.unit
def test_three_returns():
    group = [steps("a", "b", reward=value) for value in [0.0, 1.0, 2.0]]
    credit = RLOO()(table([group]))
    close(credit.advantage[::2], [-1.5, 0.0, 1.5])
    assert credit.advantage[::2].tolist() == credit.advantage[1::2].tolist()
