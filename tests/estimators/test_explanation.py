"""A term's explanation leads to the values of the term, for every recipe."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import RECIPES, Credit, Reason, Recipe, StepTable, Term, recipe
from ascribe.estimators import BiPACEQ, GiGPO, ReinforcePP
from ascribe.steps.arrays import Bools
from tests.conftest import INPUTS
from tests.report.test_report_teams import corrected, team
from tests.report.toys import sound
from tests.strategies import recipes, step_tables

FROM_ROWS = [name for name in RECIPES if name not in {"ccpo", "ibpo"}]
"""Recipes that read the usual columns alone."""


def plain_rows(term: Term) -> Bools:
    """Rows whose value is ``(own - baseline) / spread``, since their sentence says no more."""
    explained = term.explanation
    is_plain = np.array([not sentence.beyond for sentence in explained.sentences])
    way = np.zeros(term.values.size, np.int8) if explained.way is None else explained.way
    return np.asarray(is_plain[way])


def assert_follows(term: Term) -> None:
    """Where the sentence is the whole story, the value is the difference over one spread per group.

    Everywhere, the figures that the sentence needs are there.
    """
    explained = term.explanation
    for values in (explained.own, explained.baseline, explained.peers, plain_rows(term)):
        assert values.shape == term.values.shape
    assert np.isfinite(explained.own[term.credited]).all()
    assert np.isfinite(explained.baseline[term.credited]).all()
    difference = term.own - term.baseline
    plain = plain_rows(term) & term.credited
    # A difference of two means may be rounding where the credit is zero.
    near = 1e-9 * (1 + np.abs(term.own).max(initial=0.0))
    flat = plain & (np.abs(difference) <= near)
    assert np.abs(term.values[flat]).max(initial=0.0) < 1e-3
    sure = plain & (np.abs(difference) > near)
    spread = difference[sure] / term.values[sure]
    assert (spread > 0).all()
    for label in np.unique(term.labels[sure]):
        of_group = spread[term.labels[sure] == label]
        np.testing.assert_allclose(of_group, of_group[0], rtol=1e-6)


@pytest.mark.parametrize("name", FROM_ROWS)
@given(data=st.data())
def test_values_follow_from_the_explanation(name: str, data: st.DataObject) -> None:
    table = data.draw(step_tables(rewards=(0.0, 1.0, 0.5, -1.0)))
    by = data.draw(recipes(name, grouping="exact", fingerprint="identity"))
    for term in by(table).terms.values():
        assert_follows(term)


@pytest.mark.parametrize("name", ["bipace_q", "bipace_diff"])
@pytest.mark.parametrize("normalise", ["raw", "std"])
@given(table=step_tables(rewards=(0.0, 1.0, 0.5)))
def test_peers_are_explained_as_they_were_compared(
    name: str, normalise: str, table: StepTable
) -> None:
    term = recipe(name, fingerprint="identity", step_normalise=normalise)(table).terms["step"]
    assert_follows(term)
    assert plain_rows(term).all()
    if normalise == "raw":
        difference = (term.own - term.baseline)[term.credited]
        np.testing.assert_allclose(difference, term.values[term.credited], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        (recipe("ccpo"), team(0)),
        (recipe("ccpo", form="allocated"), team(1)),
        (recipe("ibpo"), corrected()),
        (recipe("ibpo", compare="consistency"), corrected()),
    ],
    ids=str,
)
def test_values_of_teams_and_corrections_follow(by: Recipe, rows: Any) -> None:
    for term in by(StepTable.from_dicts(rows)).terms.values():
        assert_follows(term)


@pytest.mark.parametrize("name", ["hgpo", "sbc"])
def test_a_blend_says_what_comes_on_top(name: str) -> None:
    by = recipe(name, preset="exact") if name == "sbc" else recipe(name)
    for term in by(StepTable.from_dicts(sound())).terms.values():
        assert not plain_rows(term).any()
        assert all(sentence.beyond for sentence in term.explanation.sentences)


def test_the_own_return_of_a_step_is_compared_inside_its_task() -> None:
    terms = recipe("sbc", preset="exact")(StepTable.from_dicts(sound())).terms
    own, step = terms["own"], terms["step"]
    # A task has 4 trajectories of 5 steps, a state one step of each.
    assert set(own.peers) == {20}
    assert set(step.peers) == {4}
    np.testing.assert_allclose(own.baseline[:20], own.own[:20].mean())


@pytest.mark.parametrize("preset", ["verl-agent", "trinity"])
def test_a_return_that_counts_as_it_is(preset: str) -> None:
    rows = [row | {"valid": False} for row in sound(size=1, length=1)] + sound(groups=1, length=1)
    rows = [row | {"group": f"{row['valid']} {row['group']}"} for row in rows]
    rows = [row | {"trajectory": f"{row['valid']} {row['trajectory']}"} for row in rows]
    term = recipe("gigpo", preset=preset)(StepTable.from_dicts(rows)).terms["episode"]
    assert_follows(term)
    alone = term.peers == 1
    assert alone.sum() == 6
    assert term.explanation.way is not None
    texts = [term.explanation.sentences[way].text for way in term.explanation.way]
    assert [text.startswith("alone in its task") for text in texts] == alone.tolist()
    assert not term.baseline[alone].any()
    np.testing.assert_array_equal(term.own[alone], term.values[alone])


def test_a_baseline_over_steps_counts_steps() -> None:
    term = GiGPO(baseline_unit="step")(StepTable.from_dicts(sound())).terms["episode"]
    assert "steps of this task" in term.explanation.sentences[0].text
    assert set(term.peers) == {20}


@pytest.mark.parametrize(
    "by",
    [GiGPO(revisits="average"), GiGPO(revisits="first"), ReinforcePP(baseline="group")],
    ids=str,
)
def test_revisits_and_two_baselines_are_one_comparison(by: Recipe) -> None:
    rows = [row | {"state": f"room {row['step'] % 2}"} for row in sound()]
    last = list(by(StepTable.from_dicts(rows)).terms.values())[-1]
    assert plain_rows(last).all()
    assert_follows(last)


@pytest.mark.parametrize("name", FROM_ROWS)
def test_every_sentence_can_be_filled(name: str) -> None:
    takes = "fingerprints" in RECIPES[name].inputs
    by = recipe(name, fingerprint="ngram") if takes else recipe(name)
    for term in by(StepTable.from_dicts(row | INPUTS for row in sound())).terms.values():
        for sentence in term.explanation.sentences:
            filled = sentence.text.format(own=0.5, baseline=0.25, peers=4, alike=2)
            assert "{" not in filled


def test_the_sentence_of_the_paper() -> None:
    """8 steps in this state; the 3 that did the same returned 0.72; all 8 returned 0.41."""
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
    term = BiPACEQ(fingerprint="identity")(StepTable.from_dicts(rows)).terms["step"]
    explained = term.explanation
    assert explained.alike is not None
    assert explained.way is not None
    figures = {"own": round(term.own[0], 2), "baseline": round(term.baseline[0], 2)}
    text = explained.sentences[explained.way[0]].text
    assert text.format(**figures, peers=term.peers[0], alike=explained.alike[0]) == (
        "8 steps in this state; the 3 that did the same returned 0.72; all 8 returned 0.41"
    )
    assert (term.own - term.baseline)[0] == pytest.approx(0.31)


def test_rows_and_dropped_rows_keep_their_explanation() -> None:
    credit = recipe("gigpo")(StepTable.from_dicts(sound()))
    chosen = np.array([7, 3, 11])
    part = credit.rows(chosen).terms["step"]
    np.testing.assert_array_equal(part.own, credit.terms["step"].own[chosen])
    keep = np.ones(len(credit) + 2, dtype=np.bool_)
    keep[[0, 5]] = False
    wide = credit.spread(keep).terms["step"]
    np.testing.assert_array_equal(wide.own[keep], credit.terms["step"].own)
    assert (wide.peers[~keep] == 0).all()


def test_a_credit_can_be_sent_to_another_process() -> None:
    credit = recipe("gigpo", preset="verl-agent")(StepTable.from_dicts(sound()))
    again: Credit = pickle.loads(pickle.dumps(credit))
    np.testing.assert_array_equal(again.terms["step"].own, credit.terms["step"].own)


def test_a_term_without_an_explanation_has_the_plainest_one() -> None:
    reason = np.array([Reason.CREDITED, Reason.CREDITED, Reason.PADDING], dtype=np.int8)
    term = Term(np.array([1.0, -1.0, 0.0]), reason, np.array([0, 0, -1]))
    assert term.own.tolist() == [1.0, -1.0, 0.0]
    assert not term.baseline.any()
    assert term.peers.tolist() == [2, 2, 0]
    assert not plain_rows(term).any()
