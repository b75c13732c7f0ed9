"""K-tuples: every wrong trajectory beside K - 1 trajectories of its task (IBPO, Eq. 4)."""

from dataclasses import dataclass

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints


@dataclass(frozen=True, eq=False)
class Tuples:
    """One tuple for each wrong trajectory that takes part; arrays have one entry per tuple."""

    target: Ints
    """The wrong trajectory, rising."""
    references: Ints
    """The trajectories beside it, [tuples, K - 1]; all -1 where its task has none to offer."""
    among_right: Bools
    """Whether the references are right ones."""

    def __len__(self) -> int:
        return int(self.target.size)

    @property
    def complete(self) -> Bools:
        """Tuples that have references."""
        return self.references[:, 0] >= 0


def draw_tuples(
    right: Bools,
    group: Ints,
    count: int,
    random: np.random.Generator,
    *,
    size: int = 2,
    itself: bool = False,
) -> Tuples:
    """Draw references for every wrong trajectory (IBPO, Section 3.2 and Appendix C.1).

    From the right trajectories of its task, uniformly; if there is none, from the wrong ones. The
    draws for one tuple are distinct as far as the candidates reach, and then repeat in order.

    Args:
        right: whether each trajectory is right.
        group: task of each trajectory; -1 takes no part.
        count: number of tasks.
        random: where randomness comes from.
        size: K, trajectories of a tuple, the wrong one included (paper: 2).
        itself: whether a wrong trajectory may be drawn as its own reference when no other is right.
            Algorithm 1, line 18, reads so, but then nothing is compared: off by default.

    Raises:
        ValueError: if ``size`` is less than 2.
    """
    if size < 2:
        raise ValueError(f"a tuple has at least 2 trajectories, not {size}")
    pool, members, sizes = _pools(right, group, count)
    first = np.cumsum(sizes) - sizes
    rank = np.zeros(right.size, dtype=np.int64)
    rank[members] = np.arange(members.size) - first[pool[members]]

    target = np.flatnonzero(~right & (group >= 0))
    among_right = sizes[group[target]] > 0
    source = np.where(among_right, group[target], pool[target])
    excluded = ~among_right & (not itself)
    candidates = sizes[source] - excluded
    # A rank that no draw can reach stands for "nothing is excluded".
    skip = np.where(excluded, rank[target], sizes[source])
    place = first[source][:, None] + _distinct(candidates, skip, size - 1, random)
    # Without candidates any place will do: what is found there is not used.
    some = candidates[:, None] > 0
    return Tuples(target, np.where(some, members[np.where(some, place, 0)], -1), among_right)


def every_tuple(right: Bools, group: Ints, count: int) -> Tuples:
    """Every wrong trajectory beside all right ones of its task; without any, all other wrong ones.

    Nothing is drawn: for comparisons that cost nothing. A row of ``references`` that has fewer than
    the longest is filled up with -1.

    Args:
        right: whether each trajectory is right.
        group: task of each trajectory; -1 takes no part.
        count: number of tasks.
    """
    pool, members, sizes = _pools(right, group, count)
    first = np.cumsum(sizes) - sizes
    target = np.flatnonzero(~right & (group >= 0))
    among_right = sizes[group[target]] > 0
    source = np.where(among_right, group[target], pool[target])
    place = np.arange(max(1, int(sizes[source].max(initial=1))))
    there = place < sizes[source][:, None]
    found = members[np.where(there, first[source][:, None] + place, 0)]
    there &= found != target[:, None]
    # Those that are there come first, in order.
    order = np.argsort(~there, axis=1, kind="stable")
    references = np.take_along_axis(np.where(there, found, -1), order, axis=1)
    return Tuples(target, references, among_right)


def _pools(right: Bools, group: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """One pool of right and one of wrong trajectories for each task.

    Returns the pool of each trajectory, the members pool by pool in order, and the pools' sizes.
    """
    pool = np.where(group < 0, -1, np.where(right, group, group + count))
    members = np.argsort(pool, kind="stable")[np.count_nonzero(pool < 0) :]
    return pool, members, segments.size(pool, 2 * count)


def _distinct(candidates: Ints, skip: Ints, draws: int, random: np.random.Generator) -> Ints:
    """Ranks drawn for each row without repetition, leaving out ``skip``; then again from the first.

    A draw among those that are left is moved up past every rank that is taken, in rising order.
    """
    out = np.zeros((candidates.size, draws), dtype=np.int64)
    taken = skip[:, None]
    for k in range(min(draws, int(candidates.max(initial=0)))):
        rank = random.integers(0, np.maximum(candidates - k, 1))
        for other in taken.T:
            rank += rank >= other
        out[:, k] = rank
        taken = np.sort(np.column_stack([taken, rank]), axis=1)
    again = np.arange(draws) % np.maximum(candidates, 1)[:, None]
    return np.take_along_axis(out, again, axis=1)
