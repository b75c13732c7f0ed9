"""Scan layers, poolings and radii, and choose (BiPACE, Appendices F and H)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ascribe.groups.cluster import cluster, collapsed
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.groups.radius import SearchedRadius, Target, search
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.errors import InputError
from ascribe_lab.calibrate.actor import Pooling
from ascribe_lab.calibrate.probe import Probe, linear_probe, split

RADII = (0.05, 0.10, 0.15, 0.20)
"""The radii that the paper scans (Appendix H)."""

FINER = (0.02, 0.01, 0.005, 0.002, 0.001, 0.0005)
"""Tried one after another if no layer is healthy at the given radii: small models need them."""

Features = Mapping[tuple[int, Pooling], FloatMatrix]
"""Unit fingerprints of the same rows by (layer, pooling), as ``fingerprints.actor`` gives them."""


@dataclass(frozen=True)
class Partition:
    """The clusters of one layer, pooling and radius.

    Attributes:
        radius: largest cosine distance of a state to its cluster's centroid.
        clusters: number of clusters, made inside task groups as in training.
        pooled_clusters: number of clusters of the rows of all tasks together.
        singleton_share: share of clusters with one row.
        singleton_share_of_rows: share of rows that are alone in their cluster.
        mean_size: rows of a cluster, mean.
        median_size: rows of a cluster, median.
        matched_pairs: pairs of rows that can be compared.
        collapsed_share: share of task groups in which one cluster holds nearly all rows.
    """

    radius: float
    clusters: int
    pooled_clusters: int
    singleton_share: float
    singleton_share_of_rows: float
    mean_size: float
    median_size: float
    matched_pairs: int
    collapsed_share: float


@dataclass(frozen=True)
class LayerScan:
    """One layer and pooling: its probe, and its clusters at each radius."""

    layer: int
    pooling: Pooling
    probe: Probe
    partitions: tuple[Partition, ...]


def partition(
    vectors: FloatMatrix, task: Ints, radius: float, mixed: FloatMatrix | None = None
) -> Partition:
    """Statistics of the clusters at one radius.

    Args:
        vectors: unit fingerprints of whole task groups, in canonical order.
        task: label of each row's task group, contiguous from 0.
        radius: largest cosine distance of a state to its cluster's centroid.
        mixed: unit fingerprints of all tasks, to cluster regardless of the task; by default the
            same rows.
    """
    mixed = vectors if mixed is None else mixed
    groups = cluster(vectors, task, radius)
    size = segments.size(groups.labels, groups.count)
    return Partition(
        radius=float(radius),
        clusters=groups.count,
        pooled_clusters=cluster(mixed, np.zeros(len(mixed), dtype=np.int64), radius).count,
        singleton_share=float((size == 1).mean()),
        singleton_share_of_rows=float((size == 1).sum() / task.size),
        mean_size=float(size.mean()),
        median_size=float(np.median(size)),
        matched_pairs=int((size * (size - 1) // 2).sum()),
        collapsed_share=float(collapsed(groups.labels, groups.count, task).mean()),
    )


class NoHealthyLayerError(InputError):
    """No layer gives clusters that a recipe could use."""


# Which clusters are healthy, and which layer is best (BiPACE, Appendix H). The paper says "not one
# giant cluster, not all singletons, and not fewer than 5"; the numbers are what it leaves open.

FEWEST_CLUSTERS = 5
"""Fewer cannot distinguish the six families of the paper's tasks. They are counted over the rows of
all tasks together, which the paper's counts (4 and 12 for 240 rollouts) imply."""

MOST_SINGLETONS = 0.95
"""Clusters are all singletons if more than this share of them are."""

MOST_COLLAPSED = 0.5
"""There is one giant cluster if in more than this share of the task groups one cluster holds 95 %
of the rows."""


def objection(clusters: Partition) -> str:
    """Why these clusters are not healthy; empty if they are."""
    if clusters.collapsed_share > MOST_COLLAPSED:
        return "one giant cluster"
    if clusters.singleton_share > MOST_SINGLETONS:
        return "all singletons"
    if clusters.pooled_clusters < FEWEST_CLUSTERS:
        return f"fewer than {FEWEST_CLUSTERS} clusters"
    return ""


def healthy(scan: LayerScan, radii: Sequence[float]) -> list[Partition]:
    """The healthy partitions of a layer at these radii."""
    return [p for p in scan.partitions if p.radius in radii and not objection(p)]


def best_layer(scans: Sequence[LayerScan], radii: Sequence[float]) -> LayerScan | None:
    """The layer with the best probe of those that are healthy at one of these radii.

    Ties go to fewer singletons at the best radius, then to the later layer. None if no layer is
    healthy.
    """

    def merit(scan: LayerScan) -> tuple[float, float, int]:
        fewest = min(clusters.singleton_share for clusters in healthy(scan, radii))
        return scan.probe.accuracy, -fewest, scan.layer

    return max((scan for scan in scans if healthy(scan, radii)), key=merit, default=None)


def _refusal(scans: Sequence[LayerScan]) -> NoHealthyLayerError:
    """The error that explains why no layer is healthy, with advice."""
    partitions = [clusters for scan in scans for clusters in scan.partitions]
    reasons = Counter(map(objection, partitions))
    (reason, count), *_ = reasons.most_common(1)
    radii = [clusters.radius for clusters in scans[0].partitions]
    if reasons["all singletons"] == len(partitions):
        advice = f"no two states are alike; try radii above {max(radii):g}"
    elif reasons["one giant cluster"] == len(partitions):
        advice = "all states look the same to the model; is the text column the right one?"
    else:
        advice = "try other layers, or radii between those of the scan"
    return NoHealthyLayerError(
        f"no layer gives healthy clusters at radii from {min(radii):g} to {max(radii):g}: "
        f"{reason} in {count} of {len(partitions)} cases; {advice}"
    )


@dataclass(frozen=True)
class Calibration:
    """The layer, pooling and radius chosen for a model, and the scan they were chosen from.

    Attributes:
        layer: index of the decoder block, as it was given in the features.
        pooling: how the hidden states of a prompt become one vector.
        radius: largest cosine distance of states that count as the same.
        decided_at: the radii at which layers were compared.
        target: the median cluster size aimed at, and the bounds of the search for the radius.
        search: the search for the radius.
        scans: all layers and poolings.
        at_radius: the clusters of each of ``scans`` at the chosen radius.
        rows: number of rows that were clustered.
        groups: number of task groups that were clustered.
        probed: number of rows that the probes used.
    """

    layer: int
    pooling: Pooling
    radius: float
    decided_at: tuple[float, ...]
    target: Target
    search: SearchedRadius
    scans: tuple[LayerScan, ...]
    at_radius: tuple[Partition, ...]
    rows: int
    groups: int
    probed: int

    @property
    def index(self) -> int:
        """Index of the chosen layer and pooling in ``scans``."""
        keys = [(scan.layer, scan.pooling) for scan in self.scans]
        return keys.index((self.layer, self.pooling))

    @property
    def chosen(self) -> LayerScan:
        """The scan of the chosen layer and pooling."""
        return self.scans[self.index]

    @property
    def clusters(self) -> Partition:
        """The clusters at the chosen layer, pooling and radius."""
        return self.at_radius[self.index]


def calibrate(
    features: Features,
    task: Ints,
    family: Ints,
    random: np.random.Generator,
    *,
    clustered: Bools | None = None,
    probed: Bools | None = None,
    radii: Sequence[float] = RADII,
    report: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """Scan all layers, poolings and radii, and choose.

    Args:
        features: unit fingerprints of the same rows by (layer, pooling), in canonical order.
        task: label of each row's task group.
        family: label of the family of each row's task.
        random: assigns task groups to the folds of the probe.
        clustered: rows of whole groups, to cluster; all by default.
        probed: rows for the probe; all by default. See ``calibrate.rollouts.sample``.
        radii: radii at which layers are compared. If none is healthy there, smaller ones are
            tried one after another (``FINER``).
        report: called now and then with the share that is done.

    Raises:
        NoHealthyLayerError: if no layer gives clusters that a recipe could use.
        ValueError: if the rows do not fit together or cannot be probed.
    """
    if not features:
        raise InputError("there are no fingerprints to choose from")
    for key, vectors in features.items():
        if not vectors.shape[0] == task.size == family.size:
            raise InputError(f"{task.size:,} rows, but {vectors.shape[0]:,} fingerprints at {key}")
    cluster_rows = np.arange(task.size) if clustered is None else np.flatnonzero(clustered)
    probe_rows = np.arange(task.size) if probed is None else np.flatnonzero(probed)
    fold = split(task[probe_rows], family[probe_rows], random)
    _, group = np.unique(task[cluster_rows], return_inverse=True)
    finer = [radius for radius in FINER if radius < min(radii)]
    scans: list[LayerScan] = []
    for (layer, pooling), vectors in features.items():
        probe = linear_probe(vectors[probe_rows], family[probe_rows], fold)
        partitions = tuple(
            partition(vectors[cluster_rows], group, radius, vectors[probe_rows])
            for radius in sorted({*finer, *radii})
        )
        scans.append(LayerScan(layer, pooling, probe, partitions))
        report(len(scans) / len(features))
    best_scan, decided_at = None, tuple(radii)
    for decided_at in (tuple(radii), *((radius,) for radius in finer)):
        best_scan = best_layer(scans, decided_at)
        if best_scan is not None:
            break
    if best_scan is None:
        raise _refusal(scans)
    target = _bounded(Target(), best_scan)
    vectors = features[best_scan.layer, best_scan.pooling][cluster_rows]
    groups = int(group.max()) + 1
    of_group = (vectors[group == index] for index in range(groups))
    searched = search([unit @ unit.T for unit in of_group], target)
    return Calibration(
        layer=best_scan.layer,
        pooling=best_scan.pooling,
        radius=searched.radius,
        decided_at=decided_at,
        target=target,
        search=searched,
        scans=tuple(scans),
        at_radius=tuple(
            partition(v[cluster_rows], group, searched.radius, v[probe_rows])
            for v in features.values()
        ),
        rows=int(cluster_rows.size),
        groups=groups,
        probed=int(probe_rows.size),
    )


def _bounded(target: Target, scan: LayerScan) -> Target:
    """The target with the bounds of the search narrowed to two neighbouring radii of the scan.

    Six halvings of the paper's range end within 0.003 of the right radius, which is too coarse for
    a model whose states lie closer together than that.
    """
    small = [p.radius for p in scan.partitions if target.direction(p.median_size) > 0]
    low = max(small, default=min(target.low, scan.partitions[0].radius / 2))
    large = [p.radius for p in scan.partitions if target.direction(p.median_size) < 0]
    high = min((radius for radius in large if radius > low), default=max(target.high, low))
    return replace(target, low=low, high=high)
