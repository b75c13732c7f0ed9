"""Where wrong trajectories leave right ones, against a slow version, and the credit for it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm
from ascribe.groups.exact import exact
from experiments.ibpo.divergence import (
    Departure,
    Divergence,
    Which,
    divergence,
    divergence_credit,
)
from tests.estimators import reference_ibpo as reference

pytestmark = pytest.mark.unit

WALKS = st.lists(
    st.tuples(
        st.integers(-1, 2),
        st.booleans(),
        st.lists(st.integers(-1, 4), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=8,
)
Walk = tuple[int, bool, list[int]]


def arrays(walks: list[Walk]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    lengths = [len(states) for _, _, states in walks]
    labels = np.array([state for _, _, states in walks for state in states], dtype=np.int64)
    right = np.array([good for _, good, _ in walks], dtype=np.bool_)
    group = np.array([task for task, _, _ in walks], dtype=np.int64)
    return labels, np.repeat(np.arange(len(walks)), lengths), right, group


def find(walks: list[Walk], which: Which) -> Divergence:
    labels, trajectory, right, group = arrays(walks)
    return divergence(labels, 5, trajectory, right, group, which=which)


@pytest.mark.parametrize("which", ["first", "final"])
@given(walks=WALKS)
def test_equals_the_slow_version(which: Which, walks: list[Walk]) -> None:
    found = find(walks, which)
    start = 0
    for number, (task, good, states) in enumerate(walks):
        others = [other for t, g, other in walks if g and t == task]
        kind, step = ("right", None) if good else reference.departure(states, others, which)
        if task < 0:
            kind, step = "out", None
        assert Departure(found.kind[number]).name.lower() == kind
        assert found.row[number] == (-1 if step is None else start + step)
        start += len(states)


@given(walks=WALKS)
def test_labels_may_be_shared_between_tasks(walks: list[Walk]) -> None:
    """Right ones of another task mark nothing, whether or not labels tell tasks apart."""
    labels, trajectory, right, group = arrays(walks)
    apart = exact(group[trajectory], labels, 5)
    for which in ("first", "final"):
        one = divergence(labels, 5, trajectory, right, group, which=which)
        two = divergence(apart.labels, apart.count, trajectory, right, group, which=which)
        np.testing.assert_array_equal(one.row, two.row)
        np.testing.assert_array_equal(one.kind, two.kind)


@given(walks=WALKS)
def test_credit_is_blame_against_the_state(walks: list[Walk]) -> None:
    labels, trajectory, right, group = arrays(walks)
    states = exact(group[trajectory], labels, 5)
    found = divergence(states.labels, states.count, trajectory, right, group, which="first")
    values, reason = divergence_credit(found, states.labels, states.count, Norm("mean"))
    blamed = set(found.row.tolist()) - {-1}
    for row, label in enumerate(states.labels):
        peers = [i for i, other in enumerate(states.labels) if other == label]
        left = [i for i in peers if i in blamed]
        if label < 0:
            assert (values[row], reason[row]) == (0.0, Reason.MISSING_STATE)
        elif len(peers) == 1:
            assert (values[row], reason[row]) == (0.0, Reason.SINGLETON)
        elif len(left) in (0, len(peers)):
            assert (values[row], reason[row]) == (0.0, Reason.ZERO_VARIANCE)
        else:
            assert reason[row] == Reason.CREDITED
            expected = len(left) / len(peers) - (row in blamed)
            assert values[row] == pytest.approx(expected)
    assert values.sum() == pytest.approx(0.0, abs=1e-9)


EXAMPLES: dict[str, tuple[list[int], dict[Which, tuple[Departure, int]]]] = {
    "leaves": ([0, 1, 3, 4], {"first": (Departure.LEFT, 1), "final": (Departure.LEFT, 1)}),
    "comes back": ([0, 3, 1, 4], {"first": (Departure.LEFT, 0), "final": (Departure.LEFT, 2)}),
    "ends back": ([0, 3, 1], {"first": (Departure.LEFT, 0), "final": (Departure.STAYED, -1)}),
    "stays": ([0, 1, 2], {"first": (Departure.STAYED, -1), "final": (Departure.STAYED, -1)}),
    "elsewhere": ([3, 4], {"first": (Departure.AT_START, -1), "final": (Departure.AT_START, -1)}),
    "unseen": ([0, -1, 3], {"first": (Departure.UNSEEN, -1), "final": (Departure.UNSEEN, -1)}),
    "blind": ([-1, -1], {"first": (Departure.UNSEEN, -1), "final": (Departure.UNSEEN, -1)}),
}


@pytest.mark.parametrize("which", ["first", "final"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_by_hand(name: str, which: Which) -> None:
    """One right walk through states 0, 1, 2, and one wrong one."""
    states, expected = EXAMPLES[name]
    found = find([(0, False, states), (0, True, [0, 1, 2])], which)
    assert (Departure(found.kind[0]), found.row[0]) == expected[which]
    assert Departure(found.kind[1]) is Departure.RIGHT


def test_a_task_without_a_right_one_says_so() -> None:
    found = find([(0, False, [0, 1]), (1, True, [0, 1]), (-1, False, [0])], "first")
    kinds = [Departure(kind) for kind in found.kind]
    assert kinds == [Departure.NO_RIGHT, Departure.RIGHT, Departure.OUT]
    assert found.row.tolist() == [-1, -1, -1]
