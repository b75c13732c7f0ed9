"""Advantages, their terms and their reasons."""

import numpy as np
import pytest

from ascribe import assign, recipe, write_table
from ascribe.archives import credit_archive
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence, Term
from tests.estimators.golden import THREE_WAYS, table

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


def test_the_repr_is_short(credit):
    assert repr(credit) == "Credit(3 rows, 67% with a signal, by hand)"
    assert "explain" not in repr(credit.terms["step"])
    assert "<float64: 3>" in repr(credit.terms["step"])
    assert repr(recipe("gigpo", gamma=0.9)) == "GiGPO(gamma=0.9)"


def test_reasons_in_words(credit):
    assert credit.reasons.tolist() == ["credited", "credited", "padding"]


def test_rows_with_their_advantages(credit):
    """Null where there is no credit, and reasons in words, of terms too."""
    steps = table([[[{"state": "s", "reward": 1.0}] * 3]])
    rows = credit.to_table(steps).to_pylist()
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["advantage"] for row in rows] == [1.0, 1.0, None]
    assert [row["reason"] for row in rows] == ["credited", "credited", "padding"]
    assert [row["advantage_step"] for row in rows] == [None, 2.0, None]
    assert [row["reason_episode"] for row in rows] == ["credited", "group_of_one", "padding"]
    assert [row["group_size_step"] for row in rows] == [1, 1, 0]
    assert [row["why_episode"] for row in rows][1:] == [
        "its task has only one trajectory",
        "it is padding",
    ]
    assert credit.to_table().num_columns == 10


def test_what_a_row_was_compared_with_in_words():
    """As the report says it: with figures, and one of a thing in the singular."""
    credit = recipe("gigpo")(table(THREE_WAYS))
    why = credit.terms["episode"].why()
    assert why[0].startswith("3 trajectories returned ")
    explanation = Explanation(
        own=np.array([1.0, 0.5]),
        baseline=np.array([1 / 3, -2.0]),
        peers=np.array([1, 2]),
        sentences=(Sentence("{peers} other steps, {baseline:+}; this one {own}", "and more"),),
    )
    assert explanation.said(0) == "1 other step, +0.333; this one 1; and more"
    assert explanation.said(1) == "2 other steps, -2; this one 0.5; and more"


def test_a_name_stands_for_a_recipe():
    steps = table(THREE_WAYS)
    by_name = assign(steps, "gigpo").credit
    assert by_name.recipe == repr(recipe("gigpo"))
    np.testing.assert_array_equal(by_name.advantage, recipe("gigpo")(steps).advantage)
    assert assign(steps).credit.recipe == repr(recipe("sbc"))
    with pytest.raises(ValueError, match="no recipe 'gigpoo'; did you mean gigpo"):
        assign(steps, "gigpoo")


def test_an_archive_takes_a_name(tmp_path):
    steps = table(THREE_WAYS)
    write_table(steps, tmp_path / "in.parquet")
    credit_archive(tmp_path / "in.parquet", tmp_path / "out.parquet", "gigpo")
    expected = assign(steps, "gigpo").credit.to_table().column("advantage").to_pylist()
    assert read_column(tmp_path / "out.parquet", "advantage") == expected


def read_column(path, name):
    import pyarrow.parquet as pq

    return pq.read_table(path).column(name).to_pylist()
