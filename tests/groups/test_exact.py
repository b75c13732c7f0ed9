"""Groups of identical states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups.exact import exact

pytestmark = pytest.mark.unit


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_rows_of_a_task_share_a_group_if_they_share_a_state(rows, tasks, states, seed):
    random = np.random.default_rng(seed)
    task = random.integers(0, tasks, rows)
    state = random.integers(-1, states, rows)
    groups = exact(task, state, states)
    number: dict[tuple[int, int], int] = {}
    wanted = [
        -1 if key[1] < 0 else number.setdefault(key, len(number))
        for key in zip(task.tolist(), state.tolist(), strict=True)
    ]
    assert groups.labels.tolist() == wanted
    assert groups.count == len(number)


def test_by_hand():
    # State 0 occurs in both tasks: two groups. Row 3 has no state.
    groups = exact(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, -1, 1]), 2)
    assert groups.labels.tolist() == [0, 0, 1, -1, 2]
    assert groups.count == 3


def test_no_states_at_all():
    groups = exact(np.array([0, 0]), np.array([-1, -1]), 0)
    assert (groups.labels.tolist(), groups.count) == ([-1, -1], 0)
