"""What states look like at one layer, pooling and radius."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ascribe.calibrate.probe import Probe
from ascribe.fingerprints import FloatMatrix
from ascribe.groups.cluster import cluster, collapsed
from ascribe.steps import segments
from ascribe.steps.arrays import Ints

Features = Mapping[tuple[int, str], FloatMatrix]
"""Unit fingerprints of the same rows by (layer, pooling), as ``fingerprints.actor`` gives them."""


@dataclass(frozen=True)
class Partition:
    """The clusters of one layer, pooling and radius.

    Attributes:
        radius: largest cosine distance of a state to its cluster's centroid.
        clusters: number of clusters, made inside task groups as in training.
        pooled_clusters: number of clusters if rows of all tasks are thrown together.
        clusters_per_group: median over task groups of their number of clusters.
        singleton_share: share of clusters with one row.
        singleton_share_of_rows: share of rows that are alone.
        mean_size: rows of a cluster, mean.
        median_size: rows of a cluster, median.
        matched_pairs: pairs of rows that can be compared.
        collapsed_share: share of task groups of which one cluster holds nearly all rows.
    """

    radius: float
    clusters: int
    pooled_clusters: int
    clusters_per_group: float
    singleton_share: float
    singleton_share_of_rows: float
    mean_size: float
    median_size: float
    matched_pairs: int
    collapsed_share: float


@dataclass(frozen=True)
class Slice:
    """One layer and pooling: its probe, and its clusters at each radius."""

    layer: int
    pooling: str
    probe: Probe
    partitions: tuple[Partition, ...]


def partition(
    vectors: FloatMatrix, task: Ints, radius: float, mixed: FloatMatrix | None = None
) -> Partition:
    """The clusters at one radius, in numbers.

    Args:
        vectors: unit fingerprints of whole task groups, in canonical order.
        task: label of each row's task group, contiguous from 0.
        radius: largest cosine distance of a state to its cluster's centroid.
        mixed: unit fingerprints of all tasks, to cluster without regard to tasks; by default the
            same rows.
    """
    mixed = vectors if mixed is None else mixed
    groups = cluster(vectors, task, radius)
    size = segments.size(groups.labels, groups.count)
    of_task = task[segments.first_rows(groups.labels, groups.count)]
    return Partition(
        radius=float(radius),
        clusters=groups.count,
        pooled_clusters=cluster(mixed, np.zeros(len(mixed), dtype=np.int64), radius).count,
        clusters_per_group=float(np.median(np.bincount(of_task))),
        singleton_share=float((size == 1).mean()),
        singleton_share_of_rows=float((size == 1).sum() / task.size),
        mean_size=float(size.mean()),
        median_size=float(np.median(size)),
        matched_pairs=int((size * (size - 1) // 2).sum()),
        collapsed_share=float(collapsed(groups.labels, groups.count, task).mean()),
    )
