"""The exact state as a fingerprint: one-hot, so that any two different states are far apart."""

import numpy as np

from ascribe.groups.fingerprints import FloatMatrix
from ascribe.steps import segments
from ascribe.steps.arrays import Ints


def identity(task: Ints, state: Ints, state_count: int) -> FloatMatrix:
    """One-hot vectors of exact states; with radius 0, clusters of them are GiGPO's state groups.

    States are numbered inside each task, since only rows of one task are compared: the width is
    that of the task with the most states.

    Args:
        task: label of each row's task group.
        state: code of each row's state; -1 (missing) has a row of zeros.
        state_count: number of distinct states.
    """
    labels, count = segments.pairs(task, state, state_count)
    owner = task[segments.first_rows(labels, count)]
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], owner[order])
    column = np.empty(count, dtype=np.int64)
    column[order] = np.arange(count) - starts
    vectors = np.zeros((task.size, int(column.max(initial=0)) + 1), dtype=np.float32)
    rows = np.flatnonzero(labels >= 0)
    vectors[rows, column[labels[rows]]] = 1.0
    return vectors
