"""Greedy cosine clustering in Gram space, against the bare matrix product and the paper's loop.

``seconds`` is the CPU time for 16 groups on one thread; ``ratio_to_product`` compares it with the
bare ``X @ X.T`` of each group in the same run, ``speedup_over_loop`` with the loop over a list of
centroids that the paper describes (``_in_place``: with centroids in one array, as fast as that loop
gets in numpy). ``label_agreement`` is the share of records with the loop's label. With numba,
``compiled`` figures are those of the loop that it compiles; the others are always numpy's.
"""

import time

import common
import invented
import numpy as np

from ascribe.groups import Groups
from ascribe.groups import cluster as module
from ascribe.groups.cluster import cluster

GROUPS = 16
COMPILED = module._compiled()
module._compiled = lambda: None


def main() -> None:
    """Measure and print."""
    with common.Figures("clustering") as figures:
        sizes = [(200, 1536), (400, 1536)] + ([] if figures.quick else [(400, 3584)])
        large = [(800, 1536)] if figures.quick else [(3200, 1536), (3200, 3584)]
        for rows, width in [*sizes, *large]:
            measure(figures, rows, width, rounds=5 if rows < 3200 else 2)


def measure(figures: common.Figures, rows: int, width: int, rounds: int) -> None:
    """All figures of one size."""
    random = np.random.default_rng(rows + width)
    groups = [invented.group(rows, width, random) for _ in range(GROUPS)]
    together, task = np.concatenate(groups), np.repeat(np.arange(GROUPS), rows)
    works = {
        "cluster": common.Work(lambda: None, lambda _: cluster(together, task, invented.RADIUS)),
        "product": common.Work(lambda: None, lambda _: [part @ part.T for part in groups]),
    }
    if COMPILED:
        works["compiled"] = common.Work(lambda: None, lambda _: compiled(together, task))
    times = common.interleaved(works, rounds=rounds)
    case = f"{rows}x{width}/float32"
    figures.emit(case, "seconds", times["cluster"].cpu, "s", "lower")
    ratio = times["cluster"].cpu / times["product"].cpu
    figures.emit(case, "ratio_to_product", ratio, "ratio", "lower", goal=1.3)

    if COMPILED:
        ratio = times["compiled"].cpu / times["product"].cpu
        figures.emit(case, "compiled_ratio_to_product", ratio, "ratio", "lower", goal=1.3)
        same = compiled(together, task).labels == cluster(together, task, invented.RADIUS).labels
        figures.emit(case, "compiled_agreement", same.mean(), "share", "higher", goal=1.0)

    some = groups[: 1 if rows >= 3200 else 4]
    looped = [invented.centroid_loop(part, invented.RADIUS) for part in some]
    for name, loop, goal in (
        ("speedup_over_loop", invented.centroid_loop, 8.0),
        ("speedup_over_loop_in_place", invented.centroid_loop_in_place, None),
    ):
        started = time.process_time()
        for part in some:
            loop(part, invented.RADIUS)
        spent = (time.process_time() - started) * GROUPS / len(some)
        figures.emit(case, name, spent / times["cluster"].cpu, "ratio", "higher", goal=goal)

    found = per_group(cluster(together, task, invented.RADIUS).labels, rows)
    agreement = float(np.mean([np.mean(a == b) for a, b in zip(found, looped, strict=False)]))
    figures.emit(case, "label_agreement", agreement, "share", "higher", goal=1.0)
    alone = np.concatenate([np.bincount(part) for part in found])
    figures.emit(case, "singleton_share_of_rows", (alone == 1).sum() / len(task), "share", "lower")


def compiled(together: np.ndarray, task: np.ndarray) -> Groups:
    """Cluster with the compiled loop."""
    module._compiled = lambda: COMPILED
    try:
        return cluster(together, task, invented.RADIUS)
    finally:
        module._compiled = lambda: None


def per_group(labels: np.ndarray, rows: int) -> list[np.ndarray]:
    """Labels of each group, from 0."""
    return [part - part.min() for part in labels.reshape(-1, rows)]


if __name__ == "__main__":
    main()
