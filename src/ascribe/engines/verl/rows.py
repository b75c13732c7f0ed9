"""The order of verl's rows in an update."""

from collections.abc import Sequence


def minibatch_count(learned: int, wanted: int) -> int:
    """How many minibatches these rows fill: as many as are wanted, if none is left empty.

    Otherwise a divisor of the wanted number, so that the minibatches are still of equal size.
    """
    return max(n for n in range(1, wanted + 1) if wanted % n == 0 and n <= max(learned, 1))


def minibatch_order(learned: Sequence[int], size: int, ranks: int, count: int) -> list[int]:
    """An order of all rows in which each minibatch has its share of the rows to learn from.

    Each rank gets one part of the batch, and verl cuts that part into minibatches by place. Rows
    without a token to learn from lie at the end of each part, so the last minibatches would have
    nothing to learn from. Here rows stay with their rank, whose load verl has balanced, and are
    dealt to its minibatches in turn. The deal continues from rank to rank: over all ranks two
    minibatches differ by at most one row.

    Args:
        learned: rows to learn from, in the order in which they are dealt.
        size: rows of the batch, a multiple of ``ranks * count``.
        ranks: processes that train.
        count: minibatches.
    """
    per_rank, room = size // ranks, size // ranks // count
    first = set(learned)
    others = [row for row in range(size) if row not in first]
    order: list[int] = []
    begin = 0
    for rank in range(ranks):
        mine = [row for row in learned if row // per_rank == rank]
        fill = iter([row for row in others if row // per_rank == rank])
        for number in range(count):
            taken = mine[(number - begin) % count :: count]
            order += [*taken, *(next(fill) for _ in range(room - len(taken)))]
        begin = (begin + len(mine)) % count
    return order
