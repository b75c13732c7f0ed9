"""Nested groups of rows that share their last k states (HGPO)."""

import numpy as np

from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Ints


def history(
    task: Ints, trajectory: Ints, state: Ints, state_count: int, length: int
) -> list[Groups]:
    """One partition for each context of k = 1 ... ``length`` + 1 states, coarse to fine.

    Two rows share a context of k states if their current states and the k - 1 states before them
    agree, inside one task. A row with fewer than k - 1 states before it, or with a missing state
    among them, takes no part at that k. Contexts are built one state at a time: a context of k
    states is the context of k - 1 states one step earlier and the current state.

    Args:
        task: label of each row's task group.
        trajectory: label of each row's trajectory, rows in canonical order.
        state: code of each row's state; -1 is missing.
        state_count: number of distinct states.
        length: how many earlier states the longest context has.
    """
    current = exact(task, state, state_count)
    levels = [current]
    for k in range(2, length + 2):
        earlier = np.full(state.size, -1, dtype=np.int64)
        same = trajectory[1:] == trajectory[:-1]
        earlier[1:] = np.where(same, levels[-1].labels[:-1], -1)
        labels, count = segments.pairs(earlier, current.labels, current.count)
        levels.append(Groups(labels, count, f"history {k}"))
    return levels
