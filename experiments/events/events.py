"""Does credit by events learn faster where nothing recurs? Small policies, paired seeds.

``protocol.md`` is the design, committed before the runs. A run trains one policy with one arm,
until its budget of environment steps is used up. ``auc`` is the mean of its success in evaluations
over environment steps, by trapezoids; ``end`` that of the last one, ``trained`` the mean success of
the episodes that were trained on. Runs of a seed share start, tasks and random numbers. A case is
``environment/arm``; intervals are over seeds, at 95 %, by Student's t. ``difference`` is that of
``auc`` from tuned ``returns``, paired by seed; ``p`` is of an exact sign-flip test, ``holm`` is
corrected over environments for ``events``, and within the environment for other arms. ``alone`` is
the share of steps alone in their state among those of the task in the batch, ``alone_text`` by the
prompt.

A stopped run goes on in the folder of ``--work``. ``--curves`` writes all runs to a file; with that
file and ``--minutes 0``, the figures are computed from it alone.
"""

import copy
import hashlib
import json
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
import torch
from safetensors.torch import load_model, save

from ascribe import StepTable, recipe
from ascribe.groups.events import Usual, read_calls
from ascribe.steps.atomic import replacing
from ascribe.steps.check import arrange
from ascribe_lab.audit.run import Carrying
from benchmarks.common import ROOT, Figures, mean_interval, read_lines
from experiments import learning_loop as loop
from experiments.common import OPTIONS, auc, finished, holm, keep, run_units, sign_flip
from experiments.events.worlds import WORLDS
from experiments.sceptic.sceptic import Centred

PROTOCOL = Path(__file__).with_name("protocol.md")

# The protocol.


def protocol() -> str:
    """The commit that added the protocol; raises if its text is another one now."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
        ).stdout

    name = PROTOCOL.relative_to(ROOT)
    commits = git("log", "--diff-filter=A", "--format=%H", "--", str(name)).split()
    if not commits:
        raise SystemExit(f"{name} is not committed: it comes before any run; draft.md is its draft")
    commit = commits[-1]
    if fixed(git("show", f"{commit}:{name}")) != fixed(PROTOCOL.read_text()):
        raise SystemExit(f"{name} is not the protocol of {commit[:10]}: date changes below it")
    return commit


def fixed(text: str) -> str:
    """A digest of what may not change."""
    return hashlib.sha256(text.partition("\n## Changes")[0].encode()).hexdigest()


# The arms.


class LastCall:
    """The last call of a lost session has its blame; steps of a won one share what it earned."""

    def __call__(self, table: StepTable) -> Any:
        """GRPO's advantages, of lost sessions on their last steps alone."""
        credit, steps = recipe("grpo")(table), arrange(table)
        last = np.zeros(len(table), dtype=bool)
        last[steps.rows] = np.append(steps.trajectory[1:] != steps.trajectory[:-1], True)
        blamed = np.asarray(credit.advantage) < 0
        return replace(credit, advantage=np.where(blamed & ~last, 0.0, credit.advantage))


class Consensus:
    """How few other attempts made a call, centred in the session, and its group-relative return.

    In standard deviations over steps with calls, the term of consensus has size ``weight``.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, table: StepTable) -> Any:
        """GRPO's advantages and the share of other attempts that made the call."""
        credit, steps, calls = recipe("grpo")(table), arrange(table), read_calls(table)
        usual = Usual.without_outcomes(calls, steps.group_of_trajectory)
        share = np.full(steps.step.size, np.nan)
        share[calls.place] = np.where(calls.new, usual.share, np.nan)
        known = ~np.isnan(share)
        spread = share[known].std() if known.any() else 0.0
        term = np.where(known, share - (share[known].mean() if known.any() else 0.0), 0.0)
        size = np.bincount(steps.trajectory)
        term -= (np.bincount(steps.trajectory, term) / size)[steps.trajectory]
        advantage = np.array(credit.advantage)
        advantage[steps.rows] += self.weight * term / max(spread, 1e-9)
        return replace(credit, advantage=advantage)


class Branched:
    """Q - V of the policy as it is, by continuations from each state that was visited.

    In place of a critic: the value of a state is the mean return of so many continuations, and of
    the state after a step that of its own. So advantages are unbiased, and noisy.
    """

    explained = ()

    def __init__(self, policy: Any, world: Any, each: int) -> None:
        self.policy, self.world, self.each = policy, world, each
        self.turn = 0

    def values(self, steps: Sequence[loop.Step]) -> Any:
        """The value of each step."""
        self.turn += 1
        return continued(self.policy, self.world, steps, self.each, f"branch {self.turn}")

    def learn(self, steps: Sequence[loop.Step], table: StepTable) -> None:
        """Nothing: the values are those of the policy as it is."""


def continued(policy: Any, world: Any, steps: Sequence[loop.Step], each: int, name: str) -> Any:
    """The mean return of so many continuations of the policy from the state of each step."""
    open_: list[tuple[int, int, Any]] = []
    for place, step in enumerate(steps):
        for number in range(each):
            one = copy.deepcopy(step.world)
            one.reseed(crc32(f"{name} {place} {number}".encode()))
            open_.append((place, step.step, one))
    total, rng = np.zeros(len(steps)), np.random.default_rng(len(steps))
    while open_:
        rows = [loop.Step("", "", turn, *one.look()) for _, turn, one in open_]
        loop.act(policy, world, rows, rng.random((len(rows), world.longest), dtype=np.float32))
        still = []
        for (place, turn, one), row in zip(open_, rows, strict=True):
            total[place] += one.step(row.action)
            if not one.over and turn + 1 < world.horizon:
                still.append((place, turn + 1, one))
        open_ = still
    return total / each


Credits = Callable[[StepTable], Any]
DISCOUNTS, WEIGHTS, NONE = (0.9, 0.95, 1.0), (0.25, 0.5, 1.0), (0.0,)


@dataclass(frozen=True)
class Arm:
    """How one arm credits steps.

    Attributes:
        build: the recipe for the value of the second parameter.
        values: what is tried of the second parameter; ``NONE`` if there is none.
        usual: its value in the check of the harness.
        critic: what gives the values of states, made from the policy, its world and the discount.
    """

    build: Callable[[float], Credits]
    values: tuple[float, ...] = DISCOUNTS
    usual: float = 1.0
    critic: Callable[[Any, Any, float], Any] | None = None


def by_events(weight: float, **how: Any) -> Credits:
    """The recipe, with all of a session's return on its steps alike where nothing was learned."""
    found: Credits = recipe("events", weight=weight, fallback="returns", **how)
    return found


ARMS = {
    "returns": Arm(lambda gamma: recipe("returns", gamma=gamma)),
    "grpo": Arm(lambda _: recipe("grpo"), NONE),
    "gigpo": Arm(lambda gamma: recipe("gigpo", gamma=gamma)),
    "sbc": Arm(lambda gamma: recipe("sbc", states="exact", gamma=gamma)),
    "events": Arm(by_events, WEIGHTS),
    "events, memory": Arm(lambda weight: Carrying(by_events(weight, memory=0.5)), WEIGHTS),
    "consensus": Arm(Consensus, WEIGHTS),
    "last call": Arm(lambda _: LastCall(), NONE),
    "value": Arm(Centred, critic=lambda policy, _, gamma: loop.Critic(policy, gamma)),
    "true": Arm(
        lambda _: recipe("gae", gamma=1.0, lam=0.0, bootstrap=False),
        NONE,
        critic=lambda policy, world, _: Branched(policy, world, 4),
    ),
}
BASE, OURS, TRUE = "returns", "events", "true"

# The design.


@dataclass(frozen=True)
class Place:
    """How an environment is run.

    Attributes:
        start: how the policy at the start is made: demonstrations that all seeds share, and
            ``OWN`` updates on a seed's own.
        budget: environment steps of a run.
        true: whether steps can be branched.
    """

    start: loop.Start
    budget: int
    true: bool = True


PLACES = {
    "desk": Place(loop.Start(0.3, 600), 18_000),
    "release": Place(loop.Start(0.4, 400), 12_000),
    "one call": Place(loop.Start(0.7, 60), 1_280),
}
OWN, SHARED_SEED = 40, 900
CHECK = "one call"


@dataclass(frozen=True)
class Design:
    """What is run."""

    worlds: tuple[str, ...] = tuple(name for name in PLACES if name != CHECK)
    arms: tuple[str, ...] = tuple(ARMS)
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3)
    kept: int = 3
    tuning_seeds: tuple[int, ...] = (351, 352, 353)
    check_seeds: tuple[int, ...] = (341, 342, 343)
    seeds: tuple[int, ...] = tuple(range(301, 325))
    points: int = 5
    held_out: int = 256
    part: float = 1.0
    """Of the budgets, and of the updates at the start."""

    def budget(self, world: str) -> int:
        """Environment steps of a run."""
        return round(PLACES[world].budget * self.part)

    def arms_in(self, world: str) -> list[str]:
        """The arms of an environment."""
        return [arm for arm in self.arms if arm != TRUE or PLACES[world].true]


FULL = Design()
QUICK = Design(
    worlds=("release",),
    arms=("returns", "grpo", "events", "consensus", "last call", "true"),
    rates=(1e-3,),
    kept=1,
    tuning_seeds=(3,),
    check_seeds=(4,),
    seeds=(1, 2),
    points=1,
    held_out=64,
    part=0.02,
)

Setting = tuple[float, float]
"""Second parameter and learning rate."""


@dataclass(frozen=True)
class Unit:
    """Runs that share a start: one environment and one seed."""

    world: str
    seed: int
    runs: tuple[tuple[str, float, float, int], ...]
    """Arm, second parameter, learning rate and environment steps of each."""


Lines = Sequence[Mapping[str, Any]]
"""Finished runs."""


def check(design: Design, _: Lines) -> list[Unit]:
    """Every arm in the check of the harness."""
    runs = [(arm, ARMS[arm].usual, 2e-3, design.budget(CHECK)) for arm in design.arms_in(CHECK)]
    return [Unit(CHECK, seed, tuple(runs)) for seed in design.check_seeds]


def first_round(design: Design, _: Lines) -> list[Unit]:
    """Every setting of every arm for a third of the budget; more seeds where there is one value."""
    runs: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for world in design.worlds:
        for arm in design.arms_in(world):
            values, third = ARMS[arm].values, design.budget(world) // 3
            seeds = design.tuning_seeds if values == NONE else design.tuning_seeds[:1]
            for seed in seeds:
                runs[world, seed] += [
                    (arm, v, rate, third) for v in values for rate in design.rates
                ]
    return [Unit(world, seed, tuple(found)) for (world, seed), found in runs.items()]


def second_round(design: Design, lines: Lines, beyond: bool = False) -> list[Unit]:
    """Whole runs of the best settings of every arm; and of the rate beyond the edge."""
    runs: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for (world, arm), among in settings(design, lines, beyond).items():
        for seed in design.tuning_seeds[:2]:
            runs[world, seed] += [(arm, v, rate, design.budget(world)) for v, rate in among]
    return [Unit(world, seed, tuple(found)) for (world, seed), found in runs.items()]


def settings(design: Design, lines: Lines, beyond: bool) -> dict[tuple[str, str], list[Setting]]:
    """The settings of each arm that are run as a whole."""
    first, whole = tuned(design, lines, whole=False), tuned(design, lines, whole=True)
    found = {
        place: sorted(scores, key=scores.__getitem__, reverse=True)[: design.kept]
        for place, scores in first.items()
    }
    for place, among in found.items() if beyond else ():
        scores = {setting: whole[place][setting] for setting in among}
        value, rate = max(scores, key=scores.__getitem__)
        if len(design.rates) > 1 and rate in (design.rates[0], design.rates[-1]):
            among.append((value, rate / 2 if rate == design.rates[0] else rate * 2))
    return found


def tuned(
    design: Design, lines: Lines, *, whole: bool
) -> dict[tuple[str, str], dict[Setting, float]]:
    """Mean success of the episodes that were trained on, by environment and arm, and setting."""
    values: dict[Any, dict[Setting, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["world"] not in design.worlds or line["seed"] not in design.tuning_seeds:
            continue
        if (line["budget"] == design.budget(line["world"])) == whole:
            place, setting = (line["world"], line["arm"]), (line["value"], line["rate"])
            values[place][setting].append(line["trained"])
    return {
        place: {setting: float(np.mean(scores)) for setting, scores in found.items()}
        for place, found in values.items()
    }


def chosen(design: Design, lines: Lines) -> dict[tuple[str, str], Setting]:
    """The best setting of every arm."""
    scores = tuned(design, lines, whole=True)
    return {
        place: max(among, key=scores[place].__getitem__)
        for place, among in settings(design, lines, beyond=True).items()
    }


def test(design: Design, lines: Lines) -> list[Unit]:
    """Every arm at its best setting, seed by seed, so that a part of the runs is whole seeds."""
    best = chosen(design, lines)
    return [
        Unit(world, seed, tuple((a, *best[world, a], design.budget(world)) for a in arms))
        for seed in design.seeds
        for world in design.worlds
        for arms in [design.arms_in(world)]
    ]


STAGES = (check, first_round, second_round, partial(second_round, beyond=True), test)
"""Each needs the runs before it."""

# Runs.


@dataclass(frozen=True)
class Run(loop.Run):
    """A learning curve over environment steps.

    Attributes:
        budget: environment steps after which it ends.
        points: evaluations after the start, at equal distances.
    """

    budget: int = 0
    points: int = 5

    def train(self, policy: Any) -> Iterator[dict[str, float]]:
        """Train a policy in place; a line for every iteration and every evaluation."""
        world = WORLDS[self.world]
        optimizer = torch.optim.Adam(policy.parameters(), lr=self.rate)
        taken = number = point = 0
        while True:
            while (
                self.held_out
                and point <= self.points
                and taken >= self.budget * point // self.points
            ):
                each, name = -(-self.held_out // len(world.unseen)), f"test {self.seed} {point}"
                won = loop.play_policy(policy, world, world.unseen, each, name)[1]
                yield {"held_out": won, "at": taken}
                point += 1
            if taken >= self.budget:
                return
            line = self.iterate(policy, optimizer, number)
            taken, number = taken + int(line["rows"]), number + 1
            yield line

    def batch(self, policy: Any, number: int, rng: Any) -> tuple[list[loop.Step], float]:
        """The episodes of an iteration; their steps keep a copy of the world to branch."""
        if not isinstance(self.critic, Branched):
            return super().batch(policy, number, rng)
        world = WORLDS[self.world]
        tasks = sorted(rng.choice(world.tasks, self.groups, replace=False).tolist())

        def choose(rows: list[loop.Step], at: list[Any], uniform: Any) -> None:
            for row, one in zip(rows, at, strict=True):
                row.world = copy.deepcopy(one)
            loop.act(policy, world, rows, uniform)

        return loop.play(world, tasks, self.size, f"train {self.seed} {number}", choose)

    def credit(self, steps: Sequence[loop.Step]) -> tuple[Any, StepTable, dict[str, float]]:
        """The advantage of each step, and the share of steps alone in their state."""
        advantage, table, line = super().credit(steps)
        for name, of in (("alone", "state"), ("alone_text", "prompt")):
            counts = Counter((step.group, getattr(step, of)) for step in steps)
            line[name] = sum(n for n in counts.values() if n == 1) / len(steps)
        return advantage, table, line


def run_unit(design: Design, folder: Path, deadline: float, unit: Unit) -> None:
    """Make the runs of a unit that are missing, until the deadline."""
    torch.set_num_threads(1)
    missing = [run for run in unit.runs if not path_of(folder, unit, *run).exists()]
    if not missing or time.time() > deadline:
        return
    policy = start_of(design, folder, unit.world, unit.seed)
    for arm, value, rate, budget in missing:
        if time.time() > deadline:
            return
        began, learner, how = time.process_time(), copy.deepcopy(policy), ARMS[arm]
        world = WORLDS[unit.world]
        run = Run(
            unit.world,
            how.build(value),
            rate,
            unit.seed,
            0,
            1,
            0 if unit.seed in design.tuning_seeds else design.held_out,
            critic=how.critic(learner, world, value) if how.critic else None,
            budget=budget,
            points=design.points,
        )
        lines = list(run.train(learner))
        trained = [line for line in lines if "success" in line]
        line: dict[str, Any] = {"world": unit.world, "arm": arm, "value": value, "rate": rate}
        line |= {"budget": budget, "seed": unit.seed, "iterations": len(trained)}
        for name in ("held_out", "at"):
            line[name] = [round(each[name], 4) for each in lines if name in each]
        line["trained"] = round(float(np.mean([each["success"] for each in trained])), 4)
        for name in ("alone", "alone_text"):
            line[name] = [round(trained[n][name], 3) for n in (0, len(trained) // 2, -1)]
        line["cpu_seconds"] = round(time.process_time() - began, 1)
        keep(line, path_of(folder, unit, arm, value, rate, budget))


def start_of(design: Design, folder: Path, world: str, seed: int) -> Any:
    """The policy at the start of a run."""
    own = replace(PLACES[world].start, updates=max(round(OWN * design.part), 1))
    return loop.clone(world, own, seed, shared_start(design, folder, world))


@cache
def shared_start(design: Design, folder: Path, world: str) -> Any:
    """The policy that the starts of all seeds begin with; kept in the folder."""
    how, path = PLACES[world].start, folder / f"{world.replace(' ', '_')}.safetensors"
    if path.exists():
        policy = loop.new_policy(WORLDS[world], SHARED_SEED)
        load_model(policy, path)
        return policy
    updates = max(round(how.updates * design.part), 1)
    policy = loop.clone(world, replace(how, updates=updates), SHARED_SEED)
    with replacing(path) as file:
        file.write(save(policy.state_dict()))
    return policy


def path_of(folder: Path, unit: Unit, arm: str, value: float, rate: float, budget: int) -> Path:
    """The file of a run."""
    name = f"{unit.world} {arm}".replace(",", "").replace(" ", "_")
    return folder / f"{name}-{value:g}-{rate:g}-{budget}-{unit.seed}.json"


# Figures.


def report(figures: Figures, design: Design, lines: Lines) -> None:
    """All figures of seeds that are finished in their environment."""
    figures.emit("runs", "finished", len(lines), "runs", "higher")
    seconds = sum(line["cpu_seconds"] for line in lines)
    figures.emit("runs", "cpu_hours", seconds / 3600, "h", "lower")
    for arm in design.arms_in(CHECK):
        runs = [line for line in lines if (line["world"], line["arm"]) == (CHECK, arm)]
        gains = [line["held_out"][-1] - line["held_out"][0] for line in runs]
        figures.emit(f"{CHECK}/{arm}", "gain", float(np.mean(gains)), "share", "higher", 0.2)
    best, primary = chosen(design, lines), {}
    for world in design.worlds:
        runs = of_tests(design, lines, best, world)
        aucs = {arm: np.array([auc(line) for line in found]) for arm, found in runs.items()}
        if len(aucs[BASE]) < 2:
            continue
        apart = {arm: aucs[arm] - aucs[BASE] for arm in runs if arm != BASE}
        p = {arm: sign_flip(values.tolist()) for arm, values in apart.items()}
        primary[world] = p[OURS]
        corrected = holm({arm: value for arm, value in p.items() if arm != OURS})
        for arm, found in runs.items():
            place, (value, rate) = f"{world}/{arm}", best[world, arm]
            figures.emit(place, "value", value, "1", "higher")
            figures.emit(place, "learning_rate", rate, "1", "lower")
            figures.emit(place, "seeds", len(found), "seeds", "higher")
            figures.emit_interval(place, "auc", mean_interval(aucs[arm]), "share", "higher")
            end = np.array([line["held_out"][-1] for line in found])
            figures.emit_interval(place, "end", mean_interval(end), "share", "higher")
            for name in ("alone", "alone_text"):
                for when, n in (("start", 0), ("middle", 1), ("end", 2)):
                    share = float(np.mean([line[name][n] for line in found]))
                    figures.emit(place, f"{name}_{when}", share, "share", "higher")
            if arm != BASE:
                interval = mean_interval(apart[arm], -1)
                figures.emit_interval(place, "difference", interval, "share", "higher")
                figures.emit(place, "p", p[arm], "1", "lower")
            if arm in corrected:
                figures.emit(place, "holm", corrected[arm], "1", "lower")
    for world, value in holm(primary).items():
        figures.emit(f"{world}/{OURS}", "holm", value, "1", "lower")


def of_tests(
    design: Design, lines: Lines, best: Mapping[tuple[str, str], Setting], world: str
) -> dict[str, list[Mapping[str, Any]]]:
    """The test runs of each arm, by seed, of the seeds that all arms have finished."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {arm: {} for arm in design.arms_in(world)}
    for line in lines:
        arm = line["arm"]
        at_best = best.get((world, arm)) == (line["value"], line["rate"])
        if line["world"] == world and line["seed"] in design.seeds and at_best:
            found[arm][line["seed"]] = line
    complete = sorted(set.intersection(*map(set, found.values())))
    return {arm: [runs[seed] for seed in complete] for arm, runs in found.items()}


def main() -> None:
    """Run what is missing, then report."""
    own: Any = {"final": {"action": "store_true", "help": "report on finished seeds"}}
    with Figures("events", **OPTIONS, **own) as figures, TemporaryDirectory() as spare:
        options, design = figures.options, QUICK if figures.quick else FULL
        if not figures.quick:
            header = json.loads(figures.lines[0]) | {"protocol": protocol()}
            figures.lines[0] = json.dumps(header)
        deadline = time.time() + 60 * options.minutes
        folder = options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        for line in read_lines(options.curves) if options.curves else ():
            run = (line["arm"], line["value"], line["rate"], line["budget"])
            keep(line, path_of(folder, Unit(line["world"], line["seed"], ()), *run))
        done = True
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
