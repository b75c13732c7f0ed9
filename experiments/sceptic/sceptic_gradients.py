"""Direction or noise: which of the two explains the order of arms in ``sceptic.py``?

For the environments, arms and settings of ``sceptic.py`` (``protocol.md``), at
three stages of runs with ``returns``: the gradients of ``BATCHES`` batches of a policy that stands
still. ``direction`` is the cosine between the expected gradient of an arm and that of ``oracle``,
which is the true one up to the size of advantages; products of expectations are means over all
pairs of different batches, so that noise does not lower it. ``noise`` is the variance of the
gradient of one batch over the square of its expectation. Products are means over seeds before they
are divided. Cases ``environment/stage/arm`` are of one stage; ``environment/arm`` is the mean over
stages, with a jackknife interval over seeds. ``explains`` is Spearman's correlation, over the arms
but ``oracle`` and ``sbc, memory`` (whose batches are not independent), of ``auc`` in
``sceptic.jsonl`` with direction, and with noise (with its sign turned).

Finished pieces (environment and seed) are kept in ``--work``; ``--curves`` takes those of a
committed file as finished.
"""

import copy
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import STUDENT, Figures, read_lines
from experiments import learning_loop as loop
from experiments.common import OPTIONS, finished, keep, run_units, spearman
from experiments.sceptic import sceptic

RESULTS = Path(__file__).parent / "results"
SEEDS, BATCHES = (331, 332, 333), 32
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
    """Products of the gradients of each arm, at a policy that stands still."""
    fresh = {arm: replace(run, recipe=copy.deepcopy(run.recipe)) for arm, run in runs.items()}

    def of_batches() -> Iterator[dict[str, Any]]:
        some = next(iter(runs.values()))
        for number in range(10_000, 10_000 + batches):
            steps, _ = some.batch(policy, number, np.random.default_rng([some.seed, number]))
            weights = [run.credit(steps)[0] for run in fresh.values()]
            yield dict(zip(runs, gradients(policy, steps, weights), strict=True))

    return products(of_batches())


def products(of_batches: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What the gradients of batches say of each arm, from all pairs of different batches.

    ``strength`` is the square of the expected gradient, ``along`` its product with that of the
    oracle, and ``variance`` that of one batch.
    """
    batches, sums = 0, dict[str, Any]()
    squares, along = defaultdict[str, float](float), defaultdict[str, float](float)
    for of_batch in of_batches:
        batches += 1
        for arm, gradient in of_batch.items():
            sums[arm] = sums.get(arm, 0.0) + gradient
            squares[arm] += float(gradient @ gradient)
            along[arm] += float(gradient @ of_batch[TRUE])
    pairs = batches * (batches - 1)
    return {
        arm: {
            "strength": (float(total @ total) - squares[arm]) / pairs,
            "along": (float(total @ sums[TRUE]) - along[arm]) / pairs,
            "variance": (squares[arm] - float(total @ total) / batches) / (batches - 1),
        }
        for arm, total in sums.items()
    }


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
DEPENDENT = "sbc, memory"

Piece = Mapping[str, Mapping[str, Mapping[str, float]]]
"""What ``measure`` found, by stage and arm."""


def measured(pieces: Sequence[Piece], stage: str, arm: str) -> dict[str, float] | None:
    """Direction and noise, from products that are means over seeds; None if they are not known."""

    def mean(of: str, name: str) -> float:
        return float(np.mean([piece[stage][of][name] for piece in pieces]))

    strength, true = mean(arm, "strength"), mean(TRUE, "strength")
    if min(strength, true) <= 0:
        return None
    direction = mean(arm, "along") / (strength * true) ** 0.5
    return {"direction": direction, "noise": mean(arm, "variance") / strength}


def over_stages(pieces: Sequence[Piece], arm: str, name: str) -> float:
    """The mean over stages; not a number where one of them is not known."""
    found = [measured(pieces, stage, arm) for stage in STAGES]
    return float(np.mean([each[name] if each else np.nan for each in found]))


def jackknife(pieces: Sequence[Piece], arm: str, name: str) -> tuple[float, float, float]:
    """The mean over stages with a 95 % interval, from leaving out one seed at a time."""
    whole, count = over_stages(pieces, arm, name), len(pieces)
    left = [over_stages([*pieces[:i], *pieces[i + 1 :]], arm, name) for i in range(count)]
    half = STUDENT[count] * float(np.std(left)) * (count - 1) ** 0.5
    return whole, whole - half, whole + half


def report(
    figures: Figures,
    lines: Sequence[Mapping[str, Any]],
    learned: Mapping[tuple[str, str], float],
) -> None:
    """Direction and noise; and what goes with the order of the arms by their AUC."""
    for world in dict.fromkeys(line["world"] for line in lines):
        pieces: list[Piece] = [line["stages"] for line in lines if line["world"] == world]
        arms = [*pieces[0]["start"]]
        for arm, (name, unit) in itertools.product(arms, MEASURES.items()):
            for stage in STAGES:
                if found := measured(pieces, stage, arm):
                    figures.emit(f"{world}/{stage}/{arm}", name, found[name], *unit)
            interval = jackknife(pieces, arm, name) if len(pieces) > 1 else (np.nan,)
            if np.isfinite(interval).all():
                figures.emit_interval(f"{world}/{arm}", name, interval, *unit)
        for name, sign in (("direction", 1), ("noise", -1)):
            means = {arm: over_stages(pieces, arm, name) for arm in arms}
            both = [
                arm
                for arm in arms
                if arm not in (TRUE, DEPENDENT)
                and np.isfinite(means[arm])
                and (world, arm) in learned
            ]
            if len(both) > 3:
                found, p = spearman(
                    [learned[world, arm] for arm in both], [sign * means[arm] for arm in both]
                )
                case = f"{world}, {name}, {len(both)} arms"
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
            arms = ("grpo", "returns", "ppo", "oracle")
            design = replace(sceptic.QUICK, arms=arms, iterations=2)
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
