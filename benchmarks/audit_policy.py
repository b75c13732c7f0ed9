"""Audit recipes on a real policy: the tiny one of ``examples/bipace_in_one_file.py`` in TextCraft.

The policy of each seed plays many batches of 64 episodes at three stages of its learning with
``gigpo``. A recipe's gradient on one batch (that of the output layer) is compared with a reference
gradient from the other half of the batches; see ``ascribe.audit.policy``. A case is
seed/stage/objective/recipe, and a recipe that compares states names what a state is: the inventory
as ``text`` (in any order), ``canonical`` (sorted), ``hidden`` (clusters of the policy's hidden
states), ``ngram`` (clusters of texts), ``one`` for all, or ``random``: canonical states dealt at
random, in groups of the same sizes. ``batch_cosine`` is the mean over single batches, with its 95 %
interval over batches; ``mean_cosine`` is of the mean over half of the batches, and can at best be
about ``precision``, the cosine of the references of the two halves. ``decision_cosine`` compares
credit with the value Q of decisions, from 32 continuations each, inside canonical states; see
``ascribe.audit.decisions``. What is finished is kept in ``--work``, and a run that was stopped goes
on there.
"""

import copy
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Figures

from ascribe import StepTable
from ascribe.audit.decisions import GAMMAS, DecisionScore, squared_error
from ascribe.audit.policy import (
    Gradients,
    compare,
    joined_scores,
    kept_batches,
    policy_lines,
    row_gradients,
    with_radius,
)
from ascribe.audit.run import Regrouped, scored_recipe
from ascribe.steps.atomic import replacing

sys.path.append(str(ROOT / "examples"))
import bipace_in_one_file as example
import torch

SEEDS = (100, 101, 102)
STAGES = (0, 8, 16)
"""Iterations of learning with ``gigpo``."""
BATCHES = 160
EPISODES = 8
"""Of each of the 8 games, in a batch."""
DECISIONS, FROM_BATCH, CONTINUATIONS = 500, 64, 32
"""Decisions in all and from one batch, and how often each is played on from."""

PLAIN = ("grpo", "returns", "returns_undiscounted", "returns_turn", "returns_turn_undiscounted")
BY_STATE = ("gigpo", "gigpo_mean", "hgpo", "bigpo_mean", "bipace_q", "bipace_q_equal", "sbc")
"""Recipes that compare states, each with every kind of state that it takes."""


def main() -> None:
    """Play what is missing, then compare."""
    work = {"type": Path, "help": "folder for finished batches"}
    with Figures("audit_policy", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        torch.set_num_threads(1)
        folder = figures.options.work or Path(spare)
        seeds, stages, batches, count = SEEDS, STAGES, BATCHES, DECISIONS
        if figures.quick:
            seeds, stages, batches, count = SEEDS[:1], STAGES[:1], 4, 16
        for seed in seeds:
            for stage, policy in policies(seed, stages):
                name, place = f"audit {seed} {stage}", folder / f"{seed}_{stage}"
                played = kept_batches(place, batches, partial(play_batch, policy, name))
                decided = decisions(policy, place, name, count)
                found = compare(played, NAMES)
                for line in policy_lines(found, decided, f"{seed}/{stage}"):
                    value, better = line["value"], line["better"]
                    figures.emit(line["case"], line["metric"], value, "1", better)
                    for end in ("low", "high") if "low" in line else ():
                        figures.emit(
                            line["case"], f"{line['metric']}_{end}", line[end], "1", better
                        )


def policies(seed: int, stages: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """The policy of a seed at each stage."""
    policy = example.clone(seed)
    if 0 in stages:
        yield 0, policy
    for line in example.train(policy, "gigpo", seed, iterations=max(stages), held_out=1, every=99):
        done = line["iteration"]
        if done and done in stages:
            yield done, policy


def forms() -> Iterator[tuple[str, str, Any]]:
    """Name, key of states and recipe of everything that is compared."""
    for name in PLAIN:
        yield name, "text", scored_recipe(name)
    for name in BY_STATE:
        recipe = scored_recipe(name)
        clusters = hasattr(recipe, "fingerprint")
        by_text = replace(recipe, fingerprint="identity", radius=0.0) if clusters else recipe
        yield f"{name}, text", "text", by_text
        yield f"{name}, canonical", "canonical", by_text
        if clusters:
            yield f"{name}, hidden", "text", with_radius(recipe, example.RADIUS)
            ngram = replace(recipe, fingerprint="ngram", radius=0.25)
            yield f"{name}, ngram", "text", ngram
        for control in ("random", "one"):
            yield f"{name}, {control}", "canonical", Regrouped(by_text, control)


FORMS = tuple(forms())
NAMES = tuple(name for name, _, _ in FORMS)


def play_batch(policy: Any, name: str, number: int) -> tuple[Gradients, float]:
    """The gradient of every recipe on one batch, and the share of its episodes that succeeded."""
    steps, success = example.play_policy(policy, EPISODES, f"{name} {number}")
    rows = read_rows(policy, steps).numpy()
    tables = {key: table(steps, key) for key in ("text", "canonical")}
    advantage = [recipe(tables[key]).advantage for _, key, recipe in FORMS]
    return np.asarray(np.array(advantage, np.float32) @ rows / (EPISODES * 8)), success


# Decisions.


def decisions(
    policy: Any, folder: Path, name: str, count: int
) -> dict[str, dict[str, DecisionScore]]:
    """Scores of decisions, by objective and recipe; what was played is kept in the folder."""
    parts: list[dict[str, Any]] = []
    while (done := sum(part["state"].size for part in parts)) < count:
        path = folder / f"decisions_{len(parts):04}.npz"
        if not path.exists():
            arrays = decide(policy, f"{name} {len(parts)}", min(FROM_BATCH, count - done))
            with replacing(path) as file:
                np.savez(file, **arrays)
        with np.load(path, allow_pickle=False) as stored:
            parts.append(dict(stored))
    return joined_scores(parts, NAMES)


def decide(policy: Any, seed: str, count: int) -> dict[str, Any]:
    """Decisions of one batch in states that saw several actions: credit, Q, its noise, states."""
    steps, _ = example.play_policy(policy, EPISODES, seed)
    tables = {key: table(steps, key) for key in ("text", "canonical")}
    states = list(zip(tables["text"].group.codes, tables["canonical"].state.codes, strict=True))
    by_state: dict[Any, dict[str, int]] = {}
    for row, state in enumerate(states):
        by_state.setdefault(state, {}).setdefault(steps[row].action, row)
    several = [list(rows.values()) for rows in by_state.values() if len(rows) > 1]
    rows: list[int] = []
    labels: list[int] = []
    for label in np.random.default_rng(len(steps)).permutation(len(several)):
        if len(rows) < count:
            rows += several[label]
            labels += [int(label)] * len(several[label])
    points = [after(steps, row, seed) for row in rows for _ in range(CONTINUATIONS)]
    rewards = play_on(policy, points, seed)
    arrays: dict[str, Any] = {"state": np.unique(labels, return_inverse=True)[1]}
    arrays["credit"] = np.array([r(tables[key]).advantage[rows] for _, key, r in FORMS])
    paid = np.repeat([steps[row].reward for row in rows], CONTINUATIONS)
    for objective, gamma in GAMMAS.items():
        later = [sum(gamma**k * r for k, r in enumerate(of, start=1)) for of in rewards]
        returns = (paid + np.array(later)).reshape(len(rows), CONTINUATIONS)
        arrays[objective] = returns.mean(axis=1)
        arrays[f"{objective} noise"] = np.array([squared_error(values) for values in returns])
    return arrays


def after(steps: Sequence[Any], row: int, seed: str) -> tuple[Any, str, int]:
    """The game after a step, by replaying it; the name of its trajectory, and the next step."""
    name = steps[row].trajectory
    world = example.TextCraft(int(name[0]), random.Random(f"{seed} {name}"))
    for step in steps[row - steps[row].step : row + 1]:
        if world.inventory() != step.state:
            raise RuntimeError("the game does not replay")
        world.step(step.action)
    return world, name, steps[row].step + 1


@torch.no_grad()
def play_on(policy: Any, points: Sequence[tuple[Any, str, int]], seed: str) -> list[list[float]]:
    """The rewards of a continuation from each point, one by one."""
    prefixes, rewards = example.read_prefixes(policy), [[] for _ in points]
    generator = torch.Generator().manual_seed(random.Random(f"on {seed}").getrandbits(32))
    for start in range(0, len(points), 256):
        running = {}
        for index, (world, name, at) in enumerate(points[start : start + 256], start):
            copied = copy.deepcopy(world)
            copied.rng = random.Random(f"{seed} {index}")
            running[index] = (copied, name, at)
        while running := {
            i: (w, name, at)
            for i, (w, name, at) in running.items()
            if not w.done and at < example.HORIZON
        }:
            batch = []
            for world, name, at in running.values():
                state = world.inventory()
                prompt = f"Before: {', '.join([*world.before, world.seen, state])} Action:"
                batch.append(example.Step(name[0], name, at, state, prompt=example.encode(prompt)))
            example.act(policy, prefixes, batch, generator)
            for (index, (world, name, at)), step in zip(list(running.items()), batch, strict=True):
                rewards[index].append(world.step(step.action))
                running[index] = (world, name, at + 1)
    return rewards


# Rows.


def table(steps: Sequence[Any], key: str) -> StepTable:
    """The steps, with the inventory as it was shown or sorted as their state."""
    columns = {n: [getattr(s, n) for s in steps] for n in ("group", "trajectory", "step", "action")}
    columns |= {"reward": [s.reward for s in steps]}
    columns["state"] = [s.state for s in steps]
    if key == "canonical":
        items = [re.findall(r"\[.+?\] \(\d+\)", state) for state in columns["state"]]
        columns["state"] = [" ".join(sorted(of_state)) for of_state in items]
    return replace(
        StepTable.from_columns(columns), fingerprint=np.stack([s.fingerprint for s in steps])
    )


@torch.no_grad()
def read_rows(policy: Any, steps: Sequence[Any]) -> Any:
    """The gradient of each step's log-probability in the output layer."""
    prefixes, parts = example.read_prefixes(policy), []
    for start in range(0, len(steps), 160):
        part = steps[start : start + 160]
        ids, real = example.padded([row.tokens for row in part], "right")
        out, _ = example.read(policy, prefixes, part, (ids, real))
        hidden = out.last_hidden_state[:, -ids.shape[1] - 1 : -1]
        chosen = real.bool()
        owner = np.repeat(np.arange(len(part)), [len(row.tokens) for row in part])
        logp = policy.lm_head(hidden[chosen]).log_softmax(-1)
        parts.append(row_gradients(hidden[chosen], logp, ids[chosen], owner, len(part)))
    return torch.cat(parts)


if __name__ == "__main__":
    main()
