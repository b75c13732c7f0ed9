"""Invented fingerprints for the benchmarks of clustering: what hidden states of a group look like.

States of a task share most of their direction (a policy's hidden states lie in a narrow cone), come
in a few dozen situations, and are seen with more or less noise; about a quarter of the records are
so noisy that they are alone.
"""

import numpy as np
import numpy.typing as npt

RADIUS = 0.10

Matrix = npt.NDArray[np.float32]


def group(rows: int, width: int, random: np.random.Generator, noise: float = 0.4) -> Matrix:
    """Unit fingerprints of one group of ``rows`` records, in single precision."""
    common = random.standard_normal(width)
    situations = common + random.standard_normal((max(rows // 8, 1), width))
    vectors = situations[random.integers(0, len(situations), rows)]
    # In many dimensions noise of one size puts all records at one distance; this spreads them.
    sizes = noise * random.uniform(0.2, 2.0, (rows, 1))
    vectors = vectors + sizes * random.standard_normal((rows, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def centroid_loop(vectors: Matrix, radius: float) -> npt.NDArray[np.int64]:
    """Algorithm 1 of BiPACE as it is written: each record against a list of centroids."""
    centroids: list[Matrix] = []
    members: list[int] = []
    labels = np.empty(len(vectors), dtype=np.int64)
    for row, vector in enumerate(vectors):
        if centroids:
            similarity = np.stack(centroids) @ vector
            nearest = int(similarity.argmax())
            if 1.0 - similarity[nearest] <= radius:
                members[nearest] += 1
                moved = centroids[nearest] + (vector - centroids[nearest]) / members[nearest]
                centroids[nearest] = moved / np.linalg.norm(moved)
                labels[row] = nearest
                continue
        centroids.append(vector)
        members.append(1)
        labels[row] = len(centroids) - 1
    return labels


def centroid_loop_in_place(vectors: Matrix, radius: float) -> npt.NDArray[np.int64]:
    """The same with the centroids kept in one array: as fast as the loop gets in numpy."""
    centroids, used = np.empty_like(vectors), 0
    members = np.zeros(len(vectors), dtype=np.int64)
    labels = np.empty(len(vectors), dtype=np.int64)
    for row, vector in enumerate(vectors):
        similarity = centroids[:used] @ vector
        nearest = int(similarity.argmax()) if used else 0
        if used and 1.0 - similarity[nearest] <= radius:
            members[nearest] += 1
            moved = centroids[nearest] + (vector - centroids[nearest]) / members[nearest]
            centroids[nearest] = moved / np.linalg.norm(moved)
            labels[row] = nearest
        else:
            centroids[used], members[used], labels[row] = vector, 1, used
            used += 1
    return labels


def adjusted_rand_index(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> float:
    """Agreement of two partitions of the same records: 1 if they are the same, 0 by chance."""

    def pairs(size: npt.NDArray[np.int64]) -> float:
        return float((size * (size - 1) // 2).sum())

    table = np.bincount(one * (other.max() + 1) + other)
    both, first, second = pairs(table), pairs(np.bincount(one)), pairs(np.bincount(other))
    chance = first * second / pairs(np.array([one.size]))
    most = (first + second) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)
