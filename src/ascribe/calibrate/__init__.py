"""Choose layer, pooling and radius for a model, once, before training (BiPACE, Appendices F and H).

Fingerprints of a model are hidden states, and where to take them and how close is close depends on
the model. A scan over a file of rollouts says it: the layer is the one from which a linear probe
best tells the families of tasks apart, among those whose clusters are healthy; the radius is the
one at which the median cluster has 4 to 8 rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ascribe.calibrate.probe import Probe, linear_probe, split
from ascribe.calibrate.rule import NoHealthyLayerError, Rule
from ascribe.calibrate.scan import Features, Partition, Slice, partition
from ascribe.groups.radius import Found, Target, search
from ascribe.steps.arrays import Bools, Ints

__all__ = [
    "FINER",
    "RADII",
    "Calibration",
    "Features",
    "NoHealthyLayerError",
    "Partition",
    "Probe",
    "Rule",
    "Slice",
    "calibrate",
]

RADII = (0.05, 0.10, 0.15, 0.20)
"""The radii that the paper scans (Appendix H)."""

FINER = (0.02, 0.01, 0.005, 0.002, 0.001, 0.0005)
"""Tried one after another if no layer is healthy at the radii asked for: small models need them."""


@dataclass(frozen=True)
class Calibration:
    """What was chosen for a model, and everything that it was chosen from.

    Attributes:
        layer: index of the decoder block, as it was given in the features.
        pooling: how the hidden states of a prompt become one vector.
        radius: largest cosine distance of states that are taken for the same.
        rule: what the layer was chosen by.
        decided_at: the radii at which layers were compared.
        target: the median cluster size that the radius was searched for, and where.
        found: the search for the radius.
        slices: all layers and poolings.
        at_radius: the clusters of each slice at the chosen radius.
        rows: rows that were clustered.
        groups: task groups that were clustered.
        probed: rows that the probes used.
    """

    layer: int
    pooling: str
    radius: float
    rule: Rule
    decided_at: tuple[float, ...]
    target: Target
    found: Found
    slices: tuple[Slice, ...]
    at_radius: tuple[Partition, ...]
    rows: int
    groups: int
    probed: int

    @property
    def place(self) -> int:
        """Where the chosen slice stands among the slices."""
        keys = [(each.layer, each.pooling) for each in self.slices]
        return keys.index((self.layer, self.pooling))

    @property
    def chosen(self) -> Slice:
        """The chosen slice."""
        return self.slices[self.place]

    @property
    def clusters(self) -> Partition:
        """The clusters at the chosen layer, pooling and radius."""
        return self.at_radius[self.place]


def calibrate(
    features: Features,
    task: Ints,
    family: Ints,
    random: np.random.Generator,
    *,
    clustered: Bools | None = None,
    probed: Bools | None = None,
    radii: Sequence[float] = RADII,
    rule: Rule | None = None,
    target: Target | None = None,
    folds: int = 5,
    report: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """Scan all layers, poolings and radii, and choose.

    Args:
        features: unit fingerprints of the same rows by (layer, pooling), in canonical order.
        task: label of each row's task group.
        family: label of the family of each row's task.
        random: deals the task groups to the folds of the probe.
        clustered: rows of whole groups, to cluster; all by default.
        probed: rows for the probe; all by default. See ``calibrate.sample``.
        radii: radii at which layers are compared. If none is healthy there, smaller ones are
            tried one after another (``FINER``).
        rule: which layer to choose.
        target: which radius to choose. It is searched between two radii of the scan.
        folds: parts of the cross-validation.
        report: called now and then with the share that is done.

    Raises:
        NoHealthyLayerError: if no layer gives clusters that credit could use.
        ValueError: if the rows do not fit together or cannot be probed.
    """
    rule, target = rule or Rule(), target or Target()
    if not features:
        raise ValueError("there are no fingerprints to choose from")
    for key, vectors in features.items():
        if not vectors.shape[0] == task.size == family.size:
            raise ValueError(f"{task.size:,} rows, but {vectors.shape[0]:,} fingerprints at {key}")
    whole = np.arange(task.size) if clustered is None else np.flatnonzero(clustered)
    part = np.arange(task.size) if probed is None else np.flatnonzero(probed)
    fold = split(task[part], family[part], folds, random)
    _, inside = np.unique(task[whole], return_inverse=True)
    finer = [radius for radius in FINER if radius < min(radii)]
    slices: list[Slice] = []
    for (layer, pooling), vectors in features.items():
        probe = linear_probe(vectors[part], family[part], fold)
        partitions = tuple(
            partition(vectors[whole], inside, radius, vectors[part])
            for radius in sorted({*finer, *radii})
        )
        slices.append(Slice(layer, pooling, probe, partitions))
        report(len(slices) / len(features))
    best, decided_at = None, tuple(radii)
    for level in (tuple(radii), *((radius,) for radius in finer)):
        best, decided_at = rule.choose(slices, level), level
        if best is not None:
            break
    if best is None:
        raise rule.refusal(slices)
    bounded = _bounded(target, best)
    vectors = features[best.layer, best.pooling][whole]
    groups = int(inside.max()) + 1
    parts = (vectors[inside == number] for number in range(groups))
    found = search([unit @ unit.T for unit in parts], bounded)
    return Calibration(
        layer=best.layer,
        pooling=best.pooling,
        radius=found.radius,
        rule=rule,
        decided_at=decided_at,
        target=bounded,
        found=found,
        slices=tuple(slices),
        at_radius=tuple(
            partition(each[whole], inside, found.radius, each[part]) for each in features.values()
        ),
        rows=int(whole.size),
        groups=groups,
        probed=int(part.size),
    )


def _bounded(target: Target, best: Slice) -> Target:
    """The target with the bounds of the search drawn closer, around where the scan saw it.

    Six halvings of the paper's range end 0.003 from the goal, which is too coarse for a model whose
    states lie closer together than that.
    """
    small = [each.radius for each in best.partitions if target.wants(each.median_size) > 0]
    low = max(small, default=min(target.low, best.partitions[0].radius / 2))
    large = [each.radius for each in best.partitions if target.wants(each.median_size) < 0]
    high = min((radius for radius in large if radius > low), default=max(target.high, low))
    return replace(target, low=low, high=high)
