"""Progress: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/progress.py. Page: docs/estimators/columns.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe.estimators import Progress, Returns
from ascribe.estimators import progress as module
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("progress"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


def scored(trajectory, *scores):
    """The trajectory with the score of each state."""
    return [row | {"score": score} for row, score in zip(trajectory, scores, strict=True)]


# Rewards with progress: 0.5, 1 in the first trajectory, 0.25, 0 in the second.
TWO = [[scored(steps("a", "b", reward=1.0), 0.25, 0.75), scored(steps("a", "c"), 0.25, 0.5)]]


@pytest.mark.unit
def test_a_step_is_paid_for_its_progress():
    credit = Progress(gamma=1.0)(table(TWO))
    close(credit.terms["progress"].own, [1.5, 1.0, 0.25, 0.0])
    close(credit.advantage, [1.5 - 0.6875, 1.0 - 0.6875, 0.25 - 0.6875, -0.6875])


@pytest.mark.unit
def test_igpo_compares_rewards_first_and_sums_then():
    credit = Progress(gamma=1.0, baseline="rewards")(table(TWO))
    close(credit.advantage, [0.0625 + 0.5625, 0.5625, -0.1875 - 0.4375, -0.4375])


@pytest.mark.unit
def test_outcomes_and_progress_are_compared_apart():
    """Progress is 0.5 and 0.25, outcomes are 1 and 0."""
    credit = Progress(gamma=1.0, baseline="separate")(table(TWO))
    close(credit.advantage, [0.125 + 0.5, 0.5, -0.125 - 0.5, -0.5])
    code = Progress.preset("igpo-code", std_epsilon=0.0)(table(TWO))
    close(code.advantage, [2.0, 1.0, -2.0, -1.0])


@pytest.mark.unit
def test_a_step_without_progress_to_compare_has_the_outcome():
    """One step alone makes progress; the outcomes that follow differ."""
    rows = table([[scored(steps("a", "b", reward=1.0), 0, 0.5), scored(steps("a"), 0)]])
    credit = Progress(gamma=0.5, baseline="separate")(rows)
    close(credit.advantage, [0.25, 0.5, -0.5])
    assert reasons(credit.reason) == ["credited"] * 3
    last_alone = Progress(gamma=0.0, baseline="separate")(rows)
    assert reasons(last_alone.reason) == ["group_of_one", "credited", "credited"]


@pytest.mark.unit
def test_without_weight_it_is_returns():
    close(Progress(weight=0.0)(table(TWO)).advantage, Returns()(table(TWO)).advantage.tolist())


@pytest.mark.unit
def test_a_missing_score_leaves_no_credit_before_it():
    groups = [[scored(steps("a", "b", "c", reward=1.0), 0, None, 1), scored(steps("a"), 0)]]
    credit = Progress()(table(groups))
    assert reasons(credit.reason) == ["missing_input"] * 2 + ["credited"] * 2
    with pytest.raises(ValueError, match="progress needs the column score"):
        Progress()(table([[steps("a")]]))


honest = module.rewards_with_progress


def next_trajectory(reward, score, trajectory, weight):
    """A fault: the first state of the next trajectory comes after a last step."""
    unknown = np.isnan(honest(reward, score, trajectory, weight))
    change = np.nan_to_num(np.append(score[1:], 0.0) - score)
    return np.where(unknown, np.nan, reward + weight * change)


FAULTS = {
    "the next trajectory follows": next_trajectory,
    "regress is paid": lambda r, s, t, w: honest(r, -s, t, w),
    "a missing score is 0": lambda r, s, t, w: honest(r, np.nan_to_num(s), t, w),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, "rewards_with_progress", FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("progress"))(lambda case: assert_equals_reference(*case)))()
