"""Reductions over labelled rows, against loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps import segments

pytestmark = pytest.mark.unit


NO_LABELS = np.empty(0, dtype=np.int64)
NO_VALUES = np.empty(0)


@st.composite
def labelled(draw, *, least=-1):
    """Labels, their number and a value for each; some labels may have no row."""
    count = draw(st.integers(0, 6))
    rows = draw(st.integers(0, 25)) if count or least < 0 else 0
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = random.integers(least, max(count, least + 1), rows) if rows else NO_LABELS
    pool = np.append(random.uniform(-100, 100, 4), [0.0, 0.1])
    return labels, count, random.choice(pool, rows)


def members(labels, count, values):
    """Values of each segment, in row order."""
    out = [[] for _ in range(count)]
    for label, value in zip(labels.tolist(), values.tolist(), strict=True):
        if label >= 0:
            out[label].append(value)
    return out


@given(labelled())
def test_size(drawn):
    labels, count, values = drawn
    wanted = [len(each) for each in members(labels, count, values)]
    assert segments.size(labels, count).tolist() == wanted


@given(labelled())
def test_total_adds_in_row_order(drawn):
    labels, count, values = drawn
    wanted = []
    for each in members(labels, count, values):
        added = 0.0
        for value in each:
            added += value
        wanted.append(added)
    assert segments.total(values, labels, count).tolist() == wanted


@given(labelled())
def test_mean(drawn):
    labels, count, values = drawn
    wanted = [sum(each) / len(each) if each else 0.0 for each in members(labels, count, values)]
    np.testing.assert_allclose(segments.mean(values, labels, count), wanted, rtol=1e-12, atol=1e-12)


@given(labelled(), st.sampled_from((0, 1)))
def test_variance(drawn, ddof):
    labels, count, values = drawn
    wanted = []
    for each in members(labels, count, values):
        centre = sum(each) / len(each) if each else 0.0
        squares = sum((value - centre) ** 2 for value in each)
        wanted.append(squares / (len(each) - ddof) if len(each) > ddof else 0.0)
    got = segments.variance(values, labels, count, ddof=ddof)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@given(labelled())
def test_constant(drawn):
    labels, count, values = drawn
    wanted = [len(set(each)) <= 1 for each in members(labels, count, values)]
    assert segments.constant(values, labels, count).tolist() == wanted


@given(labelled())
def test_pick(drawn):
    labels, count, _ = drawn
    per_segment = np.arange(1.0, count + 1)
    wanted = [0.0 if label < 0 else label + 1.0 for label in labels.tolist()]
    assert segments.pick(per_segment, labels).tolist() == wanted


@given(labelled())
def test_first_rows(drawn):
    labels, count, _ = drawn
    rows = labels.tolist()
    wanted = [rows.index(label) if label in rows else len(rows) for label in range(count)]
    assert segments.first_rows(labels, count).tolist() == wanted


def numbered_by_appearance(keys):
    """0, 1, 2 ... for keys in the order of their first appearance; -1 for None."""
    number = {}
    return [-1 if key is None else number.setdefault(key, len(number)) for key in keys]


@given(labelled())
def test_by_appearance(drawn):
    labels, count, _ = drawn
    wanted = numbered_by_appearance([None if label < 0 else label for label in labels.tolist()])
    renamed, used = segments.by_appearance(labels, count)
    assert renamed.tolist() == wanted
    assert used == max(wanted, default=-1) + 1


@given(labelled(), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_pairs(drawn, other_count, seed):
    second, second_count, _ = drawn
    first = np.random.default_rng(seed).integers(-1, other_count, second.size)
    keys = [
        None if -1 in pair else pair for pair in zip(first.tolist(), second.tolist(), strict=True)
    ]
    wanted = numbered_by_appearance(keys)
    labels, count = segments.pairs(first, second, second_count)
    assert labels.tolist() == wanted
    assert count == max(wanted, default=-1) + 1


def test_pairs_of_labels_beyond_32_bits():
    # A key made of both labels passes 2**32 here.
    first = np.array([100_000, 0, 100_000, 50_000], dtype=np.int64)
    second = np.array([99_999, 99_999, 99_999, 99_999], dtype=np.int64)
    labels, count = segments.pairs(first, second, 100_000)
    assert labels.tolist() == [0, 1, 0, 2]
    assert count == 3


def test_equality_is_not_hidden_by_the_rounding_of_a_mean():
    # The mean of three times 0.1 is 0.10000000000000002.
    values, labels = np.array([0.1, 0.1, 0.1]), np.zeros(3, dtype=np.int64)
    assert segments.mean(values, labels, 1)[0] != 0.1
    assert segments.constant(values, labels, 1).tolist() == [True]


def test_variance_of_large_values_close_together():
    # 1e9 + {0, 1, 2}: the variance is 1, and a sum of squares would lose it.
    values, labels = 1e9 + np.array([0.0, 1.0, 2.0]), np.zeros(3, dtype=np.int64)
    assert segments.variance(values, labels, 1, ddof=1).tolist() == [1.0]


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_in_nothing_out(count):
    assert segments.size(NO_LABELS, count).tolist() == [0] * count
    assert segments.total(NO_VALUES, NO_LABELS, count).tolist() == [0.0] * count
    assert segments.mean(NO_VALUES, NO_LABELS, count).tolist() == [0.0] * count
    assert segments.variance(NO_VALUES, NO_LABELS, count, ddof=1).tolist() == [0.0] * count
    assert segments.constant(NO_VALUES, NO_LABELS, count).tolist() == [True] * count
    assert segments.pick(np.zeros(count), NO_LABELS).tolist() == []
    assert segments.first_rows(NO_LABELS, count).tolist() == [0] * count
    assert segments.by_appearance(NO_LABELS, count)[1] == 0
    labels, used = segments.pairs(NO_LABELS, NO_LABELS, count)
    assert (labels.tolist(), used) == ([], 0)
