"""A part of a table that stands for it: whole groups, evenly spaced."""

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Ints
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable


def whole_groups(table: StepTable, most: int) -> Ints:
    """Rows of groups, evenly spaced over the table, that have ``most`` steps or fewer together.

    All rows that take part if there are no more than that. If even one group is too large, as many
    of its trajectories as fit, and always one. Rows are in canonical order.
    """
    steps = arrange(table)
    if steps.rows.size <= most:
        return steps.rows
    size = segments.size(steps.group, steps.group_count)
    order = _evenly(steps.group_count)
    fits = np.cumsum(size[order]) <= most
    if not fits[0]:
        return _trajectories(table, int(order[0]), most)
    chosen = np.zeros(steps.group_count, dtype=np.bool_)
    chosen[order[fits]] = True
    rows: Ints = steps.rows[chosen[steps.group]]
    return rows


def _trajectories(table: StepTable, group: int, most: int) -> Ints:
    steps = arrange(table)
    inside = np.flatnonzero(steps.group == group)
    length = segments.size(steps.trajectory[inside] - steps.trajectory[inside[0]], 1)
    kept = max(int((np.cumsum(length) <= most).sum()), 1)
    rows: Ints = steps.rows[inside[: int(np.cumsum(length)[kept - 1])]]
    return rows


def _evenly(count: int) -> Ints:
    """The numbers 0 to count - 1 so that the first of them always lie evenly over the range.

    They are ordered by their digits in base two, read backwards: 0, 1/2, 1/4, 3/4, 1/8, ...
    """
    bits = max(int(count - 1).bit_length(), 1)
    numbers = np.arange(count, dtype=np.int64)
    mirrored = np.zeros(count, dtype=np.int64)
    for bit in range(bits):
        mirrored |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(mirrored, kind="stable")
