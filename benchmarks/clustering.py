"""Credit by ``bipace_q``, from the fingerprints of an iteration, against the bare matrix product.

The product is ``X @ X.T`` of each task's unit vectors in single precision, and no more. The recipe
gets vectors of another length, as hidden states are, in single or in half precision, with the steps
of all attempts in turn; what it does besides clustering is included. A third of the steps lie close
to one of 50 places of their task, a third further away, and a third anywhere. ``ratio`` is the
median over interleaved rounds of CPU seconds on one core.
"""

from dataclasses import replace
from typing import Any

import common
import numpy as np

from ascribe import StepTable, recipe

WIDTH = 3584
ATTEMPTS = 8


def main() -> None:
    """Measure and print."""
    with common.Figures("clustering") as figures:
        for tasks, steps in [(2, 200)] if figures.quick else [(16, 400), (4, 1600)]:
            random = np.random.default_rng(steps)
            unit = np.concatenate([vectors(random, steps) for _ in range(tasks)])
            order = np.random.default_rng(0).permutation(unit.shape[0])
            table = steps_of(tasks, steps).take(order)
            for name, kind in (("single", np.float32), ("half", np.float16)):
                given, case = (3 * unit)[order].astype(kind), f"{tasks} x {steps}, {name} precision"
                times = timed(table, given, unit.reshape(tasks, -1, WIDTH), figures.quick)
                figures.emit(case, "seconds", float(np.median(times["recipe"])), "s", "lower")
                ratio = common.median_interval(times["recipe"] / times["product"])
                figures.emit_interval(case, "ratio", ratio, "ratio", "lower", 2.0)


def timed(table: StepTable, given: Any, parts: Any, quick: bool) -> dict[str, Any]:
    """Seconds of the recipe and of the product, round by round."""
    works = {
        "recipe": lambda: [recipe("bipace_q")(replace(table), fingerprints=given)],
        "product": lambda: [part @ part.T for part in parts],
    }
    return common.balanced(works, 3 if quick else 21)


def vectors(random: np.random.Generator, steps: int) -> np.ndarray:
    """Unit vectors around 50 directions."""
    noise = random.choice(np.array([0.05, 0.3, 2.0], np.float32), (steps, 1))
    own = random.standard_normal((steps, WIDTH), dtype=np.float32)
    found = random.standard_normal((50, WIDTH), dtype=np.float32)[random.integers(50, size=steps)]
    found += noise * own
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def steps_of(tasks: int, steps: int) -> StepTable:
    """Attempts of equal length; four in ten win."""
    random, length = np.random.default_rng(0), steps // ATTEMPTS
    attempt, step = np.divmod(np.arange(tasks * steps), length)
    won = (random.random(tasks * ATTEMPTS) < 0.4)[attempt]
    columns = {
        "group": [f"task {number // ATTEMPTS}" for number in attempt],
        "trajectory": [f"attempt {number}" for number in attempt],
        "step": step,
        "state": [f"state {number}" for number in range(step.size)],
        "action": [f"action {number}" for number in random.integers(0, 20, step.size)],
        "reward": won * (step == length - 1.0),
    }
    return StepTable.from_columns(columns)


if __name__ == "__main__":
    main()
