"""Greedy cosine clustering of states by their fingerprints (BiPACE, Algorithm 1), in Gram space.

The paper keeps a centroid in D dimensions for each cluster and compares every record with every
centroid. All that decides a label are dot products, and those follow from the Gram matrix of the
group: one matrix product, and then scalars. A centroid is a sum over the members of its cluster,
``K_j = a_j Σ_{m ∈ j} b_m x_m``, so its product with record i is ``a_j Σ_{m ∈ j} b_m G[i, m]``. When
record i joins a cluster of n members, the paper's update is ``K ← normalize(n K + x_i)``, hence

    norm² = n² + 2 n K·x_i + 1,    a ← a n / norm,    b_i = 1 / (norm a).

Groups are clustered side by side, record by record, so that the cost of one step of the loop is
shared. A large Gram matrix is computed in blocks of rows, which bounds memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.groups import Groups
from ascribe.groups.fingerprints import normalised
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints

BLOCK_ROWS = 512
"""Rows of a Gram matrix that are computed at a time in a larger group."""

BATCH_ENTRIES = 32_000_000
"""Entries of Gram matrices that are held at once."""

TOLERANCE = 1e-6
"""Slack in comparing a distance with the radius: the error of distances in single precision."""

GramBlock = Callable[[int, int], npt.NDArray[Any]]
"""``block(start, stop)``: rows start to stop of a Gram matrix, at least its first stop columns."""


def cluster(
    fingerprints: Any,
    task: Ints,
    radius: float,
    taking_part: Bools | None = None,
    *,
    at: Ints | None = None,
    unit: bool = True,
) -> Groups:
    """Clusters of rows inside each task, by Algorithm 1 of BiPACE.

    A record joins the nearest centroid if their cosine distance is at most the radius, else it
    starts a cluster; the centroid it joins moves. Records come in canonical order (trajectory,
    then step), so row order does not matter.

    Args:
        fingerprints: vectors, in numpy or torch; the matrix products run where they are.
        task: label of each row's task group, contiguous, rows in canonical order.
        radius: largest cosine distance ε of a record to its cluster's centroid, from 0 to 2.
        taking_part: rows to cluster; by default all of them.
        at: where the vector of each row is; by default they are in the order of the rows.
        unit: whether vectors are of unit length; others must be in numpy, and not zero.
    """
    rows = np.arange(task.size) if taking_part is None else np.flatnonzero(taking_part)
    bounds = np.append(np.flatnonzero(np.diff(task[rows], prepend=-1)), rows.size)
    sizes = np.diff(bounds)
    places = rows if at is None else at[rows]

    def block_of(group: int) -> GramBlock:
        members = places[bounds[group] : bounds[group + 1]]
        adjacent = (np.diff(members) == 1).all()
        part = slice(members[0], members[-1] + 1) if adjacent else members
        return gram_block(fingerprints, part, unit=unit)

    labels, used = np.full(task.size, -1, dtype=np.int64), 0
    for number, group_labels in enumerate(_labels_of(block_of, sizes, radius)):
        labels[rows[bounds[number] : bounds[number + 1]]] = used + group_labels
        used += int(group_labels.max()) + 1
    return Groups(labels, used)


def cluster_grams(grams: Sequence[npt.NDArray[Any]], radius: float) -> list[Ints]:
    """Labels of each group from its Gram matrix, as ``cluster`` gives them from fingerprints.

    Clustering needs nothing but the Gram matrix of a group, which is smaller than the fingerprints
    if the group has fewer records than a fingerprint has dimensions.
    """
    sizes = np.array([gram.shape[0] for gram in grams], dtype=np.int64)
    return _labels_of(lambda i: lambda start, stop: grams[i][start:stop, :stop], sizes, radius)


def gram_block(fingerprints: Any, members: Any = slice(None), *, unit: bool = True) -> GramBlock:
    """Blocks of ``X @ X.T`` for unit vectors X, in numpy or on the device where a tensor is.

    The product of half-precision vectors is in single precision: in half precision, records near
    the radius would move to other clusters. They are held from the first block to the last.
    """
    held: list[Any] = []

    def block(start: int, stop: int) -> npt.NDArray[Any]:
        if not held:
            held.extend(_wide(fingerprints[members], unit=unit))
        vectors, scale = held
        product = vectors[start:stop] @ vectors[:stop].T
        if stop == vectors.shape[0]:
            held.clear()
        if scale is not None:  # cheaper than to scale the vectors
            product *= scale[start:stop, None]
            product *= scale[:stop]
        return product if isinstance(product, np.ndarray) else product.float().cpu().numpy()

    return block


def _wide(vectors: Any, *, unit: bool) -> tuple[Any, Any]:
    """The vectors in single precision at least, and what makes them unit vectors, if they are none.

    Raises:
        ValueError: if a number is not finite.
    """
    if vectors.dtype.itemsize < 4:
        known = isinstance(vectors, np.ndarray)
        vectors = vectors.astype(np.float32) if known else vectors.float()
    if unit:
        return vectors, None
    length = np.sqrt(np.vecdot(vectors, vectors))
    if not ((length > 1e-15) & (length < 1e15)).all():  # squares may not fit, or are no numbers
        return normalised(vectors), None
    return vectors, None if np.abs(length - 1.0).max() < 1e-6 else 1.0 / length


def greedy(blocks: Sequence[GramBlock], sizes: Ints, radius: float) -> list[Ints]:
    """Labels of each group's records in order, by Algorithm 1, for several groups side by side.

    Args:
        blocks: where each group's Gram matrix comes from.
        sizes: number of records of each group, falling.
        radius: largest cosine distance of a record to a centroid.
    """
    count, longest = len(blocks), int(sizes[0])
    rows = min(longest, BLOCK_ROWS)
    gram = np.zeros((count, rows, longest), dtype=np.float32)
    label = np.zeros((count, longest), dtype=np.int64)
    b = np.zeros((count, longest))
    # By group and cluster; a spot is a flat index into them.
    a, members = np.zeros((count, longest)), np.zeros((count, longest))
    closed = np.full((count, longest), -np.inf)
    clusters = np.zeros(count, dtype=np.int64)
    group_index = np.arange(count)
    first_spot = group_index * longest
    active, most = count, 0
    for i in range(longest):
        if i % rows == 0:  # the next rows of every group's Gram matrix
            for group, block in enumerate(blocks):
                stop = min(i + rows, int(sizes[group]))
                if stop > i:
                    gram[group, : stop - i, :stop] = block(i, stop)[:, :stop]
        while sizes[active - 1] <= i:
            active -= 1
        target = clusters[:active].copy()
        if i == 0:
            joined, top = np.zeros(active, dtype=np.bool_), np.zeros(active)
        else:
            weighted = b[:active, :i] * gram[:active, i % rows, :i]
            bins = label[:active, :i] + most * group_index[:active, None]
            sums = np.bincount(bins.ravel(), weighted.ravel(), most * active)
            similarity = a[:active, :most] * sums.reshape(active, most) + closed[:active, :most]
            nearest = similarity.argmax(axis=1)
            top = similarity[group_index[:active], nearest]
            joined = top >= 1.0 - radius - TOLERANCE
            target[joined] = nearest[joined]
        spot = first_spot[:active] + target
        n = members.ravel()[spot]
        # At radius 2 a record may cancel a centroid, which then has no direction.
        norm = np.sqrt(np.maximum(n * n + 2.0 * n * top + 1.0, 1e-12))
        factor = np.where(joined, a.ravel()[spot] * n / norm, 1.0)
        a.ravel()[spot] = factor
        b[:active, i] = 1.0 / (norm * factor)
        label[:active, i] = target
        members.ravel()[spot] = n + 1.0
        if not joined.all():
            closed.ravel()[spot] = 0.0
            clusters[:active] += ~joined
            most = int(clusters.max())
    return [label[group, : sizes[group]] for group in range(count)]


def collapsed(labels: Ints, count: int, task: Ints, share: float = 0.95) -> Bools:
    """Per task: whether one cluster holds nearly all of its rows (BiPACE, failure mode F1).

    Then step credit compares a row with the whole task and does not distinguish states.

    Args:
        labels: cluster of each row, inside tasks; -1 takes no part.
        count: number of clusters.
        task: label of each row's task group, from 0.
        share: the smallest share of a task's rows that counts as nearly all.
    """
    tasks = int(task.max(initial=-1)) + 1
    rows = segments.size(np.where(labels < 0, -1, task), tasks)
    size = segments.size(labels, count)
    owner = task[segments.first_rows(labels, count)]
    largest = np.zeros(tasks, dtype=np.int64)
    np.maximum.at(largest, owner, size)
    return (rows > 1) & (largest >= share * rows) & (largest > 1)


def _labels_of(block_of: Callable[[int], GramBlock], sizes: Ints, radius: float) -> list[Ints]:
    """Labels of the records of each group; ``block_of(group)`` gives its Gram matrix."""
    labels: list[Ints] = [np.empty(0, dtype=np.int64)] * sizes.size
    for batch in _batches(sizes):
        batch_labels = greedy([block_of(group) for group in batch], sizes[batch], radius)
        for group, group_labels in zip(batch.tolist(), batch_labels, strict=True):
            labels[group] = group_labels
    return labels


def _batches(sizes: Ints) -> list[Ints]:
    """Groups to cluster side by side: of like size, largest first, within the memory allowed."""
    order = np.argsort(-sizes, kind="stable")
    batches, start = [], 0
    while start < order.size:
        longest = int(sizes[order[start]])
        count = max(BATCH_ENTRIES // (min(longest, BLOCK_ROWS) * longest), 1)
        batches.append(order[start : start + count])
        start += count
    return batches
