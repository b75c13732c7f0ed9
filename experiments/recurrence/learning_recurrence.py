"""What helps where no text recurs? Small policies, a clock in every text, paired seeds.

The loop, the policies and the weak starts are those of ``learning_experiment.py``; the time of day
stands before every text and every prompt, so that each step is alone in its text. A run trains one
policy with one arm; ``auc`` is the mean of its success over training, by trapezoids. Discounts and
learning rates are tuned on seeds of their own: the discount of ``returns`` at one rate, its rate at
the best discount, then at that rate the discount of every arm with ``tuned_as`` empty; others take
the discount of the arm that they are tuned as. Arms with one rollout have a rate of their own.
Advantages of all arms have the size of GRPO's. ``difference`` is that of ``auc`` to ``returns`` or
``grpo``, paired by seed, with the 95 % interval of Student's t over seeds. ``closed`` is the share
of the way from ``returns`` (which is what ``sbc`` becomes without a key) to ``sbc`` on true states.

A candidate that is behind ``returns`` after four seeds is not run on the others. Arms ``one
rollout`` play one episode of every task in an iteration, and as many episodes in all.
``candidates.py`` has the candidates. Finished runs are kept in ``--work``, and a run that was
stopped goes on there; ``--curves FILE`` takes the runs of a committed file as finished. With
``--out NAME.jsonl`` the curves go to ``NAME/curve.jsonl``. ``--docs`` writes the committed results
into docs/howto/state.md instead of running anything.
"""

import copy
import itertools
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ascribe import StepTable, recipe
from ascribe.groups.keys import keyed, measure, propose
from ascribe_lab.audit.report import markdown
from ascribe_lab.audit.run import Carrying
from benchmarks.common import ROOT, Figures, fill_page, mean_interval, read_lines
from experiments import learning_loop as loop
from experiments.common import OPTIONS, TARGET, auc, finished, keep, run_units
from experiments.recurrence.candidates import ByTool, CheapProgress, HiddenCritic, PooledClusters

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "howto" / "state.md"

MEMORY = 0.8
Credits = Callable[[StepTable], Any]


@dataclass(frozen=True)
class Arm:
    """How one arm credits steps.

    Attributes:
        build: the recipe for a discount, and the radius of clusters if there are any.
        key: how states are grouped: as ``shown``, by the ``proposed`` key, or by the ``true`` one.
        clusters: whether the radius of clusters of hidden states is searched for.
        alone: whether every task has one episode in an iteration.
        critic: whether a critic with a network of its own gives the values.
        tuned_as: the arm whose discount is taken.
    """

    build: Callable[[float, float], Credits]
    key: str = "shown"
    clusters: bool = False
    alone: bool = False
    critic: bool = False
    tuned_as: str = ""


def remembering(name: str, **how: Any) -> Callable[[float, float], Credits]:
    """A recipe with a memory."""
    return lambda gamma, _: Carrying(recipe(name, gamma=gamma, memory=MEMORY, **how))


def exact(gamma: float, _: float) -> Credits:
    """``sbc`` on texts or keys."""
    return recipe("sbc", states="exact", gamma=gamma)


ARMS = {
    "returns": Arm(lambda gamma, _: recipe("returns", gamma=gamma)),
    "sbc, proposed key": Arm(exact, "proposed"),
    "sbc, true state": Arm(exact, "true", tuned_as="sbc, proposed key"),
    "grpo": Arm(lambda *_: recipe("grpo"), tuned_as="returns"),
    "one rollout: returns, memory": Arm(remembering("returns"), alone=True, tuned_as="returns"),
    "one rollout: sbc, proposed key, memory": Arm(
        remembering("sbc", states="exact"), "proposed", alone=True, tuned_as="sbc, proposed key"
    ),
    "returns, memory": Arm(remembering("returns"), tuned_as="returns"),
    "sbc, proposed key, memory": Arm(
        remembering("sbc", states="exact"), "proposed", tuned_as="sbc, proposed key"
    ),
    "sbc, clusters": Arm(lambda g, radius: recipe("sbc", gamma=g, radius=radius), clusters=True),
    "pooled clusters": Arm(
        lambda g, radius: PooledClusters(gamma=g, radius=radius),
        clusters=True,
        tuned_as="sbc, clusters",
    ),
    "by tool": Arm(lambda gamma, _: ByTool(gamma=gamma), tuned_as="returns"),
    "cheap progress": Arm(lambda gamma, _: CheapProgress(gamma), tuned_as="returns"),
    "hidden critic": Arm(lambda gamma, _: HiddenCritic(gamma)),
    "gae, critic network": Arm(
        lambda gamma, _: recipe("gae", gamma=gamma, bootstrap=False), critic=True
    ),
}
CANDIDATES = (
    *("returns, memory", "sbc, proposed key, memory", "one rollout: sbc, proposed key, memory"),
    *("sbc, clusters", "pooled clusters", "by tool", "cheap progress", "hidden critic"),
    "gae, critic network",
)
"""Arms that are run on the first seeds alone if they are behind there."""
FIRST_LOOK = 4
"""Seeds after which a candidate that is behind is given up."""
BASE, TRUE, PROPOSED = "returns", "sbc, true state", "sbc, proposed key"
GROUPED, ALONE = "grpo", "one rollout: returns, memory"
SHOWN = (BASE, PROPOSED, GROUPED, ALONE)
"""Arms on the page; the others have few seeds."""
GAIN = 0.02
"""A candidate must be ahead of the base by this much in one environment, and behind in none."""


@dataclass(frozen=True)
class Design:
    """What is run. The first rate is that at which the discounts of the base are compared.

    ``more_gammas`` are tried for the base alone, so that its optimum is inside the grid.
    """

    worlds: tuple[str, ...] = tuple(loop.CLOCKED)
    arms: tuple[str, ...] = tuple(ARMS)
    gammas: tuple[float, ...] = (0.8, 0.9, 0.95)
    more_gammas: tuple[float, ...] = (0.6, 1.0)
    rates: tuple[float, ...] = (1e-3, 5e-4, 2e-3)
    alone_rates: tuple[float, ...] = (5e-4, 2.5e-4, 1e-3)
    seeds: tuple[int, ...] = tuple(range(401, 412))
    tuning_seeds: tuple[int, ...] = (451, 452)
    iterations: int = 30
    held_out: int = 256
    tuning_held_out: int = 128
    cloning: int | None = None
    points: int = 5


FULL = Design()
QUICK = Design(
    arms=("returns", "sbc, proposed key", "hidden critic", "gae, critic network"),
    gammas=(0.9,),
    more_gammas=(),
    rates=(1e-3,),
    alone_rates=(5e-4,),
    seeds=(1, 2),
    tuning_seeds=(3,),
    iterations=1,
    held_out=32,
    tuning_held_out=16,
    cloning=4,
    points=1,
)


@dataclass(frozen=True)
class Unit:
    """Runs that share a start: one world and one seed."""

    world: str
    seed: int
    runs: tuple[tuple[str, float, float], ...]
    """Arm, discount and learning rate of each."""


# Which runs.


Lines = Sequence[Mapping[str, Any]]
"""Finished runs."""

Values = defaultdict[tuple[str, str], dict[int, Mapping[str, Any]]]
"""Runs by world and arm, and seed."""


def base_discounts(design: Design, _: Lines) -> list[Unit]:
    """Every discount of the base, at the first rate."""
    gammas = design.gammas + design.more_gammas
    return tuning(design, lambda _: [(BASE, gamma, design.rates[0]) for gamma in gammas])


def base_rates(design: Design, lines: Lines) -> list[Unit]:
    """Every rate of the base, at its best discount."""
    best = means(design, lines)
    return tuning(
        design, lambda world: [(BASE, best[world, BASE][0], rate) for rate in design.rates]
    )


def discounts(design: Design, lines: Lines) -> list[Unit]:
    """Every discount of the arms with a discount of their own, at the base's rate."""
    best = means(design, lines)
    own = [arm for arm in design.arms if arm != BASE and not ARMS[arm].tuned_as]
    return tuning(
        design,
        lambda world: [(a, g, best[world, BASE][1]) for a in own for g in design.gammas],
    )


def alone_rates(design: Design, lines: Lines) -> list[Unit]:
    """Every rate with one rollout, for ``returns``."""
    if ALONE not in design.arms:
        return []
    best = means(design, lines)
    return tuning(
        design, lambda world: [(ALONE, best[world, BASE][0], rate) for rate in design.alone_rates]
    )


def tuning(design: Design, runs: Callable[[str], Sequence[tuple[str, float, float]]]) -> list[Unit]:
    """The runs of every world, on the tuning seeds."""
    places = itertools.product(design.tuning_seeds, design.worlds)
    return [Unit(world, seed, tuple(runs(world))) for seed, world in places]


def comparison(design: Design, lines: Lines) -> list[Unit]:
    """Every arm but the candidates at its best setting, seed by seed."""
    return at_best(design, lines, [a for a in design.arms if a not in CANDIDATES], design.seeds)


def first_look(design: Design, lines: Lines) -> list[Unit]:
    """The candidates on the first seeds."""
    arms = [arm for arm in design.arms if arm in CANDIDATES]
    return at_best(design, lines, arms, design.seeds[:FIRST_LOOK])


def second_look(design: Design, lines: Lines) -> list[Unit]:
    """The candidates on all seeds, but for those that the first ones show behind somewhere."""
    values = at_chosen(design, lines)
    arms = [arm for arm in design.arms if arm in CANDIDATES]
    left = [arm for arm in arms if not any(is_behind(values, w, arm) for w in design.worlds)]
    return at_best(design, lines, left, design.seeds)


def at_best(design: Design, lines: Lines, arms: Sequence[str], seeds: Sequence[int]) -> list[Unit]:
    """These arms at their best settings, seed by seed, so that a part of the runs is whole seeds.

    Where the proposed key gives the true states, the run on true states would be the same.
    """
    best = chosen(design, lines)
    other = {
        (line["world"], line["seed"])
        for line in lines
        if line["arm"] == PROPOSED and (line["purity"], line["found"]) != (1.0, 1.0)
    }
    return [
        Unit(
            world,
            seed,
            tuple((a, *best[world, a]) for a in arms if a != TRUE or (world, seed) in other),
        )
        for seed, world in itertools.product(seeds, design.worlds)
    ]


STAGES = (
    *(base_discounts, base_rates, discounts, alone_rates),
    *(comparison, comparison, first_look, second_look),
)
"""Each needs the runs before it; the second comparison adds runs on true states."""

Best = dict[tuple[str, str], tuple[float, float]]
"""Discount and rate, by world and arm."""


def means(design: Design, lines: Lines) -> Best:
    """Discount and rate with the largest mean AUC over the tuning seeds, of arms that have one."""
    values: dict[Any, list[float]] = defaultdict(list)
    for line in lines:
        if line["seed"] in design.tuning_seeds:
            values[line["world"], line["arm"], line["gamma"], line["rate"]].append(auc(line))
    averages = {setting: float(np.mean(of)) for setting, of in values.items()}
    return {
        (world, arm): (gamma, rate)
        for world, arm, gamma, rate in sorted(averages, key=averages.__getitem__)
    }


def chosen(design: Design, lines: Lines) -> Best:
    """Discount and rate of every arm; none if tuning is not finished."""
    best, found = means(design, lines), Best()
    for world, arm in itertools.product(design.worlds, design.arms):
        like = ARMS[arm].tuned_as or arm
        of_rate = ALONE if ARMS[arm].alone else like
        if (world, like) in best and (world, of_rate) in best:
            found[world, arm] = best[world, like][0], best[world, of_rate][1]
    return found


# Runs.


def run_unit(design: Design, folder: Path, deadline: float, unit: Unit) -> None:
    """Make the runs of a unit that are missing, until the deadline."""
    torch.set_num_threads(1)
    missing = [run for run in unit.runs if not path_of(folder, unit, *run).exists()]
    if not missing or time.time() > deadline:
        return
    start = loop.STARTS[unit.world, "weak"]
    if design.cloning is not None:
        start = replace(start, updates=design.cloning)
    policy = loop.clone(unit.world, start, unit.seed)
    for arm, gamma, rate in missing:
        if time.time() > deadline:
            return
        began = time.process_time()
        run, said = planned(design, unit, arm, gamma, rate, policy)
        lines = list(run.train(copy.deepcopy(policy)))
        line = {"world": unit.world, "arm": arm, "gamma": gamma, "rate": rate, "seed": unit.seed}
        line["held_out"] = [round(each["held_out"], 4) for each in lines if "held_out" in each]
        line["trained"] = round(float(np.mean([each["success"] for each in lines[:-1]])), 4)
        line |= said
        line["cpu_seconds"] = round(time.process_time() - began, 1)
        keep(line, path_of(folder, unit, arm, gamma, rate))


def path_of(folder: Path, unit: Unit, arm: str, gamma: float, rate: float) -> Path:
    """The file of a run."""
    words = f"{unit.world} {arm}".replace(",", "").replace(":", "").replace(" ", "_")
    return folder / f"{words}-{gamma:g}-{rate:g}-{unit.seed}.json"


def planned(
    design: Design, unit: Unit, arm: str, gamma: float, rate: float, policy: Any
) -> tuple[loop.Run, dict[str, Any]]:
    """A run of the design, from this policy; and what is said about its key."""
    how, world, said = ARMS[arm], loop.CLOCKED[unit.world], dict[str, Any]()
    key: Callable[[str], str] | None = loop.true_state if how.key == "true" else None
    if how.key == "proposed":
        steps, _ = loop.play_policy(policy, world, world.tasks, loop.SIZE, f"key {unit.seed}")
        table = loop.step_table(steps)
        key = propose(table)
        quality = measure(table, key, keyed(table.state, loop.true_state))
        said = {"alone": quality.alone, "purity": quality.purity, "found": quality.found}
        said = {name: round(value, 4) for name, value in said.items()}
    radius = 0.1
    if how.clusters:
        radius = loop.search_radius(policy, policy, unit.world, unit.seed, TARGET)
    groups, size, iterations = loop.GROUPS, loop.SIZE, design.iterations
    if how.alone:
        groups, size = len(world.tasks), 1
        iterations = iterations * loop.GROUPS * loop.SIZE // groups
    tuning = unit.seed in design.tuning_seeds
    run = loop.Run(
        unit.world,
        how.build(gamma, radius),
        rate,
        unit.seed,
        iterations,
        iterations // design.points,
        design.tuning_held_out if tuning else design.held_out,
        key=key,
        groups=groups,
        size=size,
        critic=loop.Critic(policy, gamma) if how.critic else None,
    )
    return run, said


# Figures.


def report(figures: Figures, design: Design, lines: Sequence[dict[str, Any]]) -> None:
    """All figures of finished runs."""
    figures.emit("runs", "finished", len(lines), "runs", "higher")
    seconds = float(np.median([line["cpu_seconds"] for line in lines]))
    figures.emit("runs", "cpu_seconds", seconds, "s", "lower")
    best, values = chosen(design, lines), at_chosen(design, lines)
    for world, arm in itertools.product(design.worlds, design.arms):
        of_arm, place = values[world, arm], f"{world}/{arm}"
        if (world, arm) in best:
            figures.emit(place, "gamma", best[world, arm][0], "1", "higher")
            figures.emit(place, "learning_rate", best[world, arm][1], "1", "lower")
        if len(of_arm) < 2:  # one seed has no interval
            continue
        found = np.array([auc(line) for line in of_arm.values()])
        figures.emit_interval(place, "auc", mean_interval(found), "share", "higher")
        ends = np.array([line["held_out"][-1] for line in of_arm.values()])
        figures.emit_interval(place, "end", mean_interval(ends), "share", "higher")
        for metric in ("alone", "purity", "found"):
            if known := [line[metric] for line in of_arm.values() if metric in line]:
                figures.emit(place, metric, float(np.mean(known)), "share", "higher")
        for other in (BASE, GROUPED):
            paired(figures, values, world, arm, other)
    for world in design.worlds:
        rows = [by_seed(values[world, arm]) for arm in (BASE, PROPOSED, TRUE)]
        seeds = sorted(set.intersection(*map(set, rows)))
        if len(seeds) > 1:
            base, key, true = (np.mean([row[seed] for seed in seeds]) for row in rows)
            closed = float((key - base) / (true - base)) if true != base else 1.0
            figures.emit(f"{world}/{PROPOSED}", "closed", closed, "share", "higher", 0.8)


def at_chosen(design: Design, lines: Lines) -> Values:
    """The runs at the best settings."""
    best, values = chosen(design, lines), Values(dict)
    for line in lines:
        world, arm, seed = line["world"], line["arm"], line["seed"]
        if seed in design.seeds and best.get((world, arm)) == (line["gamma"], line["rate"]):
            values[world, arm][seed] = line
    for world in design.worlds:  # the same run, see ``at_best``
        values[world, TRUE] = values[world, PROPOSED] | values[world, TRUE]
    return values


def is_behind(values: Values, world: str, arm: str) -> bool:
    """Whether an arm learns less than the base in a world: its interval is below 0."""
    apart = differences(values, world, arm, BASE)
    return apart.size > 1 and mean_interval(apart, -1)[2] < 0


def by_seed(lines: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    """AUC of each seed."""
    return {seed: auc(line) for seed, line in lines.items()}


def paired(figures: Figures, values: Values, world: str, arm: str, other: str) -> None:
    """The difference of two arms over the seeds that both have."""
    apart = differences(values, world, arm, other)
    if arm == other or apart.size < 2:
        return
    case = f"{world}/{arm} minus {other}"
    figures.emit_interval(case, "difference", mean_interval(apart, -1), "share", "higher")
    figures.emit(case, "ahead", float((apart > 0).sum()), "seeds", "higher")
    figures.emit(case, "seeds", float(apart.size), "seeds", "higher")


def differences(values: Values, world: str, arm: str, other: str) -> Any:
    """AUC of an arm less that of another, for each seed that both have."""
    first, second = by_seed(values[world, arm]), by_seed(values[world, other])
    return np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


# The page.


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The parts of the page that are made from results."""
    found = {(line["case"], line["metric"]): line["value"] for line in lines}
    worlds = [w for w in FULL.worlds if (f"{w}/{BASE}", "auc") in found]
    head = [f"{w}: success, and less `returns`" for w in worlds]
    rows = []
    for arm in SHOWN:
        cells = [cell(found, f"{world}/{arm}", f"{world}/{arm} minus {BASE}") for world in worlds]
        rows.append([arm, *cells])
    return {"recurrence": markdown(["arm", *head], rows)}


def cell(found: Mapping[tuple[str, str], float], place: str, pair: str) -> str:
    """Success over training, discount, and the difference to the base with its interval."""
    if (place, "auc") not in found:
        return "–"
    text = f"{found[place, 'auc']:.3f}"
    if "grpo" not in place:
        text += f" (γ {found[place, 'gamma']:g})"
    if (pair, "difference") in found:
        low, value, high = (found[pair, f"difference{end}"] for end in ("_low", "", "_high"))
        seeds = int(found[pair, "seeds"])
        text += f", {value:+.3f} ({low:+.3f} to {high:+.3f})"
        text += f", {seeds} seeds" if seeds < len(FULL.seeds) else ""
    return text


def main() -> None:
    """Run what is missing, then report; or fill the page from the committed results."""
    if "--docs" in sys.argv:
        parts = tables(read_lines(RESULTS / "learning_recurrence.jsonl")[1:])
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
        return
    with (
        Figures("learning_recurrence", **OPTIONS) as figures,
        tempfile.TemporaryDirectory() as spare,
    ):
        options, design = figures.options, QUICK if figures.quick else FULL
        options.deadline = time.time() + 60 * options.minutes
        folder = options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        for line in read_lines(options.curves) if options.curves else ():
            unit = Unit(line["world"], line["seed"], ())
            keep(line, path_of(folder, unit, line["arm"], line["gamma"], line["rate"]))
        for stage in STAGES:
            units = stage(design, finished(folder))
            run_units(partial(run_unit, design, folder, options.deadline), units, options.processes)
            if not all(path_of(folder, unit, *run).exists() for unit in units for run in unit.runs):
                break
        lines = finished(folder)
        report(figures, design, lines)
        figures.write_curve(lines)


if __name__ == "__main__":
    main()
