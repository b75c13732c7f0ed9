"""Returns: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/returns.py. Page: docs/estimators/returns.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe import estimators
from ascribe.estimators import Returns
from ascribe.estimators import returns as module
from ascribe.estimators.relative import Norm
from ascribe.steps import segments
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, cut, reasons, steps, table


@pytest.mark.slow
@given(case=cases("returns"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


# With γ = 0.5 returns are 1, 2, 4 in the first trajectory and 0 in the others.
LONG_AND_SHORT = [[steps("a", "b", "c", reward=4.0), steps("a", "b"), steps("a")]]


@pytest.mark.unit
def test_against_the_mean_of_the_task():
    credit = Returns(gamma=0.5)(table(LONG_AND_SHORT))
    close(credit.advantage, [1 - 7 / 6, 2 - 7 / 6, 4 - 7 / 6, *[-7 / 6] * 3])
    assert credit.terms["returns"].explanation.peers.tolist() == [6] * 6


@pytest.mark.unit
def test_against_the_others_at_the_same_turn():
    """Two others at step 0, one at step 1, none at step 2: there, their three steps."""
    credit = Returns(gamma=0.5, baseline="turn")(table(LONG_AND_SHORT))
    close(credit.advantage, [1.0, 2.0, 4.0, -0.5, -2.0, -0.5])
    explanation = credit.terms["returns"].explanation
    assert explanation.peers.tolist() == [2, 1, 3, 2, 1, 2]
    close(explanation.own - explanation.baseline, credit.advantage.tolist())
    assert explanation.way.tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.unit
@pytest.mark.parametrize("baseline", ["task", "turn"])
def test_nothing_to_compare_is_no_credit(baseline):
    alone, equal = [steps("a", "b", reward=1.0)], [steps("a", "b", "c"), steps("a")]
    credit = Returns(baseline=baseline)(table([alone, equal]))
    assert reasons(credit.reason) == ["group_of_one"] * 2 + ["zero_variance"] * 4
    assert not credit.advantage.any()


@pytest.mark.unit
@pytest.mark.parametrize("baseline", ["task", "turn"])
def test_what_is_cut_may_be_left_out(baseline):
    whole = [steps("a", "b", reward=1.0), steps("a", "b")]
    recipe = Returns(baseline=baseline, truncation="exclude")
    credit = recipe(table([[*whole, cut(steps("a", "b", "c", reward=9.0))]]))
    close(credit.advantage[:4], recipe(table([whole])).advantage.tolist())
    assert reasons(credit.reason[4:]) == ["truncated"] * 3


@pytest.mark.unit
def test_by_turn_is_the_unbiased_gradient_of_a_choice_between_two_ends():
    """Over all pairs of outcomes the mean credit is the advantage: nobody is its own baseline."""
    outcomes, chances = (0.0, 1.0, 4.0), (0.5, 0.25, 0.25)
    value = sum(p * r for p, r in zip(chances, outcomes, strict=True))
    for mine in outcomes:
        found = [
            Returns(baseline="turn")(table([[steps("a", reward=mine), steps("a", reward=other)]]))
            for other in outcomes
        ]
        mean = sum(p * c.advantage[0] for p, c in zip(chances, found, strict=True))
        assert mean == pytest.approx(mine - value)


def all_steps(returns, task, tasks, _):
    """A faulty ``mean_of_others``: the row's own trajectory counts as well."""
    count = np.append(segments.size(task, tasks), 0)[task]
    return segments.pick(segments.mean(returns, task, tasks), task), count


FAULTS = {
    "a row is part of its own baseline": (module, "Norm", lambda _: Norm("mean")),
    "a trajectory is part of its own baseline": (module, "mean_of_others", all_steps),
    "one trajectory is compared with itself": (
        Returns,
        "trajectory_groups",
        lambda _, steps: np.repeat(np.arange(steps.group_count), 2),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(*FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("returns"))(lambda case: assert_equals_reference(*case)))()


@pytest.mark.unit
def test_it_is_among_the_recipes():
    assert estimators.RECIPES["returns"] is Returns
