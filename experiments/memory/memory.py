"""What a memory of earlier iterations costs, and how much old values may count.

Cost: one rollout of 20 steps per task, 12 iterations on. Each step is in one of 20 states of its
task, and takes one of three actions. ``times_without`` is the CPU time of crediting over that
without a memory; ``history_bytes`` is the size of the history as JSON.

Staleness: ``WORLD/RECIPE/memory M/every N`` is the mean success over a learning run of the audit
with one rollout per task, in which every task comes in each Nth update; the larger M, the more old
values count. ``METRIC_low`` and ``METRIC_high`` bound the 95 % interval over blocks of tasks.
"""

import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ascribe import StepTable, recipe
from ascribe_lab.audit import Settings
from ascribe_lab.audit.run import interval, score_learning
from benchmarks.common import Figures, Work, interleaved

RECIPES: dict[str, dict[str, Any]] = {"returns": {"gamma": 0.9}, "sbc": {"states": "exact"}}
WORLDS = ("graph", "craft")
MEMORIES = (0.2, 0.5, 0.8, 0.95)
EVERY = (1, 4)


def main() -> None:
    """Measure both."""
    with Figures("memory") as figures:
        cost(figures, 100 if figures.quick else 1000)
        worlds = WORLDS[:1] if figures.quick else WORLDS
        memories = MEMORIES[1:2] if figures.quick else MEMORIES
        updates, blocks = (4, 2) if figures.quick else (40, 6)
        for world, every in itertools.product(worlds, EVERY):
            recipes = {
                f"{name}/memory {memory:g}": recipe(name, memory=memory, **how)
                for name, how in RECIPES.items()
                for memory in memories
            }
            settings = Settings(
                blocks=blocks,
                tasks=16,
                updates=updates * every,
                learning_size=1,
                parts=every,
                seed=4141,
            )
            for (_, name, _), scores in score_learning(recipes, settings, world).items():
                found = interval(np.asarray(scores["momentum_auc"]))
                values = (found.value, found.low, found.high)
                place = f"{world}/{name}/every {every}"
                figures.emit_interval(place, "success", values, "share", "higher")


def cost(figures: Figures, tasks: int) -> None:
    """Bytes and seconds."""
    for name, how in RECIPES.items():
        with_memory, history = recipe(name, memory=0.8, **how), None
        for number in range(12):
            table = single_rollouts(tasks, number)
            history = with_memory(table, history=history).history
        fresh = partial(replace, table)
        works = {
            "none": Work(fresh, recipe(name, **how)),
            "memory": Work(fresh, partial(with_memory, history=history)),
        }
        seconds = interleaved(works, rounds=3)
        case = f"{name}, {tasks:,} tasks, {len(table):,} rows"
        figures.emit(case, "cpu_seconds", seconds["memory"].cpu, "s", "lower")
        more = seconds["memory"].cpu / seconds["none"].cpu
        figures.emit(case, "times_without", more, "ratio", "lower")
        figures.emit(case, "history_bytes", len(json.dumps(history)), "bytes", "lower")


def single_rollouts(tasks: int, seed: int) -> StepTable:
    """A rollout of 20 steps for each task."""
    random, task = np.random.default_rng(seed), np.repeat(np.arange(tasks), 20)
    step = np.tile(np.arange(20), tasks)
    names = [f"task {number}" for number in task]
    return StepTable.from_columns(
        {
            "group": names,
            "trajectory": names,
            "step": step.tolist(),
            "state": [f"state {number}" for number in random.integers(20, size=task.size)],
            "action": [f"go {number}" for number in random.integers(3, size=task.size)],
            "reward": np.where(step == 19, random.integers(2, size=task.size), 0.0).tolist(),
        }
    )


if __name__ == "__main__":
    main()
