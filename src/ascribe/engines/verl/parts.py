"""Which rows go into which update.

A rank gets one piece of the batch, and verl cuts each piece into as many parts as there are
updates, by place. Rows without a token to learn from lie together at the end of each piece, so by
place the first parts would have all there is to learn, and the last ones nothing.
"""

from collections.abc import Sequence


def parts_of(learned: int, wanted: int) -> int:
    """How many updates these rows are for: as many as are wanted, if none is left empty.

    Fewer divide the number that is wanted, so that the batch still falls into equal parts.
    """
    return max(n for n in range(1, wanted + 1) if wanted % n == 0 and n <= max(learned, 1))


def dealt(learned: Sequence[int], size: int, ranks: int, parts: int) -> list[int]:
    """An order of all rows in which each part has its share of those that are learned from.

    Rows stay with their rank, whose work has been weighed. Within each they are dealt to the parts
    like cards, and the deal goes on from rank to rank: over all ranks two parts differ by at most
    one row.

    Args:
        learned: rows to learn from, in the order in which they are dealt: neighbours part.
        size: rows of the batch, a multiple of ``ranks * parts``.
        ranks: pieces of the batch.
        parts: updates.
    """
    piece, room = size // ranks, size // ranks // parts
    first = set(learned)
    others = [row for row in range(size) if row not in first]
    order: list[int] = []
    begin = 0
    for rank in range(ranks):
        mine = [row for row in learned if row // piece == rank]
        fill = iter([row for row in others if row // piece == rank])
        for part in range(parts):
            taken = mine[(part - begin) % parts :: parts]
            order += [*taken, *(next(fill) for _ in range(room - len(taken)))]
        begin = (begin + len(mine)) % parts
    return order
