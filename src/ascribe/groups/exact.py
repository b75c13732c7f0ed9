"""Groups of identical states (GiGPO's anchor states, Eq. 4)."""

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
    labels, count = segments.pairs(task, state, state_count)
    return Groups(labels, count, "exact")
