"""The cluster radius: the largest cosine distance of states that count as the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ascribe.groups.cluster import cluster_grams
from ascribe.steps.arrays import Ints

Over = Literal["clusters", "rows"]
"""The median size over clusters, or over rows (each row counts the size of its cluster)."""

PATIENCE, FACTOR = 2, 1.15
"""Iterations off target before an online radius moves, and by how much it does."""


@dataclass(frozen=True)
class Target:
    """The median cluster size to aim for, and where the radius may lie (BiPACE, Appendix F).

    Attributes:
        smallest: below this median the radius must grow.
        largest: above this median the radius must shrink.
        low: smallest radius.
        high: largest radius.
        over: median over clusters or over rows; the paper does not say which.
    """

    smallest: float = 4.0
    largest: float = 8.0
    low: float = 0.02
    high: float = 0.40
    over: Over = "clusters"

    def median(self, labels: Sequence[Ints]) -> float:
        """Median cluster size over several groups, each with labels from 0."""
        sizes = np.concatenate([np.bincount(group_labels) for group_labels in labels])
        return float(np.median(np.repeat(sizes, sizes) if self.over == "rows" else sizes))

    def direction(self, median: float) -> int:
        """Which way the radius must move: 1 larger, -1 smaller, 0 if the median is in range."""
        return int(median < self.smallest) - int(median > self.largest)


@dataclass(frozen=True)
class SearchedRadius:
    """The radius that a search chose, its median cluster size, and every probe."""

    radius: float
    median: float
    in_range: bool
    probes: tuple[tuple[float, float], ...]


def search(
    grams: Sequence[npt.NDArray[Any]], target: Target = Target(), probes: int = 6
) -> SearchedRadius:
    """The radius at which the median cluster size is right, by halving (BiPACE, Appendix F).

    Args:
        grams: Gram matrix of the unit fingerprints of each group, records in canonical order.
        target: the median to aim for and where to look.
        probes: how many radii to try at most.

    Returns:
        The first radius whose median is in the target; if none is, the one that came closest.
    """
    low, high = target.low, target.high
    tried: list[tuple[float, float]] = []
    for _ in range(probes):
        radius = (low + high) / 2
        median = target.median(cluster_grams(grams, radius))
        tried.append((radius, median))
        direction = target.direction(median)
        if direction == 0:
            return SearchedRadius(radius, median, True, tuple(tried))
        low, high = (radius, high) if direction > 0 else (low, radius)
    middle = np.sqrt(target.smallest * target.largest)
    radius, median = min(tried, key=lambda probe: abs(np.log(probe[1] / middle)))
    return SearchedRadius(radius, median, False, tuple(tried))


@dataclass(frozen=True)
class OnlineRadius:
    """A radius that follows the policy's hidden states as they move.

    The paper keeps the radius of the first iteration. This one changes by a factor once the median
    cluster size has been too small, or too large, for several iterations in a row, so that noise
    does not move it.

    Attributes:
        radius: the radius to use now.
        strikes: iterations off target in a row; positive if too small, negative if too large.
    """

    radius: float
    strikes: int = 0

    def updated(self, median: float, target: Target = Target()) -> "OnlineRadius":
        """The radius for the next iteration, given this iteration's median cluster size."""
        direction = target.direction(median)
        strikes = self.strikes + direction if direction * self.strikes > 0 else direction
        if abs(strikes) < PATIENCE:
            return replace(self, strikes=strikes)
        moved = self.radius * FACTOR**direction
        return OnlineRadius(min(max(moved, target.low), target.high))
