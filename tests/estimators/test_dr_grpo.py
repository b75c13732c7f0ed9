"""Dr. GRPO: by hand, and against its slow version.

Code: src/ascribe/estimators/dr_grpo.py. Page: docs/estimators/grpo.md.
"""

import pytest
from hypothesis import given

from ascribe.estimators import DrGRPO
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, steps, table


@pytest.mark.slow
@given(case=cases("dr_grpo"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


@pytest.mark.unit
def test_three_returns():
    group = [steps("a", "b", reward=value) for value in [0.0, 1.0, 2.0]]
    credit = DrGRPO()(table([group]))
    close(credit.advantage[::2], [-1.0, 0.0, 1.0])
    assert credit.advantage[::2].tolist() == credit.advantage[1::2].tolist()
