"""Which rows to look at, where a pass over all of them would take too long."""

from dataclasses import dataclass

import numpy as np

from ascribe.steps.arrays import Bools, Ints

WHOLE_SHARE = 2 / 3
"""Share of the rows that goes to whole groups."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows for two purposes, which need different ones.

    Clusters are made inside a task group, and their sizes mean something only if all rows of the
    group are there. A probe is tested on tasks that it has not seen, so it needs many groups, and
    a few rows of each will do.

    Attributes:
        rows: the rows to compute fingerprints for, in canonical order.
        clustered: which of them belong to whole groups.
        probed: which of them the probe uses: equally many of every group, if it has that many.
    """

    rows: Ints
    clustered: Bools
    probed: Bools


def sample(task: Ints, family: Ints, most: int | None = None) -> Sample:
    """At most about ``most`` rows: some whole groups, and a few rows of all others.

    Whole groups are taken from each family in turn while they fit into two thirds of the rows. The
    others share what is left, evenly, and their rows are evenly spaced. No chance is involved.

    Args:
        task: label of each row's task group, in canonical order, contiguous from 0.
        family: label of each row's family.
        most: how many rows; all by default. There is at least one whole group, and at least one
            row of every group, even if they are more.
    """
    if most is None or task.size <= most:
        every = np.ones(task.size, dtype=np.bool_)
        return Sample(np.arange(task.size), every, every)
    start = np.flatnonzero(np.diff(task, prepend=-1))
    size = np.diff(np.append(start, task.size))
    whole = np.zeros(size.size, dtype=np.bool_)
    for number in _in_turn(family[start]):
        if not whole.any() or size[whole].sum() + size[number] <= WHOLE_SHARE * most:
            whole[number] = True
    left = most - int(size[whole].sum())
    each = max(left // max(int((~whole).sum()), 1), 1)
    probed = np.zeros(task.size, dtype=np.bool_)
    for begin, count in zip(start, size, strict=True):
        probed[begin + np.linspace(0, count - 1, min(each, count)).astype(np.int64)] = True
    clustered = whole[task]
    rows = np.flatnonzero(clustered | probed)
    return Sample(rows, clustered[rows], probed[rows])


def _in_turn(family: Ints) -> Ints:
    """Numbers of the groups: the first of each family, then the second of each, and so on."""
    turn = np.zeros(family.size, dtype=np.int64)
    for number in np.unique(family):
        members = np.flatnonzero(family == number)
        turn[members] = np.arange(members.size)
    return np.lexsort((family, turn))
