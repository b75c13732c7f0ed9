"""What a reader is told about an advantage leads to the advantage that was given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Recipe, StepTable, recipe
from ascribe.estimators import RECIPES, BiPACEDiff, BiPACEQ, GiGPO, ReinforcePP
from ascribe.estimators.credit import Reason
from ascribe.report.arithmetic import Comparison, Form, comparisons
from ascribe.report.crediting import Credited, credit_batches
from ascribe.report.reading import Batch
from ascribe.steps.check import arrange
from tests.report.toys import batch, credited, sound
from tests.strategies import recipes, step_tables

TOLD = ("grpo", "rloo", "dr_grpo", "reinforce_pp", "gigpo")
"""Recipes whose arithmetic is told in full, whatever their parameters."""


def told(found: Credited, name: str, compared: Comparison) -> None:
    """Where a difference is told, the value is that difference over one spread per group."""
    steps = arrange(found.table)
    term = found.credit.terms[name]
    values, reason = term.values[steps.rows], term.reason[steps.rows]
    labels = term.labels[steps.rows]
    difference = compared.difference()
    plain = (compared.form != Form.BLEND) & (reason == Reason.CREDITED)
    # A difference of two means may be rounding where the credit is zero.
    near = 1e-9 * (1 + np.abs(compared.own).max(initial=0.0))
    flat = plain & (np.abs(difference) <= near)
    assert np.abs(values[flat]).max(initial=0.0) < 1e-3
    sure = plain & (np.abs(difference) > near)
    spread = difference[sure] / values[sure]
    assert (spread > 0).all()
    for label in np.unique(labels[sure]):
        of_group = spread[labels[sure] == label]
        np.testing.assert_allclose(of_group, of_group[0], rtol=1e-6)


@pytest.mark.parametrize("name", TOLD)
@given(data=st.data())
def test_values_follow_from_what_is_told(name: str, data: st.DataObject) -> None:
    table = data.draw(step_tables(rewards=(0.0, 1.0, 0.5, -1.0)))
    by = data.draw(recipes(name, grouping="exact"))
    found = credit_batches([_batch(table)], by)
    for term, compared in comparisons(found).items():
        told(found, term, compared)


@pytest.mark.parametrize("kind", [BiPACEQ, BiPACEDiff])
@pytest.mark.parametrize("normalise", ["raw", "std"])
@given(table=step_tables(rewards=(0.0, 1.0, 0.5)))
def test_peers_are_told_as_they_were_compared(
    kind: type[BiPACEQ] | type[BiPACEDiff], normalise: str, table: StepTable
) -> None:
    by = kind(fingerprint="identity", step_normalise=normalise)
    found = credit_batches([_batch(table)], by)
    compared = comparisons(found)["step"]
    told(found, "step", compared)
    if normalise == "raw":
        steps, term = arrange(table), found.credit.terms["step"]
        given_ = term.reason[steps.rows] == Reason.CREDITED
        values = term.values[steps.rows][given_]
        np.testing.assert_allclose(compared.difference()[given_], values, rtol=1e-9, atol=1e-12)


def _batch(table: StepTable) -> Batch:
    return Batch("toy", table, None, None, batch(sound()).path, np.arange(len(table)))


@pytest.mark.parametrize("name", ["hgpo", "sbc"])
def test_a_blend_is_called_a_blend(name: str) -> None:
    by = recipe(name, preset="exact") if name == "sbc" else recipe(name)
    for compared in comparisons(credited(sound(), by)).values():
        assert (compared.form == Form.BLEND).all()


def test_the_own_return_of_a_step_is_compared_inside_its_task() -> None:
    rows = sound()
    found = comparisons(credited(rows, recipe("sbc", preset="exact")))
    own, step = found["own"], found["step"]
    assert (own.among, step.among) == ("steps of this task", "peers in this state")
    # A task has 4 trajectories of 5 steps, a state one step of each.
    assert set(own.peers) == {20}
    assert set(step.peers) == {4}
    assert not own.same.any()
    np.testing.assert_array_equal(own.own, step.own)
    np.testing.assert_allclose(own.mean[:20], step.own[:20].mean())


@pytest.mark.parametrize("preset", ["verl-agent", "trinity"])
def test_a_return_that_counts_as_it_is(preset: str) -> None:
    rows = [row | {"valid": False} for row in sound(size=1, length=1)] + sound(groups=1, length=1)
    rows = [row | {"group": f"{row['valid']} {row['group']}"} for row in rows]
    rows = [row | {"trajectory": f"{row['valid']} {row['trajectory']}"} for row in rows]
    found = credited(rows, recipe("gigpo", preset=preset))
    compared = comparisons(found)["episode"]
    alone = compared.peers == 1
    assert alone.sum() == 6
    assert (compared.form == np.where(alone, Form.RAW, Form.MEAN)).all()
    values = found.credit.terms["episode"].values[arrange(found.table).rows]
    np.testing.assert_array_equal(compared.difference()[alone], values[alone])


def test_a_baseline_over_steps_counts_steps() -> None:
    compared = comparisons(credited(sound(), GiGPO(baseline_unit="step")))["episode"]
    assert compared.among.startswith("steps of this task")
    assert set(compared.peers) == {20}


@pytest.mark.parametrize("by", [GiGPO(revisits="average"), ReinforcePP(baseline="group")])
def test_what_one_difference_cannot_tell_is_a_blend(by: Recipe) -> None:
    last = list(comparisons(credited(sound(), by)).values())[-1]
    assert (last.form == Form.BLEND).all()


@pytest.mark.parametrize("name", [*TOLD, "hgpo", "bigpo", "bipace_diff", "bipace_q", "sbc"])
def test_every_term_has_its_arithmetic(name: str) -> None:
    by = (
        recipe(name, fingerprint="ngram")
        if "fingerprints" in RECIPES[name].inputs
        else recipe(name)
    )
    found = credited(sound(), by)
    assert list(comparisons(found)) == list(found.credit.terms)


def test_the_sentence_of_the_paper() -> None:
    """8 peers in this state; the 3 that did the same returned 0.72; all 8 returned 0.41."""
    returns = [0.9, 0.72, 0.54, 0.42, 0.3, 0.2, 0.1, 0.1]
    rows = [
        {
            "group": "g",
            "trajectory": str(number),
            "step": 0,
            "state": "s",
            "action": "left" if number < 3 else f"right {number}",
            "reward": value,
        }
        for number, value in enumerate(returns)
    ]
    compared = comparisons(credited(rows, BiPACEQ(fingerprint="identity")))["step"]
    assert compared.peers[0] == 8
    assert compared.same[0] == 3
    assert compared.same_mean[0] == pytest.approx(0.72)
    assert compared.mean[0] == pytest.approx(0.41)
    assert compared.difference()[0] == pytest.approx(0.31)
