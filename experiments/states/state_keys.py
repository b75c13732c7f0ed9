"""What a canonical key of states is worth, and whether wrong rules are refused.

A random policy plays Ascribe's environments, a weak one the games of ``learning_loop`` with a clock
in every text. ``shown`` groups by the observation, ``proposed`` by the key that
``ascribe.groups.keys.propose`` finds in these observations, ``own`` by the environment's key, which
is the truth here. ``alone`` is the share of rows that are alone in their state; ``predicts`` the
share of the error of returns that states remove in trajectories that were left out; ``purity`` the
share of pairs of rows in one state whose true states are equal; ``found`` the share of pairs of
rows in one true state that are in one state. ``left`` is 1 if ``propose`` still finds something in
the environment's own key. ``example`` is the world of ``examples/bipace_in_one_file.py``, whose
inventory comes in any order; its truth is the inventory.

The planted worlds are those of ``tests/groups/planted.py``, with 64 and 256 episodes: ``kept`` is
the share of seeds in which the rule in question is part of the key. ``audit`` has the worlds of
``ascribe audit``: ``refused`` is the share of seeds in which a rule is refused that removes random
labels (right), the step number (right), or which of two states it is (wrong).
"""

import random
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from ascribe import StepTable
from ascribe.groups.keys import StateKey, measure, propose
from ascribe.steps.table import Coded
from ascribe_lab.audit.tasks import Conditions, rollouts
from ascribe_lab.audit.worlds import WORLDS
from ascribe_lab.rollout import Model, Plan, Setup, rollout, table
from benchmarks.common import ROOT, Figures
from experiments import learning_loop as loop

sys.path.append(str(ROOT / "examples"))
import bipace_in_one_file as one_file

from tests.groups.planted import RIGHT, WRONG, played

CASES = {
    "textcraft": {"depth": [1, 2], "inventory": True},
    "sokoban": {"size": 5, "boxes": [1]},
    "ezpoints": {},
    "webshop": {},
    "search_qa": {},
}
SIZES = (8, 32)
"""Episodes of each of eight tasks."""


def main() -> None:
    """Play and measure."""
    with Figures("state_keys") as figures:
        seeds, sizes = range(1 if figures.quick else 20), SIZES[: 1 if figures.quick else 2]
        planted(figures, seeds, sizes)
        audit(figures, seeds, sizes)
        for case, shown, own in played_environments(4 if figures.quick else 16):
            key, truth = propose(shown), own.state
            emit(figures, f"{case}, shown", shown, StateKey(), truth)
            emit(figures, f"{case}, proposed", shown, key, truth)
            emit(figures, f"{case}, own", own, StateKey(), truth)
            figures.emit(case, "left", float(propose(own) != StateKey()), "1", "lower", 0.0)
        for name in loop.WORLDS:
            for size in sizes:
                steps, truth = clocked(name, size)
                place = f"{name} of the learning loop with a clock, {8 * size} episodes"
                emit(figures, f"{place}, shown", steps, StateKey(), truth)
                emit(figures, f"{place}, proposed", steps, propose(steps), truth)


def emit(figures: Figures, case: str, steps: StepTable, key: StateKey, truth: Coded) -> None:
    """What a key does."""
    quality = measure(steps, key, truth)
    figures.emit(case, "states", quality.states, "1", "lower")
    figures.emit(case, "alone", quality.alone, "share", "lower")
    for metric in ("predicts", "purity", "found"):
        value = getattr(quality, metric)
        if not np.isnan(value):
            figures.emit(case, metric, value, "share", "higher")


def planted(figures: Figures, seeds: range, sizes: tuple[int, ...]) -> None:
    """Rules that must be refused, and rules that must be kept."""
    for better, worlds in (("lower", WRONG), ("higher", RIGHT)):
        for name, world in worlds.items():
            for size in sizes:
                kept, before, after = [], [], []
                for seed in seeds:
                    steps, truth = played(world, 8, size, seed)
                    key = propose(steps)
                    kept.append(any(rule.startswith(world.rule) for rule in key.rules))
                    before.append(measure(steps, truth=truth))
                    after.append(measure(steps, key, truth))
                case = f"{'wrong' if better == 'lower' else 'right'}: {name}, {8 * size} episodes"
                goal = float(better == "higher")
                figures.emit(case, "kept", np.mean(kept), "share", better, goal)
                for metric in ("alone", "predicts"):
                    for when, quality in (("before", before), ("after", after)):
                        mean = np.nanmean([getattr(each, metric) for each in quality])
                        way = "lower" if metric == "alone" else "higher"
                        figures.emit(case, f"{metric}_{when}", mean, "share", way)
                for metric in ("purity", "found"):
                    values = [getattr(each, metric) for each in after]
                    if not np.isnan(values).all():
                        figures.emit(case, metric, np.nanmean(values), "share", "higher")


def audit(figures: Figures, seeds: range, sizes: tuple[int, ...]) -> None:
    """Right and wrong rules in the tabular worlds of the audit, whose states are known."""
    for size in sizes:
        refused: dict[str, list[bool]] = {}
        for world in WORLDS.values():
            if world.horizon > 20:
                continue
            for seed in seeds:
                rng = np.random.default_rng(seed)
                tasks = world.tasks(8, rng)
                batch = rollouts(tasks, None, rng, Conditions(group_size=size, paraphrase=0.0))
                forms = tasks.forms
                names = [f"act {n}" for n in range(tasks.logits.shape[2])]
                action = Coded(batch.response // forms, np.array(names, dtype=object))
                pair = rng.permutation(tasks.states)[batch.state]
                noise = rng.integers(0, 4, pair.size)
                ids = [f"Place {s}, id-{n}{'a' * 18}" for s, n in zip(pair, noise, strict=True)]
                counted = [f"Place {s}, step {n}" for s, n in zip(pair, batch.step, strict=True)]
                merged = [f"Place {s // 2}, id-{s % 2}{'a' * 18}" for s in pair]
                for case, texts in {
                    "right: random": ids,
                    "right: step": counted,
                    "wrong: two states": merged,
                }.items():
                    columns = batch.table.columns() | {"state": Coded.encode(texts)}
                    key = propose(StepTable(**columns | {"action": action}))
                    refused.setdefault(case, []).append(key == StateKey())
        for case, share in refused.items():
            place = f"audit, {case}, {8 * size} episodes"
            way = "higher" if "wrong" in case else "lower"
            figures.emit(place, "refused", np.mean(share), "share", way)


def clocked(name: str, size: int) -> tuple[StepTable, Coded]:
    """Episodes of a weak policy with a clock in every text, and the states without it."""
    world = loop.WORLDS[name]
    policy = loop.clone(name, loop.STARTS[name, "weak"], seed=101)
    steps, _ = loop.play_policy(policy, world, world.tasks[:8], size, "state keys")
    truth = Coded.encode([loop.true_state(step.state) for step in steps])
    rng, now = random.Random(5), dict[str, int]()
    for step in steps:
        seconds = now.get(step.trajectory, rng.randrange(86400)) + rng.randrange(1, 90)
        now[step.trajectory] = seconds
        time = f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        step.state = f"Time {time}. {step.state}"
    return loop.step_table(steps), truth


def played_environments(size: int) -> Iterator[tuple[str, StepTable, StepTable]]:
    """Each environment, with observations and with its own keys as states."""
    for name, options in CASES.items():
        setup = Setup(name, options, "plain", "serial")
        plan = Plan(groups=4, size=size, max_turns=10, seed=5)
        with closing(Model("random").open(setup.agent)) as policy, setup.open_pool(8) as pool:
            done = rollout(plan, pool, setup.agent, policy)
        yield name, table(done, "observation"), table(done)
    yield "example", *example(size)


def example(size: int) -> tuple[StepTable, StepTable]:
    """Clumsy demonstrations in the world of the example."""
    true: dict[tuple[str, int], str] = {}

    def choose(rows: list[one_file.Step], worlds: dict[str, one_file.TextCraft]) -> None:
        for row in rows:
            world = worlds[row.trajectory]
            fetch = f"get {world.rng.randint(1, 2)} {world.rng.choice(world.fetched)}"
            row.action = fetch if world.rng.random() < 0.5 else world.expert()
            carried = sorted(item for item in world.has.items() if item[1])
            true[row.trajectory, row.step] = str(carried)

    rows = one_file.play(choose, size, "state keys")
    names = ("group", "trajectory", "step", "state", "action", "reward")
    shown = StepTable.from_columns({name: [getattr(r, name) for r in rows] for name in names})
    keys = Coded.encode([true[row.trajectory, row.step] for row in rows])
    columns = shown.columns() | {"state": keys}
    return shown, StepTable(**columns)


if __name__ == "__main__":
    main()
