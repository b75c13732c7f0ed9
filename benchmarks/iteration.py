"""One iteration of two million rows, credited where its fingerprints are.

    python benchmarks/iteration.py [--quick] [--rows 2000000]

25,000 groups of 80 rows with half-precision fingerprints of 3,584 numbers (14 GB), on two Ray
actors that stand for an engine's workers: each makes the fingerprints of a shard when it is asked
for its credit, so that this machine never holds all of them. ``seconds`` is from the table to the
joined credit; the time to make the fingerprints, which an engine has from its forward pass, is in
it and also given by itself. ``peak`` is the resident memory of the driver. Needs the extra ray.

GiGPO (arXiv 2505.10978, Figure 6) reports 222 s to generate an iteration of at most 6,400 rows
with Qwen2.5-1.5B in ALFWorld (35 ms a row), of 363 s in all; ``generation`` is the time for as many
rows as here at that rate, on the same GPUs.
"""

import os
import resource
import time
from typing import Any

import common
import numpy as np

from ascribe import StepTable, recipe
from ascribe.estimators.shards import credit_shard, join_shards, split_shards
from ascribe.steps.table import Coded

ROWS_OF_GROUP, WIDTH, SHARD_GROUPS, WORKERS = 80, 3584, 125, 2
RECIPE = recipe("bipace_q")
GENERATION = 221.97 / 6400
"""Seconds that GiGPO's paper reports for a row."""


def main() -> None:
    """Credit an iteration in shards."""
    import ray  # noqa: PLC0415

    with common.Figures("iteration", rows={"type": int, "default": 2_000_000}) as figures:
        rows = 40_000 if figures.quick else figures.options.rows
        os.environ |= {"RAY_worker_niceness": "0"}
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        workers = [ray.remote(Worker).remote() for _ in range(WORKERS)]
        ray.get([worker.ready.remote() for worker in workers])
        table = iteration(rows // ROWS_OF_GROUP)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        started = time.perf_counter()
        parts = split_shards(table, table.group.codes // SHARD_GROUPS, RECIPE)
        waiting, running, done = list(enumerate(parts)), {}, {}
        while waiting or running:
            while waiting and len(running) < 2 * WORKERS:  # few tables are under way at a time
                number, (_, part) = waiting.pop()
                running[workers[number % WORKERS].credit.remote(part)] = number
            (first, *_), _ = ray.wait(list(running))
            done[running.pop(first)] = ray.get(first)
        credit = join_shards([r for r, _ in parts], [done[n][0] for n in range(len(parts))])
        seconds = time.perf_counter() - started
        made = sum(done[n][1] for n in done) / WORKERS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        ray.shutdown()
        case = f"{len(credit):,} rows"
        figures.emit(case, "seconds", seconds, "s", better="lower")
        figures.emit(case, "generation", rows * GENERATION, "s", better="lower")
        figures.emit(case, "making fingerprints", made, "s", better="lower")
        figures.emit(case, "table before", before, "GiB", better="lower")
        figures.emit(case, "peak", peak, "GiB", better="lower", goal=4.0)
        figures.emit(case, "fingerprints", 2 * rows * WIDTH / 2**30, "GiB", better="lower")


class Worker:
    """What an engine's worker does: it has fingerprints, and credits their groups."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.states = generator.standard_normal((4096, WIDTH), dtype=np.float32).astype(np.float16)

    def ready(self) -> bool:
        """Whether it has started."""
        return True

    def credit(self, part: StepTable) -> tuple[Any, float]:
        """The credit of a shard, and the seconds to make its fingerprints."""
        started = time.perf_counter()
        number = np.array([hash_of(text) for text in part.state.values])
        vectors = self.states[number[part.state.codes] % len(self.states)]
        made = time.perf_counter() - started
        return credit_shard(part, RECIPE, vectors), made


def hash_of(text: str) -> int:
    """The number of a state."""
    return int(text.rpartition(" ")[2])


def iteration(groups: int) -> StepTable:
    """A table of groups of 8 trajectories of 10 steps; a quarter of the rows are alone."""
    generator = np.random.default_rng(1)
    size = groups * ROWS_OF_GROUP
    row = np.arange(size)
    group, trajectory, step = row // ROWS_OF_GROUP, row // 10, row % 10
    state = group * 24 + generator.integers(0, 24, size)
    state = np.where(generator.random(size) < 0.25, groups * 24 + row, state)
    distinct, codes = np.unique(state, return_inverse=True)
    return StepTable(
        group=named("task", group),
        trajectory=named("run", trajectory),
        step=step,
        state=Coded(codes, np.array([f"You are at shelf {n}" for n in distinct], dtype=object)),
        action=named("go to", generator.integers(0, 20, size)),
        reward=np.where((step == 9) & (generator.random(size) < 0.4), 10.0, 0.0),
    )


def named(kind: str, numbers: Any) -> Coded:
    """A column of names."""
    names = [f"{kind} {number:07d}" for number in range(int(numbers.max()) + 1)]
    return Coded(numbers, np.array(names, dtype=object))


if __name__ == "__main__":
    main()
