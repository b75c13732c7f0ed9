"""Audit recipes on a real policy: the tiny one of ``examples/bipace_in_one_file.py`` in TextCraft.

The policy of each seed plays many batches of 64 episodes at three stages of its learning with
``gigpo``. A recipe's gradient on one batch (that of the output layer) is compared with a reference
gradient from the other half of the batches; see ``ascribe_lab.audit.policy``. A case is
seed/stage/objective/recipe, and a recipe that compares states names what a state is: the inventory
as ``text`` (in any order), ``canonical`` (sorted), ``hidden`` (clusters of the policy's hidden
states), ``ngram`` (clusters of texts), ``one`` for all, or ``random`` and ``hidden random``:
canonical states or clusters dealt at random, in groups of the same sizes. ``batch_cosine`` is the
mean over single batches, with its 95 % interval over batches; ``mean_cosine`` is of the mean over
half of the batches, and can at best be about ``precision``, the cosine of the references of the two
halves. ``decision_cosine`` compares credit with the value Q of decisions, from 16 continuations
each, inside canonical states; see ``ascribe_lab.audit.decisions``. What was played is kept in
``--work``: a run that was stopped goes on there, round by round, and ``--kept`` scores what is
there and plays nothing. Another recipe needs no play: see ``score``.
"""

import copy
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ascribe import StepTable
from ascribe.groups.keys import StateKey, keyed
from ascribe.steps.atomic import replacing
from ascribe_lab.audit.decisions import GAMMAS, DecisionAudit
from ascribe_lab.audit.kept import PlayedBatch, PlayedDecisions
from ascribe_lab.audit.policy import (
    REFERENCES,
    PolicyAudit,
    compare,
    compare_decisions,
    kept_gradients,
    policy_lines,
    with_radius,
)
from ascribe_lab.audit.run import Regrouped, Scored, interval
from benchmarks.audit_forms import scored_recipe
from benchmarks.common import ROOT, Figures

sys.path.append(str(ROOT / "examples"))
import bipace_in_one_file as example
import torch
from safetensors.torch import load, save
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.audit_policy.tiny_llama import TinyLlama

SEEDS = (100, 101, 102)
STAGES = (0, 8, 16)
"""Iterations of learning with ``gigpo``."""
BATCHES, ROUNDS = 160, 4
"""Batches of each policy, and the rounds over all policies in which they are played."""
EPISODES, AT_ONCE = 8, 4
"""Of each of the 8 games, in a batch; and how many batches are played at once."""
DECISIONS, FROM_BATCH, CONTINUATIONS = 500, 64, 16
"""Decisions in all and from one batch, and how often each is played on from."""
canonical = StateKey(("lists",))
"""The inventory, sorted: what ``ascribe states`` proposes for it."""

PLAIN = ("grpo", "returns", "returns@1", "returns_turn", "returns_turn@1")
BY_STATE = ("gigpo", "gigpo_mean", "hgpo", "bigpo_mean", "bipace_q", "bipace_q_equal", "sbc")
"""Recipes that compare states, each with every kind of state that it takes."""
PAIRS = (
    ("returns", "grpo"),
    ("returns", "gigpo, text"),
    *((f"{name}, canonical", f"{name}, text") for name in BY_STATE),
    *((f"{name}, canonical", f"{name}, random") for name in BY_STATE),
    *(
        (f"{name}, hidden", f"{name}, {other}")
        for name in BY_STATE[3:]
        for other in ("hidden random", "text", "canonical", "ngram", "one")
    ),
    *(("sbc, canonical", other) for other in ("gigpo, canonical", "sbc-centre, canonical")),
    ("sbc, canonical", "returns"),
)
"""Recipes that are compared batch by batch."""


def main() -> None:
    """Play what is missing, then compare."""
    more = {
        "work": {"type": Path, "help": "folder for what was played"},
        "kept": {"action": "store_true", "help": "score what is in the folder, play nothing"},
    }
    with Figures("audit_policy", **more) as figures, tempfile.TemporaryDirectory() as spare:
        torch.set_num_threads(1)
        folder = figures.options.work or Path(spare)
        seeds, stages, batches, count, rounds = SEEDS, STAGES, BATCHES, DECISIONS, ROUNDS
        if figures.quick:
            seeds, stages, batches, count, rounds = SEEDS[:1], STAGES[:1], 4, 16, 1
        for number in range(1, 1 + rounds if not figures.options.kept else 1):
            for seed in seeds:
                for stage, policy in policies(seed, stages, folder):
                    place = folder / f"{seed}_{stage}"
                    play(policy, place, batches * number // rounds, count * number // rounds)
        for seed in seeds:
            for stage in stages:
                place = folder / f"{seed}_{stage}"
                if figures.options.kept and not any(place.glob("batch_*.npz")):
                    continue
                found, decided = audit(place, FORMS)
                lines = policy_lines(found, decided, f"{seed}/{stage}")
                for line in (*lines, *differences(found, f"{seed}/{stage}")):
                    case, value, better = line["case"], line["value"], line["better"]
                    figures.emit(case, line["metric"], value, "1", better)
                    for end in ("low", "high") if "low" in line else ():
                        figures.emit(case, f"{line['metric']}_{end}", line[end], "1", better)


def differences(found: PolicyAudit, case: str) -> Iterator[dict[str, Any]]:
    """Differences of recipes in batch cosine, paired by batch."""
    for objective, scores in found.scores.items():
        for one, other in PAIRS:
            apart = interval(scores[one].cosines - scores[other].cosines)
            place = f"{case}/{objective}/{one} minus {other}"
            ends = {"value": apart.value, "low": apart.low, "high": apart.high}
            yield {"case": place, "metric": "batch_cosine", "better": "higher"} | ends


def score(
    recipe: Scored, folder: Path, places: Sequence[str] = (), batches: int | None = None
) -> Iterator[dict[str, Any]]:
    """Score another recipe on what was played: a line for each seed, stage and objective.

    Args:
        recipe: any function of a step table whose result has an ``advantage`` for every row; wrap
            it in ``Keyed`` for canonical states.
        folder: the folder of a run.
        places: such as ``100_0``, seed and stage; by default all that are there.
        batches: only as many batches.
    """
    for place in places or sorted(path.name for path in folder.glob("*_*")):
        recipes = {name: FORMS[name] for name in REFERENCES.values()}
        paths = sorted((folder / place).glob("batch_*.npz"))[:batches]
        played = []
        for path in paths:
            known, success = kept_gradients(path, recipes)
            own = PlayedBatch.load(path).gradients([recipe])
            played.append((np.array([*own, *(known[name] for name in recipes)]), success))
        found = compare(played, ["own", *recipes])
        decided = decisions(folder / place, {"own": recipe})
        for objective in REFERENCES:
            one, reference = (found.scores[objective][n] for n in ("own", REFERENCES[objective]))
            yield {
                "place": place,
                "objective": objective,
                "batches": len(played),
                "precision": found.precision[objective],
                "batch_cosine": one.batch.value,
                "low": one.batch.low,
                "high": one.batch.high,
                "mean_cosine": one.mean,
                "update_cosine": one.update,
                "batch_cosine_of_reference": reference.batch.value,
                "decision_cosine": decided.scores[objective]["own"].cosine if decided else None,
            }


# Policies and what they play.


def policies(seed: int, stages: Sequence[int], folder: Path) -> Iterator[tuple[int, TinyLlama]]:
    """The policy of a seed at each stage, trained once."""
    paths = {stage: folder / f"{seed}_{stage}" / "policy.safetensors" for stage in stages}
    policy = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(example.VOCABULARY), **example.SIZES)
    ).eval()
    if not paths[0].exists():
        _keep(example.clone(seed), paths[0])
    missing = [stage for stage, path in paths.items() if not path.exists()]
    for stage, path in paths.items():
        if path.exists():
            policy.load_state_dict(load(path.read_bytes()))
            yield stage, TinyLlama(policy)
    if not missing:
        return
    policy.load_state_dict(load(paths[0].read_bytes()))
    learning = example.train(policy, "gigpo", seed, iterations=max(missing), held_out=1, every=99)
    for line in learning:
        if line["iteration"] in missing:
            _keep(policy, paths[line["iteration"]])
            yield line["iteration"], TinyLlama(policy)


def _keep(policy: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: part.detach().contiguous() for name, part in policy.state_dict().items()}
    with replacing(path) as file:
        file.write(save(weights))


def play(policy: TinyLlama, place: Path, batches: int, count: int) -> None:
    """Play batches and decisions of a policy that are not in the folder yet."""
    for start in range(0, batches, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        if not all((place / f"batch_{number:04}.npz").exists() for number in numbers):
            steps = episodes(policy, EPISODES * AT_ONCE, f"audit {place.name} {start}")
            for part, number in enumerate(numbers):
                own = [s for s in steps if int(s.trajectory[2:]) // EPISODES == part]
                batch(policy, own).save(place / f"batch_{number:04}.npz")
    done = 0
    for number in range(count):  # far fewer are enough
        path = place / f"decisions_{number:04}.npz"
        if done < count and not path.exists():
            decide(policy, f"decide {place.name} {number}", min(FROM_BATCH, count - done)).save(
                path
            )
        done += PlayedDecisions.load(path).rows.size if path.exists() else 0


def episodes(policy: TinyLlama, each: int, seed: str) -> list[Any]:
    """The steps of ``each`` episodes of every game."""
    generator = torch.Generator().manual_seed(random.Random(seed).getrandbits(32))
    return list(example.play(lambda rows, _: policy.act(rows, generator), each, seed))


def batch(policy: TinyLlama, steps: Sequence[Any]) -> PlayedBatch:
    """Steps with what their gradients are made of."""
    hidden = np.concatenate([step.hidden for step in steps])
    residual = -policy.logp(torch.from_numpy(hidden)).exp().numpy()
    tokens = [token for step in steps for token in step.tokens]
    residual[np.arange(len(tokens)), tokens] += 1
    owner = np.repeat(np.arange(len(steps)), [len(step.tokens) for step in steps])
    won = sum(step.reward for step in steps) / len({step.trajectory for step in steps})
    return PlayedBatch(table(steps), hidden, residual, owner, won)


def table(steps: Sequence[Any]) -> StepTable:
    """The steps, with the inventory as it was shown as their state."""
    names = ("group", "trajectory", "step", "state", "action", "reward")
    columns = {name: [getattr(step, name) for step in steps] for name in names}
    found = StepTable.from_columns(columns)
    return replace(found, fingerprint=np.stack([step.fingerprint for step in steps]))


# Recipes.


class Keyed:
    """A recipe on canonical states."""

    def __init__(self, recipe: Scored) -> None:
        self.recipe = recipe

    def __call__(self, steps: StepTable) -> Any:
        """What the recipe computes from the table with canonical states."""
        return self.recipe(replace(steps, state=keyed(steps.state, canonical)))


def forms() -> Iterator[tuple[str, Scored]]:
    """Name and recipe of everything that is compared."""
    for name in PLAIN:
        yield name, scored_recipe(name)
    for name in BY_STATE:
        recipe: Any = scored_recipe(name)
        clusters = hasattr(recipe, "fingerprint")
        by_text = recipe
        if hasattr(recipe, "states"):
            by_text = replace(recipe, states="exact")
        elif clusters:
            by_text = replace(recipe, fingerprint="identity", radius=0.0)
        yield f"{name}, text", by_text
        yield f"{name}, canonical", Keyed(by_text)
        if clusters:
            yield f"{name}, hidden", with_radius(recipe, example.RADIUS)
            yield f"{name}, hidden random", Regrouped(with_radius(recipe, example.RADIUS), "random")
            yield f"{name}, ngram", replace(recipe, fingerprint="ngram", radius=0.25)
        for control in ("random", "one"):
            yield f"{name}, {control}", Keyed(Regrouped(by_text, control))
    for name in ("g2po", "graphgpo_mean", "sbc@1", "sbc-centre"):
        recipe = scored_recipe(name)
        exact = replace(recipe, states="exact") if hasattr(recipe, "states") else recipe
        yield f"{name}, canonical", Keyed(exact)


FORMS = dict(forms())


def audit(place: Path, recipes: Mapping[str, Scored]) -> tuple[PolicyAudit, DecisionAudit | None]:
    """Score recipes on what a policy played."""
    played = []
    for path in sorted(place.glob("batch_*.npz")):
        known, success = kept_gradients(path, recipes)
        played.append((np.array([known[name] for name in recipes]), success))
    return compare(played, tuple(recipes)), decisions(place, recipes)


# Decisions.


def decisions(
    place: Path, recipes: Mapping[str, Callable[[StepTable], Any]]
) -> DecisionAudit | None:
    """Scores of the decisions in a folder."""
    parts = [PlayedDecisions.load(path) for path in sorted(place.glob("decisions_*.npz"))]
    return compare_decisions(parts, recipes) if parts else None


def decide(policy: TinyLlama, seed: str, count: int) -> PlayedDecisions:
    """Decisions of one batch, in states that saw several actions, and their continuations."""
    steps = episodes(policy, EPISODES, seed)
    by_state: dict[Any, dict[str, int]] = {}
    for row, step in enumerate(steps):
        state = by_state.setdefault((step.group, canonical(step.state)), {})
        state.setdefault(step.action, row)
    several = [list(rows.values()) for rows in by_state.values() if len(rows) > 1]
    rows: list[int] = []
    labels: list[int] = []
    for label in np.random.default_rng(len(steps)).permutation(len(several)):
        if len(rows) < count:
            rows += several[label]
            labels += [int(label)] * len(several[label])
    points = [after(steps, row, seed) for row in rows for _ in range(CONTINUATIONS)]
    rewards = play_on(policy, points, seed)
    paid = np.repeat([steps[row].reward for row in rows], CONTINUATIONS)
    returns = {}
    for objective, gamma in GAMMAS.items():
        later = [sum(gamma**k * r for k, r in enumerate(of, start=1)) for of in rewards]
        returns[objective] = (paid + np.array(later)).reshape(len(rows), CONTINUATIONS)
    state = np.unique(labels, return_inverse=True)[1]
    return PlayedDecisions(table(steps), np.array(rows), state, returns)


def after(steps: Sequence[Any], row: int, seed: str) -> tuple[Any, str, int]:
    """The game after a step, by replaying it; the name of its trajectory, and the next step."""
    name = steps[row].trajectory
    world = example.TextCraft(int(name[0]), random.Random(f"{seed} {name}"))
    for step in steps[row - steps[row].step : row + 1]:
        if world.inventory() != step.state:
            raise RuntimeError("the game does not replay")
        world.step(step.action)
    return world, name, steps[row].step + 1


def play_on(
    policy: TinyLlama, points: Sequence[tuple[Any, str, int]], seed: str
) -> list[list[float]]:
    """The rewards of a continuation from each point."""
    rewards: list[list[float]] = [[] for _ in points]
    generator = torch.Generator().manual_seed(random.Random(f"on {seed}").getrandbits(32))
    running = {}
    for index, (world, name, at) in enumerate(points):
        copied = copy.deepcopy(world)
        copied.rng = random.Random(f"{seed} {index}")
        running[index] = (copied, name, at)
    while running := {
        index: (world, name, at)
        for index, (world, name, at) in running.items()
        if not world.done and at < example.HORIZON
    }:
        steps = []
        for world, name, at in running.values():
            state = world.inventory()
            prompt = f"Before: {', '.join([*world.before, world.seen, state])} Action:"
            steps.append(example.Step(name[0], name, at, state, prompt=example.encode(prompt)))
        policy.act(steps, generator)
        for (index, (world, name, at)), step in zip(list(running.items()), steps, strict=True):
            rewards[index].append(world.step(step.action))
            running[index] = (world, name, at + 1)
    return rewards


if __name__ == "__main__":
    main()
