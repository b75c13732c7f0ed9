"""Advantages, their terms and their reasons."""

import numpy as np
import pytest

from ascribe.estimators.credit import Credit, Reason, Term

pytestmark = pytest.mark.unit


def term(values, reasons, labels, weight=1.0):
    codes = np.array([Reason[name] for name in reasons], dtype=np.int8)
    return Term(np.array(values), codes, np.array(labels), weight)


@pytest.fixture
def credit():
    first = term([1.0, 0.0, 0.0], ["CREDITED", "GROUP_OF_ONE", "PADDING"], [0, 1, -1])
    second = term([0.0, 2.0, 0.0], ["SINGLETON", "CREDITED", "PADDING"], [0, 1, -1], 0.5)
    return Credit.of({"episode": first, "step": second}, "by hand")


def names(reason):
    return [Reason(code).name for code in reason]


def test_sum_of_terms(credit):
    assert credit.advantage.tolist() == [1.0, 1.0, 0.0]
    assert names(credit.reason) == ["CREDITED", "CREDITED", "PADDING"]
    assert credit.credited.tolist() == [True, True, False]
    assert len(credit) == 3


def test_the_last_term_says_why_no_term_credits_a_row():
    terms = {
        "episode": term([0.0], ["ZERO_VARIANCE"], [0]),
        "step": term([0.0], ["SINGLETON"], [0]),
    }
    credit = Credit.of(terms, "by hand")
    assert names(credit.reason) == ["SINGLETON"]
    assert names(terms["step"].reason) == ["SINGLETON"]


def test_terms_keep_their_own_reasons(credit):
    assert names(credit.terms["step"].reason) == ["SINGLETON", "CREDITED", "PADDING"]


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True])])
def test_rows(credit, rows):
    part = credit.rows(rows)
    np.testing.assert_array_equal(part.advantage, credit.advantage[rows])
    np.testing.assert_array_equal(part.reason, credit.reason[rows])
    for name, each in part.terms.items():
        whole = credit.terms[name]
        np.testing.assert_array_equal(each.values, whole.values[rows])
        np.testing.assert_array_equal(each.reason, whole.reason[rows])
        np.testing.assert_array_equal(each.labels, whole.labels[rows])
        assert each.weight == whole.weight
    assert part.recipe == "by hand"


def test_rows_that_were_dropped_say_so(credit):
    keep = np.array([False, True, True, False, True])
    wide = credit.spread(keep)
    assert wide.advantage.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert names(wide.reason) == ["DROPPED", "CREDITED", "CREDITED", "DROPPED", "PADDING"]
    assert wide.terms["step"].labels.tolist() == [-1, 0, 1, -1, -1]
    assert wide.terms["step"].values.tolist() == [0.0, 0.0, 2.0, 0.0, 0.0]
    assert wide.terms["step"].weight == 0.5
    back = wide.rows(keep)
    np.testing.assert_array_equal(back.advantage, credit.advantage)
    np.testing.assert_array_equal(back.reason, credit.reason)


def test_labels_of_reasons():
    assert Reason.ZERO_VARIANCE.label == "zero_variance"
    assert len({reason.label for reason in Reason}) == len(Reason)
