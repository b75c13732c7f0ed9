"""Nested groups of rows that share their last states."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups.exact import history

pytestmark = pytest.mark.unit


def contexts(task, trajectory, state, length):
    """The task and the last ``length`` states of each row, or None if there are fewer."""
    out = []
    for i in range(len(state)):
        rows = [j for j in range(i + 1) if trajectory[j] == trajectory[i]][-length:]
        states = tuple(state[j] for j in rows)
        out.append(None if len(states) < length or -1 in states else (task[i], states))
    return out


def numbered(keys):
    number = {}
    return [-1 if key is None else number.setdefault(key, len(number)) for key in keys]


@given(st.integers(0, 30), st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_every_level_groups_by_its_context(rows, states, length, seed):
    random = np.random.default_rng(seed)
    trajectory = np.cumsum(random.random(rows) < 0.2)
    task = trajectory // 3
    state = random.integers(-1, states, rows)
    levels = history(task, trajectory, state, states, length)
    assert len(levels) == length + 1
    for k, level in enumerate(levels, start=1):
        wanted = numbered(contexts(task.tolist(), trajectory.tolist(), state.tolist(), k))
        assert level.labels.tolist() == wanted
        assert level.count == max(wanted, default=-1) + 1
    for coarse, fine in pairwise(levels):
        pairs = set(zip(fine.labels.tolist(), coarse.labels.tolist(), strict=True))
        nested = [pair for pair in pairs if pair[0] >= 0]
        assert len(nested) == fine.count
        assert all(label >= 0 for _, label in nested)


def test_by_hand():
    # Trajectory 0 sees A B A, trajectory 1 sees B A, both in one task.
    levels = history(np.zeros(5, int), np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0]), 2, 2)
    assert levels[0].labels.tolist() == [0, 1, 0, 1, 0]  # A | B | A | B | A
    assert levels[1].labels.tolist() == [-1, 0, 1, -1, 1]  # AB | BA | BA
    assert levels[2].labels.tolist() == [-1, -1, 0, -1, -1]  # ABA
    assert len(levels) == 3


def test_a_missing_state_breaks_every_context_that_holds_it():
    levels = history(np.zeros(4, int), np.zeros(4, int), np.array([0, -1, 0, 0]), 1, 1)
    assert levels[0].labels.tolist() == [0, -1, 0, 0]
    assert levels[1].labels.tolist() == [-1, -1, -1, 0]
