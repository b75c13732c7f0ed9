"""G2PO: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/g2po.py. Page: docs/estimators/graphs.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe.estimators import G2PO
from ascribe.estimators import g2po as module
from ascribe.steps.returns import reward_to_go
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("g2po"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


# With γ = 0.5: R = 1, 2 in the first trajectory, 0 in the second. Φ(a) = 0.25, Φ(b) = 0.5.
MEET = [[steps("a", "b", reward=2.0), steps("a", "b")]]


@pytest.mark.unit
def test_values_of_states_are_pooled_over_visits():
    credit = G2PO(gamma=0.5)(table(MEET))
    close(credit.terms["episode"].values, [1.0, 1.0, -1.0, -1.0])
    close(credit.terms["step"].values, [0.0, 1.0, 0.0, -1.0])  # both came from a to b
    assert reasons(credit.terms["step"].reason) == ["zero_variance", "credited"] * 2
    close(credit.terms["gain"].own, [0.25, 1.5, 0.25, -0.5])
    close(credit.terms["gain"].values, [-0.125, 1.125, -0.125, -0.875])
    close(credit.advantage, [0.875, 3.125, -1.125, -2.875])


@pytest.mark.unit
def test_a_failure_that_came_to_a_good_state_is_told_so():
    """In a, the way to b is better than the way to c, though both trajectories failed."""
    groups = [[steps("b", reward=1.0), steps("a", "b"), steps("a", "c")]]
    step = G2PO(gamma=1.0)(table(groups)).terms["step"]
    close(step.values[[1, 3]], [0.25, -0.25])


@pytest.mark.unit
def test_one_trajectory_is_not_compared_with_itself():
    credit = G2PO()(table([[steps("a", "b", reward=1.0)]]))
    assert reasons(credit.reason) == ["group_of_one"] * 2
    assert (
        reasons(G2PO(group_of_one="raw")(table([[steps("a", "b", reward=1.0)]])).reason)
        == ["credited"] * 2
    )


def own_values(reward, labels, count, trajectory, gamma):
    """A faulty ``transitions``: a state is worth what followed this visit."""
    return honest(reward, np.full_like(labels, -1), count, trajectory, gamma)


def next_trajectory(reward, labels, count, trajectory, gamma):
    """A faulty ``transitions``: the first state of the next trajectory follows an end."""
    here = honest(reward, labels, count, trajectory, gamma)[1]
    return reward + np.append(here[1:], 0.0), here


def not_discounted(reward, labels, count, trajectory, gamma):
    """A faulty ``transitions``: values on departure instead of on arrival."""
    led_to, here = honest(reward, labels, count, trajectory, gamma)
    return led_to, here / gamma if gamma else reward_to_go(reward, trajectory, gamma)


honest = module.transitions
FAULTS = {fault.__name__: fault for fault in (own_values, next_trajectory, not_discounted)}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, "transitions", FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("g2po"))(lambda case: assert_equals_reference(*case)))()
