"""Groups of identical states (GiGPO's anchor states, Eq. 4) and of identical histories (HGPO)."""

import numpy as np

from ascribe.groups import Groups
from ascribe.steps import segments
from ascribe.steps.arrays import Ints


def exact(task: Ints, state: Ints, state_count: int) -> Groups:
    """Rows with the same state inside the same task.

    ``G^S(s) = {(a_t, r_t) : s_t = s}``, built per task, so that the same text in two tasks is two
    states. Pass zeros for ``task`` to let tasks merge, as some public code does.

    Args:
        task: label of each row's task group.
        state: code of each row's state; -1 (missing) takes no part.
        state_count: number of distinct states.
    """
    return Groups(*segments.pairs(task, state, state_count))


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
    for _ in range(length):
        earlier = np.full(state.size, -1, dtype=np.int64)
        same_trajectory = trajectory[1:] == trajectory[:-1]
        earlier[1:] = np.where(same_trajectory, levels[-1].labels[:-1], -1)
        labels, count = segments.pairs(earlier, current.labels, current.count)
        levels.append(Groups(labels, count))
    return levels
