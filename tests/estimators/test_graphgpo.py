"""GraphGPO: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/graphgpo.py. Page: docs/estimators/graphs.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe.estimators import GraphGPO
from ascribe.estimators import graphgpo as module
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("graphgpo"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


@pytest.mark.unit
def test_a_failure_is_credited_for_the_steps_that_came_nearer():
    """Success is one step from b and two from a; from c nobody succeeded: three, as the end."""
    groups = [[steps("a", "b", reward=1.0), steps("a", "c"), steps("a", "b", "c")]]
    term = GraphGPO(gamma=0.5, normalise="mean")(table(groups)).terms["step"]
    close(term.own, [0.5, 1.0, 0.125, 0.125, 0.5, 0.125, 0.125])
    close(term.values, [0.125, 0.4375, -0.25, 0.0, 0.125, -0.4375, 0.0])
    assert reasons(term.reason)[3] == "zero_variance"


@pytest.mark.unit
def test_a_detour_counts_as_the_shortest_way_that_anybody_took():
    """The second goes round by c and d; after c, b is next on the first one's way."""
    groups = [[steps("a", "b", reward=1.0), steps("a", "c", "a", "b", reward=1.0)]]
    term = GraphGPO(gamma=0.5, normalise="mean")(table(groups)).terms["step"]
    close(term.own, [0.5, 1.0, 0.125, 0.25, 0.5, 1.0])


@pytest.mark.unit
def test_the_decay_is_that_of_the_public_recipe():
    """0.10, by default and in its preset; one step farther is worth a tenth."""
    assert GraphGPO().gamma == GraphGPO.preset("verl-agent").gamma == 0.10
    groups = [[steps("a", "b", reward=10.0), steps("a", "c", "b")]]
    close(GraphGPO.preset("verl-agent")(table(groups)).terms["step"].own[:3], [1.0, 10.0, 0.1])


@pytest.mark.unit
def test_without_a_success_there_is_nothing_to_come_near_to():
    credit = GraphGPO()(table([[steps("a", "b"), steps("a", "c")]]))
    assert reasons(credit.terms["step"].reason) == [
        *("zero_variance", "singleton", "zero_variance", "singleton")
    ]
    assert not credit.advantage.any()


def by_trajectory(labels, count, trajectory, task, success):
    """A faulty distance: each trajectory knows its own way alone."""
    return honest(np.full_like(labels, -1), count, trajectory, task, success)


def all_succeed(labels, count, trajectory, task, success):
    """A faulty distance: every end is a success."""
    return honest(labels, count, trajectory, task, success | True)


def from_the_state(labels, count, trajectory, task, success):
    """A faulty distance: from the state before the step."""
    return honest(labels, count, trajectory, task, success) + 1 * np.append(
        trajectory[1:] == trajectory[:-1], False
    )


honest = module.steps_to_success
FAULTS = {fault.__name__: fault for fault in (by_trajectory, all_succeed, from_the_state)}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, "steps_to_success", FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("graphgpo"))(lambda case: assert_equals_reference(*case)))()
