"""Does better credit learn faster? Small policies, two environments, two starts, paired seeds.

The design, the contrasts and what is said for each outcome were committed before the runs:
``protocol.md``. A run trains one policy with one recipe; ``auc`` is the mean of its success over
training, from evaluations of 512 episodes (trapezoids). Runs of one seed share start, tasks and
random numbers. A case is ``environment/start/recipe``; without a start it is the
mean over starts, and ``all`` is the mean over environments and starts. ``auc`` is the mean over
seeds, ``iqm`` the mean of the middle half of the runs. Intervals are over seeds, at 95 %: by
Student's t for means, by bootstrap for ``iqm``. ``difference`` is that of ``auc`` to ``gigpo``,
paired by seed, with the ``p`` value of an exact sign-flip test, and ``ahead`` the number of seeds
in which it is above 0. ``holm`` is p corrected for all contrasts but the primary one,
``holm_first_look`` the same after the nine seeds that were looked at first, and
``holm_two_looks`` twice ``holm``. Cases ``explored: ...`` are contrasts that the protocol does not
name. ``rank_correlation`` is Spearman's, of ``auc`` in ``all`` and a score of
``benchmarks/audit.py`` (groups of 8, mean over worlds), over recipes.
``purity`` is the share of pairs of steps in a cluster of hidden states whose states are equal.
Controls run in fewer cells, and are compared with their own recipe there.

Finished runs are kept in ``--work``, and a run that was stopped goes on there. ``--minutes`` starts
no new run after that time; figures are of what is finished. With ``--out NAME.jsonl``, the curves
go to ``NAME/curve.jsonl``. ``--curves FILE`` takes the runs of such a file as finished; with
``--minutes 0``, the figures are computed from it alone.
"""

import copy
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ascribe_lab.audit.policy import with_radius
from ascribe_lab.audit.run import scored_recipe
from benchmarks.common import Figures, bootstrap, mean_interval, read_lines
from experiments import learning_loop as loop
from experiments.common import (
    OPTIONS,
    TARGET,
    auc,
    finished,
    holm,
    keep,
    run_units,
    sign_flip,
    spearman,
)

AUDIT = Path(__file__).parent / "results" / "audit.jsonl"
"""Scores of ``benchmarks/audit.py`` as they were at the time."""

# The design.


@dataclass(frozen=True)
class Arm:
    """How one arm credits steps."""

    recipe: str
    """As ``ascribe audit`` names it, with controls."""
    equal: bool = True
    """Whether advantages are rescaled to the RMS of GRPO's."""
    pretrained: bool = False
    """Whether fingerprints are those of a policy that was trained on many demonstrations."""
    tuned_as: str = ""
    """The recipe whose learning rate is taken, for controls."""


RECIPES = {
    "grpo": Arm("grpo"),
    "returns": Arm("returns"),
    "gigpo": Arm("gigpo"),
    "hgpo": Arm("hgpo"),
    "bigpo": Arm("bigpo"),
    "bipace_q": Arm("bipace_q"),
    "sbc": Arm("sbc_exact"),
}
CONTROLS = {
    "gigpo, one group": Arm("gigpo_one", tuned_as="gigpo"),
    "gigpo, random groups": Arm("gigpo_random", tuned_as="gigpo"),
    "sbc, random groups": Arm("sbc_exact_random", tuned_as="sbc"),
    "grpo, own size": Arm("grpo", equal=False, tuned_as="grpo"),
    "gigpo, own size": Arm("gigpo", equal=False, tuned_as="gigpo"),
    "sbc, own size": Arm("sbc_exact", equal=False, tuned_as="sbc"),
    "sbc, hidden states": Arm("sbc", tuned_as="sbc"),
    "sbc, pretrained": Arm("sbc", pretrained=True, tuned_as="sbc"),
    "bigpo, pretrained": Arm("bigpo", pretrained=True, tuned_as="bigpo"),
    "bipace_q, pretrained": Arm("bipace_q", pretrained=True, tuned_as="bipace_q"),
}
ADDED = {"returns, discount 0.9": Arm("returns@0.9", tuned_as="returns")}
"""Run after the results were known, where the controls run."""
ARMS = RECIPES | CONTROLS | ADDED
EXPLORED = (
    ("all", "sbc", "returns"),
    ("weak", "sbc, random groups", "grpo"),
    ("weak", "sbc, hidden states", "returns"),
    *(
        (place, *arms)
        for place in ("weak", *(f"{environment}/weak" for environment in loop.WORLDS))
        for arms in (("returns, discount 0.9", "returns"), ("sbc", "returns, discount 0.9"))
    ),
)
"""Contrasts that the protocol does not name: place, and the two arms."""
SCORES = ("update_cosine", "learning_auc", "momentum_auc")
"""Scores of the audit that AUC is compared with."""
FIRST_LOOK = 9
"""Seeds whose results were known before the others were run."""
BASE, PRIMARY = "gigpo", "sbc"
PRETRAINED = loop.Start(0.25, 1500)
"""How the policy of the arms ``pretrained`` was made, with seed 900."""

Cell = tuple[str, str]
"""Environment and start."""


@dataclass(frozen=True)
class Design:
    """What is run."""

    cells: tuple[Cell, ...] = tuple(itertools.product(loop.WORLDS, ("weak", "strong")))
    recipes: tuple[str, ...] = tuple(RECIPES)
    controls: tuple[str, ...] = tuple(CONTROLS)
    added: tuple[str, ...] = tuple(ADDED)
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3)
    seeds: tuple[int, ...] = tuple(range(101, 125))
    control_seeds: tuple[int, ...] = tuple(range(101, 113))
    tuning_seeds: tuple[int, ...] = (201, 202, 203)
    iterations: int = 30
    every: int = 6
    held_out: int = 512
    cloning: int | None = None
    """Updates of cloning, in place of those of the starts."""


FULL = Design()
QUICK = Design(
    cells=(("textcraft", "weak"), ("sokoban", "weak")),
    recipes=("gigpo", "sbc"),
    controls=("gigpo, random groups", "sbc, pretrained"),
    added=(),
    rates=(1e-3, 2e-3),
    seeds=(1, 2),
    control_seeds=(1, 2),
    tuning_seeds=(3,),
    iterations=1,
    every=1,
    held_out=32,
    cloning=4,
)


@dataclass(frozen=True)
class Unit:
    """Runs that share a start: one cell and one seed."""

    cell: Cell
    seed: int
    runs: tuple[tuple[str, float], ...]
    """Arm and learning rate of each."""


def tuning(design: Design) -> list[Unit]:
    """Every recipe with every learning rate, on seeds of their own."""
    runs = tuple(itertools.product(design.recipes, design.rates))
    return [Unit(cell, s, runs) for s in design.tuning_seeds for cell in design.cells]


def chosen_rates(design: Design, lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The rate of the largest mean AUC, by environment and recipe, over starts and tuning seeds."""
    values: dict[Any, list[float]] = defaultdict(list)
    for line in lines:
        if line["seed"] in design.tuning_seeds:
            values[line["environment"], line["arm"], line["rate"]].append(auc(line))
    found = {}
    for (environment, arm, rate), of_rate in values.items():
        best = found.get((environment, arm))
        if best is None or np.mean(of_rate) > np.mean(values[environment, arm, best]):
            found[environment, arm] = rate
    return found


def comparison(design: Design, rates: Mapping[tuple[str, str], float]) -> list[Unit]:
    """All arms at their rates, seed by seed, so that a part of the runs is a part of the seeds."""
    units = []
    for seed, cell in itertools.product(design.seeds, design.cells):
        names = list(design.recipes)
        if seed in design.control_seeds and cell[1] == "weak":
            names += design.controls + design.added
        runs = [(name, rates[cell[0], ARMS[name].tuned_as or name]) for name in names]
        units.append(Unit(cell, seed, tuple(runs)))
    return units


# Runs.


def run_unit(design: Design, folder: Path, deadline: float, unit: Unit) -> None:
    """Make the runs of a unit that are missing, until the deadline."""
    torch.set_num_threads(1)
    missing = [pair for pair in unit.runs if not path_of(folder, unit, *pair).exists()]
    if not missing or time.time() > deadline:
        return
    start = loop.STARTS[unit.cell]
    if design.cloning is not None:
        start = replace(start, updates=design.cloning)
    policy = loop.clone(unit.cell[0], start, unit.seed)
    for arm, rate in missing:
        if time.time() > deadline:
            return
        began = time.process_time()
        lines = list(planned(design, unit, arm, rate, policy).train(copy.deepcopy(policy)))
        line = {"environment": unit.cell[0], "start": unit.cell[1], "arm": arm}
        line |= {"rate": rate, "seed": unit.seed}
        line["held_out"] = [round(each["held_out"], 4) for each in lines if "held_out" in each]
        line["trained"] = round(float(np.mean([each["success"] for each in lines[:-1]])), 4)
        line["rms"] = round(float(np.mean([each["rms"] for each in lines[:-1]])), 4)
        pure = [each["purity"] for each in lines if "purity" in each]
        if pure:
            line["purity"] = round(float(np.mean(pure)), 4)
        line["cpu_seconds"] = round(time.process_time() - began, 1)
        keep(line, path_of(folder, unit, arm, rate))


def path_of(folder: Path, unit: Unit, arm: str, rate: float) -> Path:
    """The file of a run."""
    name = "-".join([*unit.cell, arm.replace(", ", "_").replace(" ", "_"), f"{rate:g}"])
    return folder / f"{name}-{unit.seed}.json"


def planned(design: Design, unit: Unit, arm: str, rate: float, policy: Any) -> loop.Run:
    """A run of the design, from this policy."""
    how, world = ARMS[arm], unit.cell[0]
    reader = pretrained(world, design.cloning or PRETRAINED.updates) if how.pretrained else None
    recipe = scored_recipe(how.recipe)
    if loop.clusters(recipe):
        radius = loop.search_radius(policy, reader or policy, world, unit.seed, TARGET)
        recipe = with_radius(recipe, radius)
    return loop.Run(
        world,
        recipe,
        rate,
        unit.seed,
        design.iterations,
        design.every,
        design.held_out,
        equal=how.equal,
        reader=reader,
    )


@cache
def pretrained(world: str, updates: int) -> Any:
    """The policy of the arms ``pretrained``."""
    return loop.clone(world, replace(PRETRAINED, updates=updates), 900)


# Statistics.


def middle_mean(values: Any, axis: int = -1) -> Any:
    """The mean of the middle half of the values along an axis."""
    ordered = np.sort(values, axis=axis)
    cut = ordered.shape[axis] // 4
    return ordered.take(range(cut, ordered.shape[axis] - cut), axis).mean(axis)


# Figures.


def of_complete_seeds(design: Design, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs for learning rates, and those of seeds whose runs are all finished."""
    tuned = [line for line in lines if line["seed"] in design.tuning_seeds]
    rates = chosen_rates(design, tuned)
    if len(rates) < len({cell[0] for cell in design.cells}) * len(design.recipes):
        return tuned
    done = {(line["environment"], line["start"], line["arm"], line["seed"]) for line in lines}
    missing = {
        unit.seed
        for unit in comparison(replace(design, added=()), rates)
        for arm, _ in unit.runs
        if (*unit.cell, arm, unit.seed) not in done
    }
    return tuned + [
        one for one in lines if one["seed"] in design.seeds and one["seed"] not in missing
    ]


Values = dict[str, dict[Cell, dict[int, float]]]
"""AUC by arm, cell and seed."""


def report(figures: Figures, design: Design, lines: Sequence[dict[str, Any]]) -> None:
    """All figures of finished runs, without seeds that are finished in part."""
    figures.emit("runs", "finished", len(lines), "runs", "higher")
    lines = of_complete_seeds(design, lines)
    seeds = set(design.seeds)
    values: Values = defaultdict(lambda: defaultdict(dict))
    ends: Values = defaultdict(lambda: defaultdict(dict))
    pure: dict[Any, list[float]] = defaultdict(list)
    for line in lines:
        if line["seed"] in seeds:
            cell = line["environment"], line["start"]
            values[line["arm"]][cell][line["seed"]] = auc(line)
            ends[line["arm"]][cell][line["seed"]] = line["held_out"][-1]
            pure[line["arm"], cell] += [line["purity"]] if "purity" in line else []
    tuned = [line for line in lines if line["seed"] in design.tuning_seeds]
    figures.emit("runs", "cpu_seconds", np.median([a["cpu_seconds"] for a in lines]), "s", "lower")
    for (environment, arm), rate in sorted(chosen_rates(design, tuned).items()):
        figures.emit(f"{environment}/{arm}", "learning_rate", rate, "1", "lower")
    means: dict[str, float] = {}
    for arm in (name for name in ARMS if name in values):
        cells = [cell for cell in design.cells if values[arm][cell]]
        for cell in cells:
            place = f"{'/'.join(cell)}/{arm}"
            of_cell = np.array(list(values[arm][cell].values()))
            figures.emit_interval(place, "auc", mean_interval(of_cell), "share", "higher")
            if pure[arm, cell]:
                figures.emit(place, "purity", float(np.mean(pure[arm, cell])), "share", "higher")
            at_end = np.array(list(ends[arm][cell].values()))
            figures.emit_interval(place, "end", mean_interval(at_end), "share", "higher")
        whole = table(values, arm, cells)
        if arm in design.recipes and len(cells) == len(design.cells) and len(whole):
            means[arm] = float(whole.mean())
            of_seeds = whole.mean(axis=1)
            figures.emit_interval(f"all/{arm}", "auc", mean_interval(of_seeds), "share", "higher")
            iqm = bootstrap(whole, middle_mean)
            figures.emit_interval(f"all/{arm}", "iqm", iqm, "share", "higher")
            figures.emit(f"all/{arm}", "seeds", len(whole), "seeds", "higher")
    _contrasts(figures, design, values)
    for metric, left_out in itertools.product(SCORES, ("", PRIMARY)):
        scores = predictions(metric)
        both = [arm for arm in means if ARMS[arm].recipe in scores and arm != left_out]
        if len(both) > 3:
            found, p = spearman(
                [means[arm] for arm in both], [scores[ARMS[arm].recipe] for arm in both]
            )
            case = f"{metric} of the audit, {len(both)} recipes"
            case += f" without {left_out}" if left_out else ""
            figures.emit(case, "rank_correlation", found, "1", "higher")
            figures.emit(case, "p", p, "1", "lower")


def table(values: Values, arm: str, cells: Sequence[Cell], other: str = "") -> Any:
    """AUC of an arm, [seeds, cells], of seeds that are finished; less that of another arm."""
    names = [arm, other] if other else [arm]
    whole = [set(values[name][cell]) for name in names for cell in cells]
    seeds = sorted(set.intersection(*whole)) if whole else []
    rows = np.array([[values[arm][cell][s] for cell in cells] for s in seeds])
    if other and seeds:
        rows = rows - np.array([[values[other][cell][s] for cell in cells] for s in seeds])
    return rows.reshape(len(seeds), len(cells))


def _contrasts(figures: Figures, design: Design, values_of: Values) -> None:
    """Paired differences: recipes to the base, in all places; controls to their recipe."""
    found: dict[str, Any] = {}
    places: dict[str, list[Cell]] = {"all": list(design.cells)}
    for cell in design.cells:
        places.setdefault(cell[0], []).append(cell)
        places["/".join(cell)] = [cell]
    for arm in (name for name in design.recipes if name != BASE):
        for place, cells in places.items():
            found[f"{place}/{arm} minus {BASE}"] = table(values_of, arm, cells, BASE)
    for arm in design.controls:
        weak = [cell for cell in design.cells if cell[1] == "weak"]
        recipe = ARMS[arm].tuned_as
        found[f"weak/{arm} minus {recipe}"] = table(values_of, arm, weak, recipe)
    by_seed = {case: rows.mean(axis=1) for case, rows in found.items() if len(rows) > 1}
    primary = f"all/{PRIMARY} minus {BASE}"
    tested = [case for case in by_seed if case != primary and case.startswith(("all/", "weak/"))]
    p = {case: sign_flip(values) for case, values in by_seed.items()}
    corrected = holm({case: p[case] for case in tested})
    at_first = holm({case: sign_flip(by_seed[case][:FIRST_LOOK]) for case in tested})
    for case, values in by_seed.items():
        _emit_difference(figures, case, values)
        figures.emit(case, "p", p[case], "1", "lower", 0.05 if case == primary else None)
        if case in corrected:
            figures.emit(case, "holm", corrected[case], "1", "lower")
            if len(values) > FIRST_LOOK:
                figures.emit(case, "holm_first_look", at_first[case], "1", "lower")
                figures.emit(case, "holm_two_looks", min(1.0, 2 * corrected[case]), "1", "lower")
        if case.startswith(("all/", "weak/")):
            figures.emit(case, "paired_sd", float(values.std(ddof=1)), "share", "lower")
            figures.emit(case, "seeds", len(values), "seeds", "higher")
    for place, arm, other in EXPLORED:
        cells = [cell for cell in design.cells if place in ("all", cell[1], "/".join(cell))]
        rows = table(values_of, arm, cells, other)
        if len(rows) > 1:
            case = f"explored: {place}/{arm} minus {other}"
            _emit_difference(figures, case, rows.mean(axis=1))
            figures.emit(case, "seeds", len(rows), "seeds", "higher")


def _emit_difference(figures: Figures, case: str, values: Any) -> None:
    """The mean over seeds with its interval, and in how many of them it is above 0."""
    figures.emit_interval(case, "difference", mean_interval(values, -1), "share", "higher")
    figures.emit(case, "ahead", float((values > 0).sum()), "seeds", "higher")


def predictions(metric: str) -> dict[str, float]:
    """A score of the audit for every recipe: mean over its worlds, in groups of 8."""
    found = {}
    for line in read_lines(AUDIT)[1:]:
        world, recipe, size = [*line["case"].split("/"), "", ""][:3]
        if (world, size, line["metric"]) == ("mean", "8", metric):
            found[recipe] = line["value"]
    return found


def main() -> None:
    """Run what is missing, then report."""
    with (
        Figures("learning_experiment", **OPTIONS) as figures,
        tempfile.TemporaryDirectory() as spare,
    ):
        options, design = figures.options, QUICK if figures.quick else FULL
        options.deadline = time.time() + 60 * options.minutes
        folder = options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        for line in read_lines(options.curves) if options.curves else ():
            unit = Unit((line["environment"], line["start"]), line["seed"], ())
            keep(line, path_of(folder, unit, line["arm"], line["rate"]))
        units = tuning(design)
        run = partial(run_unit, design, folder, options.deadline)
        run_units(run, units, options.processes)
        expected = [path_of(folder, unit, *run) for unit in units for run in unit.runs]
        if all(path.exists() for path in expected):
            rates = chosen_rates(design, finished(folder))
            run_units(run, comparison(design, rates), options.processes)
        lines = finished(folder)
        report(figures, design, lines)
        figures.write_curve(lines)


if __name__ == "__main__":
    main()
