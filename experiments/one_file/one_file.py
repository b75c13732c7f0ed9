"""What comes out of ``examples/bipace_in_one_file.py``, by recipe.

Runs of one seed are paired: all recipes start from the same cloned policy and play the same games
under the same seeds. ``start_success`` and ``end_success`` are shares of held-out episodes that
reach the goal, before and after the iterations, as means over seeds: episodes that are not trained
on, of the eight games that are. ``low`` and ``high`` bound the 95 % interval of such a mean
(Student's t over the seeds, cut at 0 and 1). The goal of the end is twice the start. Three seeds
cannot tell recipes apart, and are not meant to. ``iteration_seconds`` is a median. In the quick
case nothing is learned: it is too short. With ``--out NAME.jsonl`` the learning curves go to
``NAME/curve.jsonl``.
"""

import copy
import statistics
import sys
import time

import torch

from benchmarks import common

sys.path.insert(0, str(common.ROOT / "examples"))

import bipace_in_one_file as one_file

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers")

RECIPES = ("grpo", "gigpo")

Line = dict[str, float]


def main() -> None:
    """Clone once for each seed, train every recipe from there, and print."""
    with common.Figures("one_file") as figures:
        torch.set_num_threads(1)
        seeds, updates, iterations, held_out = range(3), 120, 10, 16
        if figures.quick:
            seeds, updates, iterations, held_out = range(2), 1, 1, 1
            one_file.HORIZON = 2
            del one_file.GAMES[2:]
        curves: dict[str, list[list[Line]]] = {recipe: [] for recipe in RECIPES}
        for seed in seeds:
            start = one_file.clone(seed, updates=updates)
            for recipe in RECIPES:
                policy = copy.deepcopy(start)
                settings = {"iterations": iterations, "held_out": held_out}
                curves[recipe].append(run(policy, recipe, seed, settings))
                figures.write_curve(line for runs in curves.values() for r in runs for line in r)
        for recipe, runs in curves.items():
            played = f"{iterations} iterations of {8 * len(one_file.GAMES)} episodes"
            case = f"{recipe}, {len(runs)} seeds, {played}"
            report(figures, case, runs)


def run(policy: torch.nn.Module, recipe: str, seed: int, settings: dict[str, int]) -> list[Line]:
    """One learning curve, with the CPU time of every iteration, evaluation included."""
    lines, began = [], time.process_time()
    for line in one_file.train(policy, recipe, seed, **settings):
        lines.append(line | {"cpu_seconds": round(time.process_time() - began, 2)})
        began = time.process_time()
    return lines


def report(figures: common.Figures, case: str, runs: list[list[Line]]) -> None:
    """All figures of one recipe."""
    start = [lines[0]["held_out_success"] for lines in runs]
    end = [lines[-1]["held_out_success"] for lines in runs]
    for name, shares in (("start", start), ("end", end)):
        goal = 2 * statistics.mean(start) if name == "end" else None
        values = common.mean_interval(shares)
        figures.emit_interval(
            case, f"{name}_success", values, "share", "higher", goal, ends=f"{name}_"
        )
    seconds = statistics.median(line["cpu_seconds"] for lines in runs for line in lines[:-1])
    figures.emit(case, "iteration_seconds", seconds, "s of CPU", "lower")


if __name__ == "__main__":
    main()
