"""Direction or noise: which of the two explains the order of arms in ``sceptic.py``?

For the environments, arms and settings of ``sceptic.py`` (``benchmarks/sceptic_protocol.md``), at
three stages of runs with ``returns``: the gradients of ``BATCHES`` batches of a policy that stands
still. ``direction`` is the cosine between the expected gradient of an arm and that of ``oracle``,
which is the true one; it is estimated from two halves of the batches, so that noise does not lower
it. ``noise`` is the variance of the gradient of one batch over the square of its expectation. Both
are means over seeds and stages with 95 % t-intervals over seeds; cases ``environment/stage/arm``
are means over seeds. ``explains`` is Spearman's correlation, over the arms but ``oracle``, of
``auc`` in ``sceptic.jsonl`` with direction, and with noise (with its sign turned).

Finished pieces (environment and seed) are kept in ``--work``; ``--curves`` takes those of a
committed file as finished.
"""

import copy
import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import learning_loop as loop
import numpy as np
import sceptic
import torch
from common import RESULTS, Figures, mean_interval, read_lines
from learning_experiment import OPTIONS, finished, keep, run_units, spearman

SEEDS, BATCHES = (331, 332, 333), 48
STAGES = {"start": 0.0, "middle": 0.5, "end": 1.0}
FOLLOWED, CRITIC, TRUE = "returns", "ppo", "oracle"

Settings = Mapping[tuple[str, str], tuple[float, float]]
"""Discount and learning rate, by environment and arm."""


def gradients(policy: Any, steps: Sequence[loop.Step], weights: Sequence[Any]) -> Iterator[Any]:
    """The gradient of the gain of all steps, for each of several advantages of them."""
    logps, real = loop.token_logps(policy, steps)
    summed, parameters = (logps * real).sum(1), [*policy.parameters()]
    for advantage in weights:
        gain = (torch.tensor(advantage, dtype=torch.float32) * summed).sum() / real.sum()
        parts = torch.autograd.grad(gain, parameters, retain_graph=True)
        yield torch.cat([part.flatten() for part in parts]).double().numpy()


def measure(policy: Any, runs: Mapping[str, loop.Run], batches: int) -> dict[str, Any]:
    """Direction and noise of each arm, at a policy that stands still."""
    size = sum(weight.numel() for weight in policy.parameters())
    sums = {arm: np.zeros((2, size)) for arm in runs}
    squares = dict.fromkeys(runs, 0.0)
    fresh = {arm: replace(run, recipe=copy.deepcopy(run.recipe)) for arm, run in runs.items()}
    for number in range(batches):
        some = next(iter(runs.values()))
        rng = np.random.default_rng([some.seed, 10_000 + number])
        steps, _ = some.batch(policy, 10_000 + number, rng)
        weights = [run.credit(steps)[0] for run in fresh.values()]
        for arm, gradient in zip(runs, gradients(policy, steps, weights), strict=True):
            sums[arm][number % 2] += gradient
            squares[arm] += float(gradient @ gradient)
    halves = {arm: both / (batches / 2) for arm, both in sums.items()}
    strength = {arm: float(one @ other) for arm, (one, other) in halves.items()}
    (first, second), found = halves[TRUE], {}
    for arm, (one, other) in halves.items():
        mean = (one + other) / 2
        variance = (squares[arm] - batches * float(mean @ mean)) / (batches - 1)
        along = float(one @ second + other @ first) / 2
        known = strength[arm] > 0 and strength[TRUE] > 0
        length = (strength[arm] * strength[TRUE]) ** 0.5 if known else np.nan
        found[arm] = {
            "direction": round(along / length, 4) if known else None,
            "noise": round(variance / strength[arm], 3) if known else None,
        }
    return found


def run_unit(
    design: sceptic.Design,
    best: Settings,
    batches: int,
    folder: Path,
    deadline: float,
    unit: sceptic.Unit,
) -> None:
    """Train with one arm, and stop at each stage to measure all of them."""
    torch.set_num_threads(1)
    path = path_of(folder, unit.world, unit.seed)
    if path.exists() or time.time() > deadline:
        return
    began, length = time.process_time(), design.length(unit.world)
    policy = sceptic.start_of(design, folder, unit.world, unit.seed)
    runs = {
        arm: sceptic.planned(design, unit, arm, *best[unit.world, arm], length, policy)[0]
        for arm in design.arms_in(unit.world)
    }
    run = replace(runs[FOLLOWED], critic=runs[CRITIC].critic)  # which learns along
    optimizer = torch.optim.Adam(policy.parameters(), lr=run.rate)
    stages = {round(share * length): stage for stage, share in STAGES.items()}
    found = {}
    for number in range(length + 1):
        if number in stages:
            found[stages[number]] = measure(policy, runs, batches)
        if number < length:
            run.iterate(policy, optimizer, number)
    line = {"world": unit.world, "seed": unit.seed, "stages": found}
    keep(line | {"cpu_seconds": round(time.process_time() - began, 1)}, path)


def path_of(folder: Path, world: str, seed: int) -> Path:
    """The file of a piece."""
    return folder / f"{sceptic.words(world)}-{seed}.json"


# Figures.

MEASURES = {"direction": ("1", "higher"), "noise": ("1", "lower")}


def report(
    figures: Figures,
    lines: Sequence[Mapping[str, Any]],
    learned: Mapping[tuple[str, str], float],
) -> None:
    """Means over seeds; and what goes with the order of the arms by their AUC."""
    for world in dict.fromkeys(line["world"] for line in lines):
        pieces = [line["stages"] for line in lines if line["world"] == world]
        arms, means = [*pieces[0]["start"]], dict[tuple[str, str], float]()
        for arm, (measured, unit) in itertools.product(arms, MEASURES.items()):
            for stage in STAGES:
                of_seeds = [piece[stage][arm][measured] for piece in pieces]
                if known := [value for value in of_seeds if value is not None]:
                    case = f"{world}/{stage}/{arm}"
                    figures.emit(case, measured, float(np.mean(known)), *unit)
            of_seeds = [[piece[stage][arm][measured] for stage in STAGES] for piece in pieces]
            if all(value is not None for row in of_seeds for value in row):
                rows = np.mean(of_seeds, axis=1)
                means[arm, measured] = float(rows.mean())
                if len(rows) > 1:
                    interval = mean_interval(rows.tolist(), -np.inf, np.inf)
                    figures.emit_interval(f"{world}/{arm}", measured, interval, *unit)
        for measured, sign in (("direction", 1), ("noise", -1)):
            both = [
                arm
                for arm in arms
                if arm != TRUE and (arm, measured) in means and (world, arm) in learned
            ]
            if len(both) > 3:
                found, p = spearman(
                    [learned[world, arm] for arm in both],
                    [sign * means[arm, measured] for arm in both],
                )
                case = f"{world}, {measured}, {len(both)} arms"
                figures.emit(case, "explains", found, "1", "higher")
                figures.emit(case, "p", p, "1", "lower")


def learned() -> dict[tuple[str, str], float]:
    """AUC by environment and arm, as committed."""
    found = {}
    for line in read_lines(RESULTS / "sceptic.jsonl")[1:]:
        world, _, arm = line["case"].rpartition("/")
        if line["metric"] == "auc":
            found[world, arm] = line["value"]
    return found


def main() -> None:
    """Measure what is missing, then report."""
    with Figures("sceptic_gradients", **OPTIONS) as figures, tempfile.TemporaryDirectory() as new:
        options, design = figures.options, sceptic.FULL
        deadline = time.time() + 60 * options.minutes
        folder, batches, seeds = options.work or Path(new), BATCHES, SEEDS
        folder.mkdir(parents=True, exist_ok=True)
        worlds = [world for world in design.worlds if sceptic.PLACES[world].oracle]
        if figures.quick:
            design = replace(sceptic.QUICK, arms=("grpo", "returns", "ppo", "oracle"))
            worlds, batches, seeds = worlds[:1], 2, (1,)
            best = dict.fromkeys(itertools.product(worlds, design.arms), (0.95, 1e-3))
        else:
            best = sceptic.chosen(design, read_lines(RESULTS / "sceptic" / "curve.jsonl"))
        for line in read_lines(options.curves) if options.curves else ():
            keep(line, path_of(folder, line["world"], line["seed"]))
        units = [sceptic.Unit(world, s, ()) for s, world in itertools.product(seeds, worlds)]
        run = partial(run_unit, design, best, batches, folder, deadline)
        run_units(run, units, options.processes)
        lines = finished(folder)
        report(figures, lines, {} if figures.quick else learned())
        figures.write_curve(lines)


if __name__ == "__main__":
    main()
