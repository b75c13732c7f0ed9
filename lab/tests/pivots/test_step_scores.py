"""Verifiers of pivots as judges of steps: the column ``step_score``."""

from dataclasses import replace

import numpy as np
import pytest

from ascribe import recipe
from ascribe_lab.pivots import make_verifier, step_scores
from tests.estimators.golden import steps, table

pytestmark = pytest.mark.unit


def test_every_pair_is_verified_once_and_nothing_else():
    asked = []
    honest = make_verifier("exact")

    def verifier(candidate, response):
        asked.append((candidate.messages[0]["content"], response))
        return honest(candidate, response)

    rows = table([[steps("a", "b", "c", reward=1.0), steps("a", "b", "c")]])
    scores = step_scores(rows, {"a": "go", "b": "stay"}, verifier)
    np.testing.assert_array_equal(scores, [1.0, 0.0, np.nan] * 2)
    assert asked == [("a", "go"), ("b", "go")]


def test_a_share_is_the_score_and_what_does_not_apply_is_none():
    rows = table([[steps("a"), steps("b")]])
    shares = step_scores(rows, {"a": "g", "b": "go"}, make_verifier("edit"))
    np.testing.assert_allclose(shares, [0.5, 1.0])
    assert np.isnan(step_scores(rows, {"a": "go"}, make_verifier("tool_call"))).all()


def test_they_are_a_column_for_judged():
    rows = table([[steps("a", "b", reward=1.0), steps("a", "c")]])
    scores = step_scores(rows, {"a": "go", "b": "go", "c": "stay"}, make_verifier("exact"))
    credit = recipe("judged", normalise="mean", gamma=1.0)(replace(rows, step_score=scores))
    np.testing.assert_allclose(credit.terms["step"].values, [1.0, 0.0, 0.0, -1.0])
