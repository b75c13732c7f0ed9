"""Which credit learns faster on tasks that were not trained on? Small policies, paired seeds.

The design, the contrasts and what is said for each outcome were committed before the runs:
``protocol.md``. A run trains one policy with one arm. ``auc`` is the mean of its success over
training on tasks of their own, by trapezoids; ``end`` that of the last evaluation,
``trained`` the mean success of the episodes that were trained on. Runs of one seed share start,
tasks and random numbers. A case is ``environment/arm``. Intervals are over seeds, at 95 %, by
Student's t. ``difference`` is that of ``auc`` of two arms, paired by seed, with the ``p`` value of
an exact sign-flip test; ``holm`` is p corrected within the environment, for all contrasts but the
primary one. ``detectable`` is the difference that is found with a power of .9, given the standard
deviation of the differences. ``share`` is how far an arm is on the way from ``grpo`` to ``oracle``,
with a bootstrap interval over seeds; ``gap`` is the length of that way. ``explained`` is the share
of the variance of returns that the critic explains, before it learns from them: the median over
seeds, since the share is of any size in a batch whose returns are nearly equal.

``at_the_end`` is the difference in success of the last evaluation, ``delayed`` that of ``auc`` had
the first arm lost the iterations that its key takes, ``gain`` that of ``auc`` to ``grpo``;
``ended_below_start`` counts runs. Cases with a discount and a rate compare with runs that were
added when the results were known.

Finished runs are kept in ``--work``, and a run that was stopped goes on there. ``--minutes`` starts
no new run after that time. Nothing is reported before all runs are finished, unless with
``--final`` on the seeds whose runs are. With ``--out NAME.jsonl``, the curves go to
``NAME/curve.jsonl``. ``--curves FILE`` takes the runs of such a file as finished; with
``--minutes 0``, the figures are computed from it alone.
"""

import copy
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save

from ascribe import StepTable, recipe
from ascribe.estimators.gae import GAE
from ascribe.groups.fingerprints import normalised
from ascribe.groups.keys import keyed, measure, propose
from ascribe.steps.atomic import replacing
from ascribe.steps.check import arrange
from ascribe.steps.returns import reward_to_go
from ascribe_lab.audit.run import Carrying
from benchmarks.common import STUDENT, Figures, bootstrap, mean_interval, read_lines
from experiments import learning_loop as loop
from experiments.common import OPTIONS, TARGET, auc, finished, holm, keep, run_units, sign_flip

# The arms.

MEMORY = 0.2
"""The memory of ``sbc`` that ``experiments/memory`` found best where tasks come rarely."""
FOLDS, PENALTY = 4, 0.1
Credits = Callable[[StepTable], Any]


class RidgeValue:
    """GAE on values that are predicted from the task, hidden states and turns.

    The value is the task's mean return and what a ridge regression adds to it. Both are fitted
    again in every batch; the values of a trajectory come from the other folds of trajectories.
    """

    def __init__(self, gamma: float) -> None:
        self.recipe = GAE(gamma=gamma, bootstrap=False)

    def __call__(self, table: StepTable) -> Any:
        """GAE with the predicted values."""
        steps = arrange(table)
        returns = np.zeros(len(table))
        returns[steps.rows] = reward_to_go(steps.reward, steps.trajectory, self.recipe.gamma)
        assert table.fingerprint is not None
        unit = normalised(np.asarray(table.fingerprint, np.float64))
        turn = table.step[:, None] / (table.step.max() + 1)
        x = np.hstack([unit * unit.shape[1] ** 0.5, turn, turn**2])
        fold, value = table.trajectory.codes % FOLDS, np.zeros(len(table))
        for number in range(FOLDS):
            fitted = fold != number
            task = task_means(table.group.codes, returns, fitted)
            rows, rest = x[fitted] - x[fitted].mean(0), (returns - task)[fitted]
            square = rows.T @ rows + PENALTY * len(rows) * np.eye(x.shape[1])
            weights = np.linalg.solve(square, rows.T @ rest)
            value[~fitted] = (task + (x - x[fitted].mean(0)) @ weights)[~fitted]
        return self.recipe(replace(table, value=value))


def task_means(task: Any, values: Any, among: Any) -> Any:
    """For every row, the mean of its task's rows among some; that of all tasks if it has none."""
    counts = np.bincount(task[among], minlength=task.max() + 1)
    sums = np.bincount(task[among], values[among], minlength=counts.size)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values[among].mean())
    return means[task]


class Centred:
    """GAE less its mean over the batch, as PPO in verl and elsewhere has it."""

    def __init__(self, gamma: float) -> None:
        self.recipe = GAE(gamma=gamma, bootstrap=False)

    def __call__(self, table: StepTable) -> Any:
        """GAE with the critic's values, centred."""
        credit = self.recipe(table)
        return replace(credit, advantage=credit.advantage - credit.advantage.mean())


@dataclass(frozen=True)
class Arm:
    """How one arm credits steps.

    Attributes:
        build: the recipe for a discount, and the radius of clusters if there are any.
        discounted: whether it has a discount, which is tuned.
        exact: whether it groups steps by their exact states, or the key of them.
        clusters: whether the radius of clusters of hidden states is searched for.
        critic: what gives the values of states, made from the policy, its world and the discount.
    """

    build: Callable[[float, float], Credits]
    discounted: bool = True
    exact: bool = False
    clusters: bool = False
    critic: Callable[[Any, Any, float], Any] | None = None


ARMS = {
    "grpo": Arm(lambda *_: recipe("grpo"), discounted=False),
    "returns": Arm(lambda gamma, _: recipe("returns", gamma=gamma)),
    "gigpo": Arm(lambda gamma, _: recipe("gigpo", gamma=gamma), exact=True),
    "bipace_q": Arm(
        lambda gamma, radius: recipe("bipace_q", gamma=gamma, radius=radius), clusters=True
    ),
    "sbc": Arm(lambda gamma, _: recipe("sbc", states="exact", gamma=gamma), exact=True),
    "sbc, memory": Arm(
        lambda gamma, _: Carrying(recipe("sbc", states="exact", gamma=gamma, memory=MEMORY)),
        exact=True,
    ),
    "value": Arm(lambda gamma, _: RidgeValue(gamma)),
    "ppo": Arm(
        lambda gamma, _: Centred(gamma),
        critic=lambda policy, _, gamma: loop.Critic(policy, gamma),
    ),
    "oracle": Arm(
        lambda *_: recipe("gae", gamma=1.0, lam=0.0, bootstrap=False),
        discounted=False,
        critic=lambda policy, world, _: loop.TrueValues(policy, world),
    ),
}
GROUPED, ORACLE = "grpo", "oracle"
PRIMARY = ("sbc", "returns")
CONTRASTS = (
    PRIMARY,
    *(("returns", "grpo"), ("gigpo", "grpo"), ("sbc", "gigpo"), ("bipace_q", "gigpo")),
    *(("value", "returns"), ("ppo", "returns"), ("sbc", "value"), ("sbc", "ppo")),
    *(("sbc, memory", "sbc"), ("oracle", "sbc")),
)

# The design.


@dataclass(frozen=True)
class Place:
    """How an environment is run.

    Attributes:
        start: how the policy at the start is made: demonstrations that all seeds share, and
            ``own`` updates on a seed's own.
        iterations: of a run.
        updates: of an iteration.
        keyed: whether steps are grouped by the key that the library proposes at the start.
        oracle: whether true values are known.
    """

    start: loop.Start
    iterations: int = 30
    updates: int = 2
    keyed: bool = False
    oracle: bool = True


PLACES = {
    "sokoban, unseen rooms": Place(loop.Start(0.2, 600)),
    "webshop": Place(loop.Start(0.15, 800)),
    "sokoban, clock": Place(loop.Start(0.2, 600), keyed=True),
    "sokoban, two boxes": Place(loop.Start(0.2, 800), iterations=20, updates=6),
    "textcraft": Place(loop.Start(0.7, 100), oracle=False),
}
OWN, SHARED_SEED = 40, 900
KEY_ITERATIONS = 4
"""As many iterations have the episodes in which a key is found."""


@dataclass(frozen=True)
class Design:
    """What is run. Rates rise by a factor of 2, so that an optimum at the edge can be extended."""

    worlds: tuple[str, ...] = tuple(PLACES)
    arms: tuple[str, ...] = tuple(ARMS)
    gammas: tuple[float, ...] = (0.9, 0.95, 1.0)
    rates: tuple[float, ...] = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
    first: int = 10
    """Iterations of the first round of tuning."""
    kept: int = 4
    """Settings of an arm that enter the second round."""
    tuning_seeds: tuple[int, ...] = (351, 352)
    seeds: tuple[int, ...] = tuple(range(301, 325))
    points: int = 5
    held_out: int = 512
    iterations: int | None = None
    cloning: int | None = None
    after: tuple[tuple[str, str, float, float], ...] = (
        ("webshop", "returns", 0.9, 1e-3),
        ("webshop", "returns", 1.0, 1e-3),
        ("sokoban, unseen rooms", "oracle", 1.0, 5e-4),
        ("sokoban, unseen rooms", "oracle", 1.0, 1e-3),
    )
    """Environment, arm, discount and rate of runs that were added when the results were known."""

    def length(self, world: str) -> int:
        """Iterations of a run."""
        return self.iterations or PLACES[world].iterations

    def arms_in(self, world: str) -> list[str]:
        """The arms of an environment."""
        return [arm for arm in self.arms if arm != ORACLE or PLACES[world].oracle]


FULL = Design()
QUICK = Design(
    worlds=("sokoban, unseen rooms", "sokoban, clock"),
    arms=("grpo", "returns", "sbc", "oracle"),
    gammas=(0.95,),
    rates=(1e-3,),
    first=1,
    kept=1,
    tuning_seeds=(3,),
    seeds=(1, 2),
    points=1,
    held_out=64,
    iterations=1,
    cloning=4,
    after=(),
)

Setting = tuple[float, float]
"""Discount and learning rate."""


@dataclass(frozen=True)
class Unit:
    """Runs that share a start: one environment and one seed."""

    world: str
    seed: int
    runs: tuple[tuple[str, float, float, int], ...]
    """Arm, discount, learning rate and iterations of each."""


Lines = Sequence[Mapping[str, Any]]
"""Finished runs."""

# Which runs.


def first_round(design: Design, _: Lines) -> list[Unit]:
    """Every setting of every arm, for a few iterations of one seed."""
    units = []
    for world in design.worlds:
        for arm in design.arms_in(world):
            gammas = design.gammas if ARMS[arm].discounted else (1.0,)
            runs = [(arm, g, rate, design.first) for g in gammas for rate in design.rates]
            units.append(Unit(world, design.tuning_seeds[0], tuple(runs)))
    return units


EXTENSIONS = 2
"""How often a setting at the edge is passed, at most."""


def second_round(design: Design, lines: Lines, extensions: int = 0) -> list[Unit]:
    """Whole runs of the best settings of every arm, on all tuning seeds; and of those beyond."""
    found = settings(design, lines, extensions)
    return [
        Unit(world, seed, tuple((arm, g, rate, design.length(world)) for g, rate in found[place]))
        for place in found
        for world, arm in [place]
        for seed in design.tuning_seeds
    ]


def settings(design: Design, lines: Lines, extensions: int) -> dict[tuple[str, str], list[Setting]]:
    """The settings of each arm that are run as a whole, after so many extensions.

    They follow from the runs that came before them alone, so a restart finds the same ones.
    """
    first, whole = tuned(design, lines, design.first), tuned(design, lines)
    settings = {
        place: sorted(found, key=found.__getitem__, reverse=True)[: design.kept]
        for place, found in first.items()
    }
    for _ in range(extensions):
        for place, among in settings.items():
            found = {setting: whole[place][setting] for setting in among}
            among.extend(beyond(design, place[1], found))
    return settings


def beyond(design: Design, arm: str, found: Mapping[Setting, float]) -> list[Setting]:
    """Where the best setting lies at the edge of what was tried: the ones beyond."""
    if len(design.rates) == 1:
        return []
    gamma, rate = max(found, key=found.__getitem__)
    tried = {*found, *itertools.product(design.gammas, design.rates)}
    rates = {r for g, r in tried if g == gamma}
    more = [(gamma, r) for r in (rate / 2, rate * 2) if not min(rates) <= r <= max(rates)]
    if ARMS[arm].discounted and gamma == min(g for g, _ in tried):
        more.append((round(1 - 2 * (1 - gamma), 4), rate))
    return more


def test(design: Design, lines: Lines) -> list[Unit]:
    """Every arm at its best setting, seed by seed, so that a part of the runs is whole seeds."""
    best = chosen(design, lines)
    return [
        Unit(
            world,
            seed,
            tuple((a, *best[world, a], design.length(world)) for a in design.arms_in(world)),
        )
        for seed, world in itertools.product(design.seeds, design.worlds)
    ]


def after(design: Design, _: Lines) -> list[Unit]:
    """The runs that were added."""
    runs: dict[str, list[Any]] = defaultdict(list)
    for world, *run in design.after:
        runs[world].append((*run, design.length(world)))
    return [Unit(world, seed, tuple(runs[world])) for seed in design.seeds for world in runs]


STAGES = (
    first_round,
    *(partial(second_round, extensions=number) for number in range(EXTENSIONS + 1)),
    test,
    after,
)
"""Each needs the runs before it."""

Scores = dict[tuple[str, str], dict[Setting, float]]
"""Mean success of the episodes that were trained on, by environment and arm, and setting."""


def tuned(design: Design, lines: Lines, iterations: int | None = None) -> Scores:
    """The mean of the runs of so many iterations; or of whole runs, over all tuning seeds."""
    values: dict[Any, list[float]] = defaultdict(list)
    seeds = len(design.tuning_seeds) if iterations is None else 1
    for line in lines:
        length = iterations or design.length(line["world"])
        if line["seed"] in design.tuning_seeds and line["iterations"] == length:
            setting = line["gamma"], line["rate"]
            values[(line["world"], line["arm"]), setting].append(line["trained"])
    found: Scores = defaultdict(dict)
    for (place, setting), of_seeds in values.items():
        if len(of_seeds) >= seeds:
            found[place][setting] = float(np.mean(of_seeds))
    return found


def chosen(design: Design, lines: Lines) -> dict[tuple[str, str], Setting]:
    """The best setting of every arm."""
    scores = tuned(design, lines)
    return {
        place: max(among, key=scores[place].__getitem__)
        for place, among in settings(design, lines, EXTENSIONS).items()
    }


# Runs.


def run_unit(design: Design, folder: Path, deadline: float, unit: Unit) -> None:
    """Make the runs of a unit that are missing, until the deadline."""
    torch.set_num_threads(1)
    missing = [run for run in unit.runs if not path_of(folder, unit, *run).exists()]
    if not missing or time.time() > deadline:
        return
    policy = start_of(design, folder, unit.world, unit.seed)
    for arm, gamma, rate, iterations in missing:
        if time.time() > deadline:
            return
        began = time.process_time()
        line: dict[str, Any] = {"world": unit.world, "arm": arm, "gamma": gamma, "rate": rate}
        line |= {"iterations": iterations, "seed": unit.seed}
        learner = copy.deepcopy(policy)
        run, said = planned(design, unit, arm, gamma, rate, iterations, learner)
        lines = list(run.train(learner))
        line["held_out"] = [round(each["held_out"], 4) for each in lines if "held_out" in each]
        line["trained"] = round(float(np.mean([each["success"] for each in lines[:-1]])), 4)
        line["rms"] = round(float(np.mean([each["rms"] for each in lines[:-1]])), 4)
        if run.critic is not None and run.critic.explained:
            line["explained"] = round(float(np.mean(run.critic.explained)), 4)
        line |= said | {"cpu_seconds": round(time.process_time() - began, 1)}
        keep(line, path_of(folder, unit, arm, gamma, rate, iterations))


def start_of(design: Design, folder: Path, world: str, seed: int) -> Any:
    """The policy at the start of a run."""
    own = replace(PLACES[world].start, updates=design.cloning or OWN)
    return loop.clone(world, own, seed, shared_start(design, folder, world))


@cache
def shared_start(design: Design, folder: Path, world: str) -> Any:
    """The policy that the starts of all seeds begin with; kept in the folder."""
    how, path = PLACES[world].start, folder / f"{words(world)}.safetensors"
    if path.exists():
        policy = loop.new_policy(loop.ALL_WORLDS[world], SHARED_SEED)
        load_model(policy, path)
        return policy
    policy = loop.clone(world, replace(how, updates=design.cloning or how.updates), SHARED_SEED)
    with replacing(path) as file:
        file.write(save(policy.state_dict()))
    return policy


def words(name: str) -> str:
    """A name in that of a file."""
    return name.replace(",", "").replace(" ", "_")


def path_of(folder: Path, unit: Unit, arm: str, gamma: float, rate: float, iterations: int) -> Path:
    """The file of a run."""
    return (
        folder / f"{words(f'{unit.world} {arm}')}-{gamma:g}-{rate:g}-{iterations}-{unit.seed}.json"
    )


def planned(
    design: Design, unit: Unit, arm: str, gamma: float, rate: float, iterations: int, policy: Any
) -> tuple[loop.Run, dict[str, Any]]:
    """A run of the design with this policy; and what is said about its key or clusters."""
    how, world, said = ARMS[arm], loop.ALL_WORLDS[unit.world], dict[str, Any]()
    key: Callable[[str], str] | None = None
    if how.exact and PLACES[unit.world].keyed:
        tasks = world.tasks[: KEY_ITERATIONS * loop.GROUPS]
        table = loop.step_table(
            loop.play_policy(policy, world, tasks, loop.SIZE, f"key {unit.seed}")[0]
        )
        key = propose(table)
        quality = measure(table, key, keyed(table.state, loop.true_state))
        said = {"purity": round(quality.purity, 4), "found": round(quality.found, 4)}
    radius = 0.1
    if how.clusters:
        radius = loop.search_radius(policy, policy, unit.world, unit.seed, TARGET)
        said["radius"] = round(radius, 6)
    run = loop.Run(
        unit.world,
        how.build(gamma, radius),
        rate,
        unit.seed,
        iterations,
        max(iterations // design.points, 1),
        0 if unit.seed in design.tuning_seeds else design.held_out,
        key=key,
        critic=how.critic(policy, world, gamma) if how.critic else None,
        updates=PLACES[unit.world].updates,
    )
    return run, said


# Figures.

Values = defaultdict[tuple[str, str], dict[int, Mapping[str, Any]]]
"""Runs by environment and arm, and seed."""


def report(figures: Figures, design: Design, lines: Lines) -> None:
    """All figures of seeds that are finished in their environment."""
    figures.emit("runs", "finished", len(lines), "runs", "higher")
    if not lines:
        return
    seconds = sum(line["cpu_seconds"] for line in lines)
    figures.emit("runs", "cpu_hours", seconds / 3600, "h", "lower")
    best, scores = chosen(design, lines), tuned(design, lines)
    edge = sum(
        bool(beyond(design, place[1], scores[place] | {setting: math.inf}))
        for place, setting in best.items()
    )
    figures.emit("tuning", "settings", len(best), "settings", "higher")
    figures.emit("tuning", "at_edge", edge, "settings", "lower")
    for (world, arm), (gamma, rate) in sorted(best.items()):
        if ARMS[arm].discounted:
            figures.emit(f"{world}/{arm}", "gamma", gamma, "1", "higher")
        figures.emit(f"{world}/{arm}", "learning_rate", rate, "1", "lower")
    values = of_tests(design, lines)
    for world in design.worlds:
        if len(values[world, GROUPED]) < 2:
            continue
        for arm in design.arms_in(world):
            of_arm, place = values[world, arm], f"{world}/{arm}"
            for metric, of in METRICS.items():
                found = mean_interval(aucs(values, world, arm, of))
                figures.emit_interval(place, metric, found, "share", "higher")
            spent = float(np.median([line["cpu_seconds"] for line in of_arm.values()]))
            figures.emit(place, "cpu_seconds", spent, "s", "lower")
            if arm != GROUPED:
                gain = mean_interval(aucs(values, world, arm) - aucs(values, world, GROUPED), -1)
                figures.emit_interval(place, "gain", gain, "share", "higher")
            worse = sum(line["held_out"][-1] < line["held_out"][0] for line in of_arm.values())
            figures.emit(place, "ended_below_start", worse, "seeds", "lower")
            figures.emit(place, "seeds", len(of_arm), "seeds", "higher")
            if explained := [line["explained"] for line in of_arm.values() if "explained" in line]:
                figures.emit(place, "explained", float(np.median(explained)), "share", "higher")
        contrasts(figures, design, values, world)
        shares(figures, design, values, world)
    added(figures, design, lines, values)


METRICS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "auc": auc,
    "end": lambda line: line["held_out"][-1],
    "trained": lambda line: line["trained"],
}


def of_tests(design: Design, lines: Lines) -> Values:
    """The runs of test seeds whose arms are all finished in the environment."""
    best, values = chosen(design, lines), Values(dict)
    for line in lines:
        place = line["world"], line["arm"]
        at_best = best.get(place) == (line["gamma"], line["rate"])
        if line["seed"] in design.seeds and at_best:
            values[place][line["seed"]] = line
    for world in design.worlds:
        arms = design.arms_in(world)
        complete = set.intersection(*(set(values[world, arm]) for arm in arms))
        for arm in arms:
            values[world, arm] = {seed: values[world, arm][seed] for seed in sorted(complete)}
    return values


def aucs(
    values: Values, world: str, arm: str, of: Callable[[Mapping[str, Any]], float] = auc
) -> Any:
    """AUC of an arm, or another measure, by seed."""
    return np.array([of(line) for line in values[world, arm].values()])


def contrasts(figures: Figures, design: Design, values: Values, world: str) -> None:
    """The named contrasts of an environment; Holm's correction is for all but the primary one."""
    arms, apart = design.arms_in(world), {}
    for first, second in CONTRASTS:
        if first in arms and second in arms:
            case = f"{world}/{first} minus {second}"
            apart[case] = aucs(values, world, first) - aucs(values, world, second)
    p = {case: sign_flip(each) for case, each in apart.items()}
    primary = f"{world}/{PRIMARY[0]} minus {PRIMARY[1]}"
    corrected = holm({case: value for case, value in p.items() if case != primary})
    for case, each in apart.items():
        figures.emit_interval(case, "difference", mean_interval(each, -1), "share", "higher")
        figures.emit(case, "ahead", float((each > 0).sum()), "seeds", "higher")
        figures.emit(case, "p", p[case], "1", "lower")
        if case in corrected:
            figures.emit(case, "holm", corrected[case], "1", "lower")
        spread = float(each.std(ddof=1))
        figures.emit(case, "paired_sd", spread, "share", "lower")
        power = (STUDENT[each.size] + 1.2816) * spread / each.size**0.5
        figures.emit(case, "detectable", power, "share", "lower")

    ends = (aucs(values, world, arm, METRICS["end"]) for arm in PRIMARY)
    found = mean_interval(np.subtract(*ends), -1)
    figures.emit_interval(primary, "at_the_end", found, "share", "higher")
    if PLACES[world].keyed:
        late = partial(delayed, design.length(world))
        apart = aucs(values, world, PRIMARY[0], late) - aucs(values, world, PRIMARY[1])
        figures.emit_interval(primary, "delayed", mean_interval(apart, -1), "share", "higher")


def delayed(iterations: int, line: Mapping[str, Any]) -> float:
    """AUC, had the run begun with the iterations that the key takes, and learned nothing there."""
    times = np.linspace(0, iterations, len(line["held_out"]))
    return auc({"held_out": np.interp(times - KEY_ITERATIONS, times, line["held_out"])})


def added(figures: Figures, design: Design, lines: Lines, values: Values) -> None:
    """Differences to the runs that were added when the results were known."""
    for world, arm, gamma, rate in design.after:
        found = {
            line["seed"]: auc(line)
            for line in lines
            if line["seed"] in design.seeds
            and (line["world"], line["arm"], line["gamma"], line["rate"])
            == (world, arm, gamma, rate)
        }
        ours = values[world, PRIMARY[0]]
        apart = np.array([auc(ours[seed]) - found[seed] for seed in sorted({*ours} & {*found})])
        if len(apart) > 1:
            case = f"{world}/{PRIMARY[0]} minus {arm}, {gamma:g}, {rate:g}"
            figures.emit_interval(case, "difference", mean_interval(apart, -1), "share", "higher")


def shares(figures: Figures, design: Design, values: Values, world: str) -> None:
    """How far each arm is on the way from ``grpo`` to the oracle."""
    if ORACLE not in design.arms_in(world):
        return
    base, best = aucs(values, world, GROUPED), aucs(values, world, ORACLE)
    gap = mean_interval(best - base, -1)
    figures.emit_interval(f"{world}/{ORACLE} minus {GROUPED}", "gap", gap, "share", "higher")
    if gap[1] <= 0:  # there is no way to be on
        return
    for arm in design.arms_in(world):
        if arm not in (GROUPED, ORACLE):
            rows = np.stack([aucs(values, world, arm) - base, best - base], 1)
            share = bootstrap(rows, ratio)
            figures.emit_interval(f"{world}/{arm}", "share", share, "share", "higher")


def ratio(values: Any, axis: int) -> Any:
    """The ratio of the means of two columns, of rows that stand one after another."""
    return values[..., ::2].mean(axis=axis) / values[..., 1::2].mean(axis=axis)


OWN_OPTION: Any = {
    "final": {"action": "store_true", "help": "report on finished seeds, though runs are missing"}
}


def main() -> None:
    """Run what is missing, then report."""
    with Figures("sceptic", **OPTIONS, **OWN_OPTION) as figures, TemporaryDirectory() as spare:
        options, design = figures.options, QUICK if figures.quick else FULL
        deadline = time.time() + 60 * options.minutes
        folder = options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        for line in read_lines(options.curves) if options.curves else ():
            run = (line["arm"], line["gamma"], line["rate"], line["iterations"])
            keep(line, path_of(folder, Unit(line["world"], line["seed"], ()), *run))
        for stage in STAGES:
            units = stage(design, finished(folder))
            run_units(partial(run_unit, design, folder, deadline), units, options.processes)
            paths = [path_of(folder, unit, *run) for unit in units for run in unit.runs]
            done = all(path.exists() for path in paths)
            if not done:
                break
        lines = finished(folder)
        figures.write_curve(lines)
        if done or options.final:
            report(figures, design, lines)
        else:  # results are looked at once
            figures.emit("runs", "finished", len(lines), "runs", "higher")


if __name__ == "__main__":
    main()
