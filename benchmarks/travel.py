"""Ways for fingerprints to travel from the workers: bytes per row, and whether clusters survive.

``agreement`` is the adjusted Rand index with the labels of single-precision fingerprints, the mean
over 32 groups of 400 records; ``identical_groups`` is the share of groups whose labels are the same
to the last record. Records lie at all distances from their situation, some of them near the radius.
"""

import common
import invented
import numpy as np
from small_fingerprints import gram, half, projected

from ascribe.groups.cluster import cluster, cluster_grams


def main() -> None:
    """Measure and print."""
    with common.Figures("travel") as figures:
        count, rows, width = (8, 200, 1536) if figures.quick else (32, 400, 3584)
        random = np.random.default_rng(0)
        groups = [invented.group(rows, width, random) for _ in range(count)]
        expected = [labels_of(part) for part in groups]
        ways = {
            "float32": (labels_of, 4 * width),
            "float16": (lambda part: labels_of(half(part)), 2 * width),
            "gram/float32": (lambda part: cluster_grams([gram(part)], RADIUS)[0], 4 * rows),
            "gram/float16": (
                lambda part: cluster_grams([gram(part).astype(np.float16)], RADIUS)[0],
                2 * rows,
            ),
        }
        for numbers in (256, 1024):
            seeded = lambda part, numbers=numbers: labels_of(  # noqa: E731
                half(projected(part, numbers, np.random.default_rng(7)))
            )
            ways[f"projection {numbers}/float16"] = (seeded, 2 * numbers)
        for name, (way, bytes_per_row) in ways.items():
            case = f"{rows}x{width}/{name}"
            found = [way(part) for part in groups]
            pairs = list(zip(found, expected, strict=True))
            agreement = np.mean([invented.adjusted_rand_index(a, b) for a, b in pairs])
            goal = 0.999 if name == "float16" else None
            figures.emit(case, "bytes_per_row", bytes_per_row, "B", "lower")
            figures.emit(case, "agreement", float(agreement), "index", "higher", goal=goal)
            same = np.mean([np.array_equal(a, b) for a, b in pairs])
            figures.emit(case, "identical_groups", float(same), "share", "higher")


RADIUS = invented.RADIUS


def labels_of(vectors: np.ndarray) -> np.ndarray:
    """Clusters of one group."""
    return cluster(vectors, np.zeros(len(vectors), dtype=np.int64), RADIUS).labels


if __name__ == "__main__":
    main()
