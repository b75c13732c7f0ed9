"""Does the proposed discount learn as well as the best one?

A tabular policy learns with ``returns`` at each of ``GAMMAS`` in the worlds of the audit, and in
five more that differ in where the outcome is decided. The regret of a rule is what its discount
loses in mean success over learning against the best of ``GAMMAS``, with interpolation between them;
the rule sees one batch of the first policy. Rules:

- ``fixed``: 0.95, the default.
- ``median``: 1 / (1 - gamma) is the median length of the successes.
- ``harmonic``: it is their harmonic mean length.
- ``proposed``: it is 1.5 times their median length (``ascribe.steps.discount``). The factor was
  chosen in these worlds; from 1 to 3 the mean regret differs by less than 0.006.
- ``held_out``: of ``GAMMAS``, the one whose credit of state and action in half of the trajectories
  agrees best with what the same state and action returned, undiscounted, in the other half.
- ``sbc_fixed``, ``sbc_proposed``: what ``sbc`` on exact states loses with 0.95, and with the larger
  of 0.95 and the proposal, against the best discount from 0.95 on.

A batch has 64 trajectories; in cases ``more`` it has 384, or 128 where the horizon is 60 or more.
The goal of the proposal is to lose less than the default on average.
Worlds with rewards along the way are left out: there the rule proposes nothing. Runs are kept in
``--work`` as they come, so a run that was stopped goes on there.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ascribe import StepTable, recipe
from ascribe.groups.actions import KEY_FUNCTIONS, action_keys
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange
from ascribe.steps.discount import propose_discount
from ascribe.steps.returns import episode_return, reward_to_go
from ascribe_lab.audit import ALL_WORLDS, Settings, World, rollouts
from ascribe_lab.audit.run import score_learning
from ascribe_lab.audit.tasks import unit
from ascribe_lab.audit.worlds import DIMENSIONS
from benchmarks.common import Figures, read_lines

GAMMAS = (0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
FIXED = 0.95
LONG = 60
"""From this horizon on, two blocks of tasks are played, and else six."""
ACTIONS = 4
SPLITS = 16
"""Random halves that the rule ``held_out`` averages over."""
RECIPES = {"returns": (GAMMAS, {}), "sbc": (GAMMAS[3:], {"states": "exact"})}
"""The discounts of each, and its parameters; a smaller one only makes ``sbc`` learn less."""


# Worlds in which length and the place of the decision are apart.


def _arrays(random: np.random.Generator, observation: Any, **arrays: Any) -> dict[str, Any]:
    looks = unit(random.normal(size=(observation.max() + 1, DIMENSIONS)))
    numbers = {"start": 0, "verb": np.arange(ACTIONS)}
    return {"observation": observation, "centre": looks[observation], **numbers, **arrays}


def _chain(random: np.random.Generator, *, length: int, first: int) -> dict[str, Any]:
    """Episodes of equal length; six actions, from ``first`` on, decide the quality, which pays."""
    levels, decides = 3, 6
    states = length * levels
    step, quality = np.divmod(np.arange(states), levels)
    right = random.integers(0, ACTIONS, length)[step][:, None] == np.arange(ACTIONS)
    matters = ((step >= first) & (step < first + decides))[:, None]
    better = np.where(
        right, np.minimum(quality + 1, 2)[:, None], np.maximum(quality - 1, 0)[:, None]
    )
    after = np.stack(
        [np.where(matters, better, quality[:, None]), quality[:, None] + 0 * right], -1
    )
    ends = (step == length - 1)[:, None, None]
    moved = np.where(right, 0.43, 0.2)
    return _arrays(
        random,
        np.arange(states),
        outcome=np.where(ends, states, (step[:, None, None] + 1) * levels + after),
        chance=np.stack([moved, 1 - moved], -1),
        reward=np.where(ends, after / 2.0, 0.0),
        logits=0.5 * random.normal(size=(states, ACTIONS)),
    )


def _corridor(random: np.random.Generator, *, places: int) -> dict[str, Any]:
    """A door at the end of a corridor pays if the key, buried near its beginning, was dug up."""
    states = 2 * places
    key, place = np.divmod(np.arange(states), places)
    here, at_door = np.arange(states), place == places - 1
    outcome = np.repeat(np.repeat(here[:, None, None], 2, axis=2), ACTIONS, axis=1)
    outcome[:, 0, 0] = np.where(at_door, states, here + 1)
    outcome[at_door, 0, 1] = states
    outcome[:, 1, 0] = np.where(place > 0, here - 1, here)
    outcome[:, 2, 0] = places + place
    chance = np.full((states, ACTIONS), 0.95)
    buried = place == random.integers(0, 3)
    chance[at_door, 0] = np.where(key[at_door] == 1, 0.9, 0.1)
    chance[:, 2] = np.where((key == 0) & buried, 0.6, 0.0)
    reward = np.zeros((states, ACTIONS, 2))
    reward[at_door, 0, 0] = 1.0
    taste = 0.4 * random.normal(size=(places, ACTIONS))
    logits = np.concatenate([taste, taste + 0.2 * random.normal(size=taste.shape)])
    logits += np.stack([np.full(states, 1.5), 0 * here, 0.4 * buried, 0 * here], -1)
    chances = np.stack([chance, 1 - chance], -1)
    return _arrays(random, place, outcome=outcome, chance=chances, reward=reward, logits=logits)


def _world(build: Callable[..., Any], horizon: int, texts: int, **fields: int) -> World:
    names = [f"place {number}" for number in range(texts)]
    doors = tuple(f"door {number}" for number in range(ACTIONS))
    about = "where the outcome is decided"
    return World(about, partial(build, **fields), horizon, names, doors, paraphrase=0.25)


WORLDS = {name: world for name, world in ALL_WORLDS.items() if world.pays_once} | {
    "early": _world(_chain, 60, 180, length=60, first=0),
    "middle": _world(_chain, 60, 180, length=60, first=27),
    "late": _world(_chain, 60, 180, length=60, first=54),
    "corridor20": _world(_corridor, 80, 20, places=20),
    "corridor40": _world(_corridor, 160, 40, places=40),
}


# Rules: a table in, a discount out.


def by_length(table: StepTable, *, harmonic: bool) -> float:
    """``1 / (1 - gamma)`` is the median, or harmonic mean, length of the successes."""
    steps = arrange(table)
    returns = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
    length = np.bincount(steps.trajectory)[returns > returns.mean()]
    return 1.0 - 1.0 / max(1.0 / np.mean(1.0 / length) if harmonic else np.median(length), 1.2)


def by_proposal(table: StepTable) -> float:
    """The library's proposal; the default where there is none."""
    return propose_discount(table).gamma or FIXED


def by_halves(table: StepTable) -> float:
    """The discount whose credit predicts best what other trajectories of the task returned."""
    steps, random = arrange(table), np.random.default_rng(0)
    state = exact(steps.group, steps.state, table.state.values.size)
    keys = action_keys(table.action.take(steps.rows), KEY_FUNCTIONS["tag"])
    pair, pairs = segments.pairs(state.labels, keys.labels, keys.count)
    returns = [reward_to_go(steps.reward, steps.trajectory, gamma) for gamma in GAMMAS]
    agreement = np.zeros(len(GAMMAS))
    for _ in range(SPLITS):
        first = _half(steps.group_of_trajectory, random)[steps.trajectory]
        halves = []
        for rows in (np.flatnonzero(first), np.flatnonzero(~first)):
            labels = state.labels[rows]
            above = [r[rows] - segments.mean(r[rows], labels, state.count)[labels] for r in returns]
            halves.append(np.array([segments.total(a, pair[rows], pairs) for a in above]))
        for one, other in (halves, halves[::-1]):
            agreement += (one @ other[-1]) / np.maximum(np.linalg.norm(one, axis=1), 1e-9)
    return GAMMAS[int(np.argmax(agreement))]


def _half(task: Any, random: np.random.Generator) -> Any:
    """Every second trajectory of each task, in a random order."""
    order = np.lexsort((random.random(task.size), task))
    second = np.empty(task.size, dtype=np.bool_)
    second[order] = (np.arange(task.size) - np.searchsorted(task[order], task[order])) % 2 == 0
    return second


RULES: dict[str, Callable[[StepTable], float]] = {
    "fixed": lambda _: FIXED,
    "median": partial(by_length, harmonic=False),
    "harmonic": partial(by_length, harmonic=True),
    "proposed": by_proposal,
    "held_out": by_halves,
}


# The measurement.


def learned(world: str, name: str, settings: Settings, path: Path) -> Floats:
    """Mean success over learning at each discount of a recipe; kept in a file."""
    gammas, changes = RECIPES[name]
    kept = {(line["world"], line["recipe"], line["gamma"]): line for line in read_lines(path)}
    for gamma in gammas:
        if (world, name, gamma) in kept:
            continue
        by = recipe(name, gamma=gamma, **changes)
        found = score_learning({name: by}, settings, world)[world, name, settings.learning_size]
        line = {"world": world, "recipe": name, "gamma": gamma}
        line["success"] = float(np.mean(found["momentum_auc"]))
        kept[world, name, gamma] = line
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return np.array([kept[world, name, gamma]["success"] for gamma in gammas])


def lost(success: Floats, gamma: float) -> float:
    """What a discount loses against the best one, by interpolation over log horizons."""
    horizon = [-np.log(1 - min(each, 0.9975)) for each in (*GAMMAS[-success.size :], gamma)]
    return float(success.max() - np.interp(horizon[-1], horizon[:-1], success))


def batches(world: str, settings: Settings) -> dict[str, list[StepTable]]:
    """First batches of single blocks, and of all blocks."""
    tasks = settings.draw_tasks(world)
    conditions = settings.conditions(world, settings.learning_size)
    tables = [
        rollouts(tasks, None, settings.random(world, seed), conditions).table for seed in range(4)
    ]
    block = tables[0].group.codes // settings.tasks
    one = [tables[0].take(np.flatnonzero(block == number)) for number in range(settings.blocks)]
    return {"": one, ", more": tables}


def main() -> None:
    """Measure and print."""
    work = {"type": Path, "help": "folder for the runs"}
    with Figures("discount", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        full = Settings(worlds=WORLDS, seed=7, updates=4 if figures.quick else 20)
        folder = figures.options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "discount.jsonl"
        path.touch()
        regrets: dict[str, dict[str, list[float]]] = {}
        for world in ("keydoor", "early") if figures.quick else WORLDS:
            few = figures.quick or WORLDS[world].horizon >= LONG
            settings = replace(full, blocks=2 if few else 6)
            success, shrunk = (learned(world, name, settings, path) for name in RECIPES)
            for size, tables in batches(world, settings).items():
                lose = {
                    name: [lost(success, rule(table)) for table in tables]
                    for name, rule in RULES.items()
                }
                larger = [max(FIXED, by_proposal(table)) for table in tables]
                lose["sbc_fixed"] = [lost(shrunk, FIXED)]
                lose["sbc_proposed"] = [lost(shrunk, gamma) for gamma in larger]
                best = GAMMAS[int(success.argmax())]
                figures.emit(f"{world}{size}", "best_gamma", best, "1", "higher")
                for rule, values in lose.items():
                    regret = float(np.mean(values))
                    figures.emit(f"{world}{size}", rule, regret, "regret", "lower")
                    regrets.setdefault(size, {}).setdefault(rule, []).append(regret)
        for size, of_rules in regrets.items():
            goals = {"proposed": round(float(np.mean(of_rules["fixed"])), 4)}
            for name, statistic in {"mean": np.mean, "largest": np.max}.items():
                for rule, values in of_rules.items():
                    goal = goals.get(rule) if name == "mean" else None
                    case, value = f"{name}{size}", float(statistic(values))
                    figures.emit(case, rule, value, "regret", "lower", goal)


if __name__ == "__main__":
    main()
