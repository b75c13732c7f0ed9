"""Reductions over labelled rows: count, sum, mean, variance, equality.

A label is an integer from 0 to ``count - 1``; the label -1 marks a row that takes no part. Every
function visits each row a constant number of times, so cost is linear in rows whatever the number
of segments. Sums are taken in the order of the rows; for results that do not depend on the row
order, pass rows in canonical order (see ``arrange``).
"""

import numpy as np

from ascribe.steps.arrays import Bools, Floats, Ints

ROUNDING = 1e-12
"""Values that differ by less, relative to their size, differ by rounding alone."""


def size(labels: Ints, count: int) -> Ints:
    """Number of rows of each segment."""
    return np.bincount(_taking_part(labels), minlength=count).astype(np.int64, copy=False)


def total(values: Floats, labels: Ints, count: int) -> Floats:
    """Sum of ``values`` over each segment; 0 for a segment without rows."""
    if labels.size and labels.min() < 0:
        keep = labels >= 0
        labels, values = labels[keep], values[keep]
    sums = np.bincount(labels, weights=values, minlength=count)
    return sums.astype(np.float64, copy=False)


def mean(values: Floats, labels: Ints, count: int) -> Floats:
    """Mean of ``values`` over each segment; 0 for a segment without rows."""
    return total(values, labels, count) / np.maximum(size(labels, count), 1)


def variance(values: Floats, labels: Ints, count: int, *, ddof: int) -> Floats:
    """Variance of ``values`` over each segment, in two passes.

    ``var[g] = sum over rows i of g of (values[i] - mean[g])**2 / (size[g] - ddof)``,
    and 0 for a segment of ``ddof`` rows or fewer.
    """
    deviation = values - pick(mean(values, labels, count), labels)
    freedom = size(labels, count) - ddof
    squares = total(deviation * deviation, labels, count)
    return np.where(freedom > 0, squares / np.maximum(freedom, 1), 0.0)


def constant(values: Floats, labels: Ints, count: int) -> Bools:
    """Whether all rows of a segment hold the same value up to rounding (true without rows).

    Compares every row with one row of its segment instead of the mean, whose rounding could hide
    equality. The tolerance allows for rewards that were summed in another order.
    """
    # One slot more than segments: rows that take no part (label -1) use the last one.
    example = np.zeros(count + 1)
    example[labels] = values
    is_constant = np.ones(count + 1, dtype=np.bool_)
    reference = example[labels]
    rows = np.flatnonzero(values != reference)  # the test below costs several passes
    value, reference = values[rows], reference[rows]
    apart = np.abs(value - reference) > ROUNDING * np.maximum(np.abs(value), np.abs(reference))
    is_constant[labels[rows[apart]]] = False
    return is_constant[:count]


def pick(per_segment: Floats, labels: Ints) -> Floats:
    """The value of each row's segment; rows that take no part get 0."""
    if per_segment.size == 0:
        return np.zeros(labels.shape)
    if labels.size and labels.min() < 0:
        return np.where(labels >= 0, per_segment[labels], 0.0)
    return per_segment[labels]


def first_rows(labels: Ints, count: int) -> Ints:
    """The first row of each segment, or the number of rows for a segment without any."""
    rows = np.full(count + 1, labels.size, dtype=np.int64)
    # Where an index repeats, numpy keeps the last value assigned; in reverse order, that is the
    # smallest row. Rows that take no part (label -1) use the last slot.
    rows[labels[::-1]] = np.arange(labels.size - 1, -1, -1)
    return rows[:count]


def by_appearance(labels: Ints, count: int) -> tuple[Ints, int]:
    """Rename labels to 0, 1, 2... in the order in which they first appear; -1 stays.

    Labels that no row carries vanish. Returns the new labels and their number.
    """
    first = first_rows(labels, count)
    new = np.zeros(labels.size, dtype=np.bool_)
    new[first[first < labels.size]] = True
    appeared = labels[new]
    rename = np.full(count + 1, -1, dtype=np.int64)
    rename[appeared] = np.arange(appeared.size)
    return rename[labels], int(appeared.size)


def pairs(first: Ints, second: Ints, second_count: int) -> tuple[Ints, int]:
    """One label per distinct pair of labels, named by first appearance; -1 if either is -1.

    Most second labels occur with a single first label (a state that occurs in one task), and
    those need no sort: the second label identifies the pair. Only the others are sorted.
    """
    taking_part = (first >= 0) & (second >= 0)
    labels = np.where(taking_part, second, -1)
    owner = np.full(second_count + 1, -1, dtype=np.int64)
    owner[labels] = first
    shared = np.flatnonzero(taking_part & (owner[labels] != first))
    if shared.size == 0:
        return by_appearance(labels, second_count)
    key = first[shared] * np.int64(second_count) + second[shared]
    distinct, inverse = np.unique(key, return_inverse=True)
    labels[shared] = second_count + inverse
    return by_appearance(labels, second_count + distinct.size)


def _taking_part(labels: Ints) -> Ints:
    return labels[labels >= 0] if labels.size and labels.min() < 0 else labels
