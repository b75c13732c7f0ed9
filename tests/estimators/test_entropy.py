"""Entropy: by hand, around every recipe, against its slow version, and three planted faults.

Code: src/ascribe/estimators/entropy.py. Page: docs/estimators/columns.md.
"""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ascribe import RECIPES, StepTable, recipe
from ascribe.estimators import Entropy, GiGPO
from ascribe.estimators import entropy as module
from tests.conftest import INPUTS, good_rows
from tests.estimators.against_reference import TABLES, assert_equals_reference
from tests.estimators.golden import close, reasons, steps, table
from tests.estimators.reference import WRAPPED
from tests.strategies import recipes

CASES = st.tuples(
    TABLES, st.sampled_from(sorted(WRAPPED)).flatmap(lambda name: recipes("entropy", wraps=name))
)


@pytest.mark.slow
@given(case=CASES)
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


def sampled(trajectory, *entropies):
    """The trajectory with the entropy of each response."""
    return [row | {"entropy": h} for row, h in zip(trajectory, entropies, strict=True)]


TWO = [[sampled(steps("a", "b", reward=1.0), 1.0, 3.0), sampled(steps("a", "b"), 2.0, 3.0)]]


@pytest.mark.unit
def test_credit_is_larger_where_the_policy_was_sure():
    """dr_grpo gives ±0.5. H̃ is 0, 1, 0.5, 1; k = ln 2 makes e^{-kH̃} 1, 1/2, 0.707, 1/2."""
    by = Entropy(wraps="dr_grpo", k=math.log(2), clarity=0.0)
    mean = (1 + 0.5 + math.sqrt(0.5) + 0.5) / 4
    scaled = [0.5 / mean, 0.25 / mean, -0.5 * math.sqrt(0.5) / mean, -0.25 / mean]
    credit = by(table(TWO))
    close(credit.terms["episode"].values, scaled)
    close(credit.advantage, [value - sum(scaled) / 4 for value in scaled])


@pytest.mark.unit
def test_a_clear_response_next_is_worth_something():
    credit = Entropy(wraps="dr_grpo", k=0.0, clarity=0.5, k_next=math.log(2))(table(TWO))
    close(credit.terms["episode"].values, [0.5, 0.5, -0.5, -0.5])
    close(credit.terms["clarity"].own, [0.25, 0.0, 0.25, 0.0])
    close(credit.advantage, [0.625, 0.375, -0.375, -0.625])


@pytest.mark.unit
def test_a_row_without_credit_or_entropy_stays_without():
    alone, other = [sampled(steps("a", reward=1.0), 1.0)], [sampled(steps("a"), 2.0)]
    assert reasons(Entropy()(table([alone, other])).reason) == ["group_of_one"] * 2
    unknown = [[sampled(steps("a", reward=1.0), None), sampled(steps("a"), 2.0)]]
    credit = Entropy()(table(unknown))
    assert reasons(credit.reason) == ["missing_input", "credited"]
    assert credit.advantage[0] == 0.0
    with pytest.raises(ValueError, match="entropy needs the column entropy"):
        Entropy()(table([[steps("a")]]))


@pytest.mark.unit
def test_the_wrapped_recipe_has_its_parameters():
    by = Entropy(wraps="gigpo normalise=mean gamma=0.9", truncation="exclude", invalid_penalty=0.1)
    assert by.inner == GiGPO(normalise="mean", gamma=0.9, truncation="exclude", invalid_penalty=0.1)
    assert Entropy(wraps="gae").columns == ("entropy", "value")
    assert Entropy(wraps="ccpo").inputs == ("history",)
    assert Entropy(wraps="sbc").fingerprint == "given"
    for wrong, why in {"": "no recipe", "gigpo gama=1": "no parameter", "gipo": "gigpo"}.items():
        with pytest.raises(ValueError, match=why):
            Entropy(wraps=wrong)


@pytest.mark.unit
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "entropy"])
def test_it_wraps_every_recipe(name):
    """With k = 0 and no bonus, only the mean of the batch goes."""
    rows = [row | INPUTS | {"without": 0.5, "corrects": None} for row in good_rows()]
    steps = StepTable.from_dicts(rows)
    plain = recipe(name)(steps)
    wrapped = recipe("entropy", wraps=name, k=0.0, clarity=0.0)(steps)
    centred = np.where(plain.credited, plain.advantage - plain.advantage[plain.credited].mean(), 0)
    np.testing.assert_allclose(wrapped.advantage, centred, atol=1e-12)
    np.testing.assert_array_equal(wrapped.reason, plain.reason)
    assert wrapped.history == plain.history


honest = module.certainty
FAULTS = {
    "sure where the entropy is high": lambda h, k: honest(-h, k),
    "entropy is not scaled": lambda h, k: np.exp(-k * h),
    "a missing entropy is the largest": lambda h, k: honest(np.nan_to_num(h, nan=9.0), k),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, "certainty", FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(CASES)(lambda case: assert_equals_reference(*case)))()
