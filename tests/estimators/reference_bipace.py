"""Slow, obvious versions of BiPACE's parts, written from the paper's equations and Algorithm 1."""

import math
from collections.abc import Sequence

import numpy as np


def greedy_cosine(vectors: np.ndarray, radius: float) -> list[int]:
    """Algorithm 1, with centroids kept in all their dimensions, in double precision."""
    centroids: list[np.ndarray] = []
    members: list[int] = []
    labels = []
    for x in vectors.astype(np.float64):
        nearest, best = -1, -math.inf
        for j, centroid in enumerate(centroids):
            if x @ centroid > best:
                nearest, best = j, x @ centroid
        if nearest >= 0 and 1 - best <= radius:
            members[nearest] += 1
            moved = centroids[nearest] + (x - centroids[nearest]) / members[nearest]
            centroids[nearest] = moved / np.linalg.norm(moved)
            labels.append(nearest)
        else:
            centroids.append(x)
            members.append(1)
            labels.append(len(centroids) - 1)
    return labels


def pace(
    returns: Sequence[float], clusters: Sequence[int], keys: Sequence[int], form: str
) -> list[tuple[float, str]]:
    """Eq. 4 to 7 with the fallbacks of Section 3.5; each row's advantage and its branch."""
    out = []
    for i, cluster in enumerate(clusters):
        if cluster < 0:
            out.append((0.0, "none"))
            continue
        peers = [j for j in range(len(returns)) if clusters[j] == cluster]
        same = [j for j in peers if j == i or (keys[i] >= 0 and keys[j] == keys[i])]
        different = [j for j in peers if j not in same]
        others = [j for j in peers if j != i]
        if not others:
            out.append((0.0, "singleton"))
        elif form == "q" and len(same) >= 2:
            out.append((_mean(returns, same) - _mean(returns, peers), "pace"))
        elif form == "diff" and different:
            out.append((returns[i] - _mean(returns, different), "pace"))
        else:
            out.append((returns[i] - _mean(returns, others), "leave_one_out"))
    return out


def _mean(values: Sequence[float], rows: Sequence[int]) -> float:
    return math.fsum(values[row] for row in rows) / len(rows)
