"""Which rows go into which update of verl."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.engines.verl.rows import minibatch_count, minibatch_order


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    """Rows to learn from in any order, the size of the batch, ranks, and parts."""
    ranks, parts, room = (draw(st.integers(1, most)) for most in (4, 8, 6))
    size = ranks * parts * room
    learned = draw(st.lists(st.integers(0, size - 1), unique=True))
    return learned, size, ranks, parts


@given(batches())
def test_every_part_has_its_share(batch: tuple[list[int], int, int, int]) -> None:
    learned, size, ranks, parts = batch
    order = minibatch_order(learned, size, ranks, parts)
    assert sorted(order) == list(range(size))
    piece, room = size // ranks, size // ranks // parts
    assert all(row // piece == place // piece for place, row in enumerate(order))  # at its rank
    shares = [0] * parts
    for place, row in enumerate(order):
        shares[place % piece // room] += row in learned
    assert max(shares) - min(shares) <= 1


def test_neighbours_part() -> None:
    assert minibatch_order([0, 1, 2, 3], 8, 1, 4) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert minibatch_order([4, 0, 1], 8, 2, 2) == [0, 2, 1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("learned", "wanted", "parts"),
    [(100, 16, 16), (16, 16, 16), (15, 16, 8), (3, 12, 3), (0, 4, 1)],
)
def test_no_part_is_left_empty(learned: int, wanted: int, parts: int) -> None:
    assert minibatch_count(learned, wanted) == parts


def test_minibatches_by_rows_grow_with_the_episodes() -> None:
    """GiGPO, E.1: 256 rows in a minibatch, however many rows an iteration has."""
    for rows, updates in ((100, 1), (256, 1), (257, 2), (6400, 25)):
        size = -(-rows // 256) * 256  # as verl pads it
        assert minibatch_count(rows, size // 256) == updates
    # Rows of groups that do not count leave minibatches less full, and none empty.
    assert minibatch_count(3, 4) == 2
    order = minibatch_order(list(range(300)), 512, 2, 2)
    parts = [sum(row < 300 for row in order[at : at + 128]) for at in range(0, 512, 128)]
    assert [parts[0] + parts[2], parts[1] + parts[3]] == [150, 150]
