"""Judged: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/judged.py. Page: docs/estimators/columns.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe.estimators import Judged
from ascribe.estimators import judged as module
from ascribe.estimators.relative import relative
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("judged"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


def judged(trajectory, *scores):
    """The trajectory with what the judge gave for each step."""
    return [row | {"step_score": score} for row, score in zip(trajectory, scores, strict=True)]


TWO = [[judged(steps("a", "b", reward=1.0), 1.0, 0.0), judged(steps("a", "b"), 0.0, 0.5)]]


@pytest.mark.unit
def test_a_row_without_a_score_is_said_to_have_the_credit_of_its_episode():
    rows = [judged(steps("a", "b", reward=1.0), 0.5, None), judged(steps("a", "b"), 0.5, 0.25)]
    credit = Judged()(table([rows]))
    assert credit.notes == (module.UNSCORED,)
    assert reasons(credit.terms["step"].reason)[:2] == ["missing_input"] * 2
    np.testing.assert_array_equal(credit.advantage[:2], credit.terms["episode"].values[:2])
    assert Judged()(table([[rows[1], rows[1]]])).notes == ()


@pytest.mark.unit
def test_the_outcome_and_the_judge():
    credit = Judged(normalise="mean", gamma=1.0)(table(TWO))
    close(credit.terms["episode"].values, [0.5, 0.5, -0.5, -0.5])
    close(credit.terms["step"].values, [0.5, -0.5, 0.0, 0.0])
    turn = Judged(normalise="mean", compare="turn", weight=2.0)(table(TWO))
    close(turn.terms["step"].values, [0.5, -0.25, -0.5, 0.25])
    close(turn.advantage, [1.5, 0.0, -1.5, 0.0])


@pytest.mark.unit
def test_by_turn_charges_those_who_go_on():
    """Every step is judged 1. By turn, going on is worth nothing; in truth it pays 1."""
    long, short = judged(steps("a", "b"), 1.0, 1.0), judged(steps("a"), 1.0)
    turn = Judged(normalise="mean", compare="turn")(table([[long, short]]))
    assert not turn.terms["step"].values.any()
    sums = Judged(normalise="mean", gamma=1.0)(table([[long, short]])).terms["step"].values
    assert sums[0] - sums[2] == pytest.approx(1.0)


@pytest.mark.unit
def test_a_step_without_a_score_keeps_the_outcome():
    groups = [[judged(steps("a", "b", reward=1.0), 1.0, None), judged(steps("a", "b"), 0, 0)]]
    credit = Judged.preset("mt-grpo")(table(groups))
    assert reasons(credit.terms["step"].reason) == [
        *("credited", "missing_input", "credited", "singleton")
    ]
    assert reasons(credit.reason) == ["credited"] * 4
    with pytest.raises(ValueError, match="judged needs the column step_score"):
        Judged()(table([[steps("a")]]))


honest = module.scores_to_go


def reversed_sum(score, trajectory, gamma):
    """A fault: what came before instead of what follows."""
    total, unknown = honest(score[::-1], trajectory[::-1], gamma)
    return total[::-1], honest(score, trajectory, gamma)[1] | unknown[::-1] & False


FAULTS = {
    "scores of the past": ("scores_to_go", reversed_sum),
    "a missing score is 0": (
        "scores_to_go",
        lambda s, t, g: (honest(np.nan_to_num(s), t, g)[0], np.zeros(s.size, bool)),
    ),
    "compared over the batch": (
        "relative",
        lambda own, labels, _, norm: relative(own, np.minimum(labels, 0), 1, norm),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, *FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("judged"))(lambda case: assert_equals_reference(*case)))()
