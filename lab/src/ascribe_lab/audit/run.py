"""Run the audit: every recipe in every world, on independent blocks of tasks."""

import copy
import itertools
import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from ascribe.estimators import RECIPES
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe.steps.plugins import load_path
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import Coded, StepTable
from ascribe_lab.audit.rare import ALL_WORLDS
from ascribe_lab.audit.scores import MOMENTUM, Truth, later, learning_curves, scores_of
from ascribe_lab.audit.tasks import AuditBatch, Conditions, TabularTasks, rollouts
from ascribe_lab.audit.worlds import WORLDS, World

Scored = Callable[[StepTable], Any]
"""A recipe, or any function of a step table whose result has an ``advantage`` for every row."""

Case = tuple[str, str, int]
"""World, recipe, group size."""

Scores = dict[Case, dict[str, Floats]]
"""By case and metric, one number for each block."""

SCORING, LEARNING = 5, 99
"""Seeds of the two uses of rollouts."""

RESAMPLES = 2000
"""Bootstrap samples behind an interval."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that set the number of threads of matrix products."""

SUCCESS = (0.03, 0.35)
"""Bounds on the success of the first policy: low, so that there is much to learn."""

METRICS = (
    *("momentum_auc", "learning_auc", "update_cosine", "gradient_cosine", "gradient_direction"),
    *("cosine", "sign", "mse", "success_cosine", "later_success_cosine"),
    *("action_gradient_cosine", "gradient_variance"),
)
"""Every metric, in the order of tables. ``later_NAME`` and ``update_cosine`` are those of the
better of two policies."""

# Which recipes are scored.

MEAN = {"normalise": "mean"}

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name}_mean": (name, MEAN)
    for name in ("gigpo", "hgpo", "bigpo", "bipace_diff", "bipace_q", "graphgpo", "judged")
} | {
    "entropy_returns": ("entropy", {"wraps": "returns"}),
    "returns_turn": ("returns", {"baseline": "turn"}),
    "returns_memory": ("returns", {"memory": 0.8}),
    "sbc_exact": ("sbc", {"states": "exact"}),
    "sbc_memory": ("sbc", {"states": "exact", "memory": 0.8}),
    "sbc_keep": ("sbc", {"on_collapse": "keep"}),
    "bipace_q_text": ("bipace_q", {"fingerprint": "identity", "radius": 0.0}),
    "sbc_ngram": ("sbc", {"fingerprint": "ngram", "radius": 0.25}),
}
"""Recipes in another form than their default.

``NAME_mean`` is the mean-centred form of a recipe that divides by a standard deviation by default.
Dividing gives every task and every state the same spread, whatever its returns were. The true
advantage has no such scale, so a recipe is scored in both forms, and a claim must hold against the
better of the two. ``sbc_exact`` and ``bipace_q_text`` group exact texts, ``sbc_ngram`` clusters
texts by their n-grams, ``sbc_keep`` keeps collapsed clusters. ``NAME_memory`` remembers earlier
batches of the same task.
"""

CONTROLS: dict[str, tuple[str, Any]] = {
    "equal": ("scale", "equal"),
    "random": ("states", "random"),
    "one": ("states", "one"),
}
"""``NAME_CONTROL`` is a recipe, or a form of one, with one thing changed.

``equal``: terms rescaled to equal sizes. ``random``: the states of a task dealt at random to its
steps, so that groups have the same sizes and mean nothing. ``one``: one state for all steps of a
task. Discounting alone, without states, is ``returns``.
"""

QUICK_FORMS = (
    *("grpo", "returns", "gigpo", "gigpo_mean", "gigpo_mean_random"),
    *("bipace_q_mean", "bipace_q_equal", "sbc"),
)
"""What the quick audit scores."""

FULL_FORMS = (
    *("grpo", "rloo", "returns", "returns_turn", "returns@0.9", "returns@1"),
    *("gigpo", "gigpo_mean", "gigpo_mean@1", "gigpo_mean_equal"),
    *("gigpo_mean_random", "gigpo_mean_one", "hgpo", "bigpo_mean", "bipace_diff_mean"),
    *("bipace_q", "bipace_q_mean", "bipace_q_equal", "bipace_q_mean_random"),
    *("sbc_exact", "sbc", "sbc@1", "sbc_random", "sbc_one"),
    *("gae", "progress", "judged_mean", "g2po", "graphgpo_mean", "entropy", "entropy_returns"),
)
"""What the full audit scores."""


@dataclass(frozen=True)
class Regrouped:
    """A recipe on steps whose states mean nothing: dealt at random inside each task, or all one."""

    recipe: Scored
    states: str

    def __call__(self, table: StepTable) -> Any:
        """What the recipe computes from the changed table."""
        if self.states == "one":
            state = Coded(np.zeros(len(table), dtype=np.int64), np.array(["one"], dtype=object))
            return self.recipe(replace(table, state=state, fingerprint=None))
        task = table.group.codes
        dealt = np.empty(task.size, dtype=np.int64)
        chance = np.random.default_rng(task.size).random(task.size)
        dealt[np.argsort(task, kind="stable")] = np.lexsort((chance, task))
        fingerprint = None if table.fingerprint is None else table.fingerprint[dealt]
        return self.recipe(replace(table, state=table.state.take(dealt), fingerprint=fingerprint))


class Informed:
    """A recipe on tables with the columns that it needs, learned from the batch before.

    ``value``: the mean discounted return of the visits to the same text in the batch before; of all
    steps of the task for a text that did not occur. ``score``: the same without discount.
    ``step_score``: 1, 0 or -1 if the score rises, stays or falls with the step; for a last step by
    its reward. Before the first batch all are 0. Nothing comes from the truth.
    """

    def __init__(self, recipe: Scored, before: StepTable | None = None) -> None:
        self.recipe, self.before = recipe, before
        inner = getattr(recipe, "inner", recipe)
        self.gamma = float(getattr(inner, "gamma", 0.95))

    def __call__(self, table: StepTable) -> Any:
        """What the recipe computes with its columns."""
        value, score = (visit_means(self.before, table, gamma) for gamma in (self.gamma, 1.0))
        self.before, steps = table, arrange(table)
        ordered = score[steps.rows]
        goes_on = np.append(steps.trajectory[1:] == steps.trajectory[:-1], False)
        gain = np.where(goes_on, np.append(ordered[1:], 0.0) - ordered, steps.reward - ordered)
        judged = steps.to_table_order(np.sign(gain), len(table), 0.0)
        return self.recipe(replace(table, value=value, score=score, step_score=judged))


def visit_means(before: StepTable | None, table: StepTable, gamma: float) -> Floats:
    """For each row of a table, the mean return of the visits to its text in another one.

    Args:
        before: another table of the same tasks, whose texts have the same codes.
        table: the rows.
        gamma: discount of a return.
    """
    if before is None:
        return np.zeros(len(table))
    steps, texts = arrange(before), int(before.state.values.size)
    returns = np.zeros(len(before))
    returns[steps.rows] = reward_to_go(steps.reward, steps.trajectory, gamma)
    tasks = int(before.group.values.size)
    place, key = (each.group.codes * texts + each.state.codes for each in (before, table))
    count = np.bincount(place, minlength=tasks * texts)
    total = np.bincount(place, weights=returns, minlength=tasks * texts)
    of_task = segments.mean(returns, before.group.codes, tasks)[table.group.codes]
    return np.where(count[key] > 0, total[key] / np.maximum(count[key], 1), of_task)


class Carrying:
    """A recipe that passes its history on from batch to batch."""

    def __init__(self, recipe: Callable[..., Any]) -> None:
        self.recipe, self.history = recipe, None

    def __call__(self, table: StepTable) -> Any:
        """What the recipe computes from this batch and what it kept of those before."""
        credit = self.recipe(table, history=self.history)
        self.history = credit.history
        return credit


def fresh(recipe: Scored, before: StepTable | None = None) -> Scored:
    """The recipe for one run, as if nothing had run before.

    It gets the columns that it needs and a table of the audit lacks, and its own history.
    """
    if set(getattr(recipe, "columns", ())) & {"value", "score", "step_score"}:
        return Informed(recipe, before)
    if getattr(recipe, "has_history", False):
        return Carrying(recipe)
    return copy.deepcopy(recipe)  # one of a user's own may keep what it has seen


def scored_recipe(name: str) -> Scored:
    """The recipe with this name: a default recipe, a form or control of one, or ``module:Name``.

    ``module:Name`` is a recipe class, which is called without arguments, or any function that takes
    a ``StepTable`` and returns a ``Credit``. ``NAME@GAMMA`` is the recipe ``NAME`` with a discount.

    Raises:
        ValueError: if there is none.
    """
    if ":" in name:
        imported = load_path(name)
        recipe: Scored = imported() if isinstance(imported, type) else imported
        if not callable(recipe):
            raise InputError(
                f"{name} cannot be called on a table", hint="name a recipe or a function"
            )
        return recipe
    plain, _, gamma = name.partition("@")
    if gamma:
        return _changed(plain, "gamma", float(gamma))
    plain, _, control = name.rpartition("_")
    if control in CONTROLS and name not in RECIPES:
        return _controlled(plain, control)
    recipe_name, changes = FORMS.get(name, (name, {}))
    if recipe_name not in RECIPES:
        known = (*RECIPES, *FORMS)
        raise unknown("recipe", name, known, "name your own as module:Name")
    return RECIPES[recipe_name](**changes)


def _controlled(plain: str, control: str) -> Scored:
    if control in ("random", "one"):
        return Regrouped(scored_recipe(plain), control)
    return _changed(plain, *CONTROLS[control])


def _changed(plain: str, name: str, value: Any) -> Scored:
    recipe: Any = scored_recipe(plain)
    if not hasattr(recipe, name):
        raise InputError(f"{plain} has no {name}, so it cannot be {value}")
    changed: Scored = replace(recipe, **{name: value})
    return changed


# What is run, and the result.


@dataclass(frozen=True)
class Settings:
    """What the audit runs.

    Attributes:
        worlds: the worlds by name.
        sizes: group sizes.
        blocks: independent blocks of tasks; intervals are over blocks.
        batches: batches of rollouts that are scored, of each of two policies.
        tasks: tasks of each block.
        updates: length of the learning run; 0 skips it.
        plain: whether policies learn a second time, without momentum.
        learning_size: group size of the learning run.
        parts: updates in which every task of a block is rolled out once, each with a part of them.
        gamma: discount of the true advantage; 0.95 is that of the step-level recipes.
        paraphrase: probability of a paraphrase; by default each world's own.
        wordings: wordings of an observation; by default each world's own.
        noise: noise of fingerprints; by default each world's own.
        blur: how similar the fingerprints of all states are, from 0 to 1.
        forms: surface forms of an action.
        seed: seed of all randomness.
    """

    worlds: Mapping[str, World] = field(default_factory=lambda: WORLDS)
    sizes: tuple[int, ...] = (8,)
    blocks: int = 10
    batches: int = 6
    tasks: int = 8
    updates: int = 20
    plain: bool = False
    learning_size: int = 8
    parts: int = 1
    gamma: float = 0.95
    paraphrase: float | None = None
    wordings: int | None = None
    noise: float | None = None
    blur: float = Conditions.blur
    forms: int = 4
    seed: int = 0

    def conditions(self, world: str, size: int) -> Conditions:
        """How a world is rolled out."""
        own = self.worlds[world]
        rate = own.paraphrase if self.paraphrase is None else self.paraphrase
        noise = own.noise if self.noise is None else self.noise
        return Conditions(size, rate, noise, self.blur)

    def random(self, world: str, *use: int) -> np.random.Generator:
        """The random numbers of one use in one world."""
        return np.random.default_rng([self.seed, *use, *world.encode()])

    def draw_tasks(self, world: str) -> TabularTasks:
        """The tasks of all blocks of a world."""
        return self.worlds[world].tasks(
            self.blocks * self.tasks,
            self.random(world),
            forms=self.forms,
            wordings=self.wordings,
            success=SUCCESS,
        )


QUICK = Settings(blocks=6)
FULL = Settings(worlds=ALL_WORLDS, blocks=8)


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval over blocks."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit: for every case, the score of every block.

    ``scores[world, recipe, size][metric]`` holds one number for each block. Block i of a world and
    size has the same tasks, and the same rollouts, for every recipe, so differences are paired.
    """

    settings: Settings
    recipes: dict[str, str]
    """The full description of each recipe."""
    scores: Scores = field(default_factory=dict)
    seconds: float = 0.0

    def blocks(self, world: str, recipe: str, size: int, metric: str) -> Floats:
        """The score of every block; the world ``mean`` is the mean over worlds."""
        if world == "mean":
            rows = [self.scores[w, recipe, size][metric] for w in self.settings.worlds]
            return np.asarray(np.mean(rows, axis=0))
        return self.scores[world, recipe, size][metric]

    def estimate(self, world: str, recipe: str, size: int, metric: str) -> Interval:
        """The mean over blocks and its interval."""
        return interval(self.blocks(world, recipe, size, metric))

    def difference(self, world: str, first: str, second: str, size: int, metric: str) -> Interval:
        """First recipe minus second, paired over blocks."""
        minuend = self.blocks(world, first, size, metric)
        return interval(minuend - self.blocks(world, second, size, metric))

    def metrics(self, size: int) -> list[str]:
        """Names of the metrics that every case of this size has."""
        scores = self.scores[next(iter(self.settings.worlds)), next(iter(self.recipes)), size]
        return [name for name in METRICS if name in scores]


def interval(values: Floats) -> Interval:
    """Mean of the blocks, with the 95 % bootstrap interval of the mean."""
    random = np.random.default_rng(0)
    means = values[random.integers(0, values.size, (RESAMPLES, values.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


# The run.


def audit(
    recipes: Mapping[str, Scored],
    settings: Settings = QUICK,
    *,
    processes: int = 1,
    progress: Callable[[float], None] = lambda _: None,
) -> Audit:
    """Score recipes against exact advantages.

    Args:
        recipes: what to score, by name.
        settings: what to run.
        processes: how many processes share the work; with more than one, the recipes must pickle.
        progress: called with the share that is done.
    """
    began = time.perf_counter()
    recipes = dict(recipes)
    jobs: list[Callable[[], Scores]] = []
    if settings.updates:  # first, since these are the long ones
        jobs += [partial(score_learning, recipes, settings, world) for world in settings.worlds]
    jobs += [
        partial(score_batches, recipes, settings, world, size)
        for world in settings.worlds
        for size in settings.sizes
    ]
    scores: Scores = {}
    for done, of_job in enumerate(_run(jobs, processes), start=1):
        for case, metrics in of_job.items():
            scores.setdefault(case, {}).update(metrics)
        progress(done / len(jobs))
    descriptions = {name: repr(recipe) for name, recipe in recipes.items()}
    return Audit(settings, descriptions, scores, time.perf_counter() - began)


def score_batches(
    recipes: Mapping[str, Scored], settings: Settings, world: str, size: int
) -> Scores:
    """Every recipe on the same rollouts of two policies: the first, and a better one."""
    tasks, conditions = settings.draw_tasks(world), settings.conditions(world, size)
    scores: Scores = {(world, name, size): {} for name in recipes}
    for stage, policy in (("", tasks), ("later_", later(tasks, settings.tasks))):
        exact, random = policy.solve(settings.gamma), settings.random(world, size, SCORING)
        truth = Truth.of(policy, exact, settings.tasks)
        batches = [rollouts(policy, exact, random, conditions) for _ in range(settings.batches)]
        for name, recipe in recipes.items():
            by = fresh(recipe, batches[-1].table)
            estimates = [advantage(by, batch) for batch in batches]
            found = scores_of(policy, truth, batches, estimates)
            if stage:  # that of the better policy counts
                scores[world, name, size]["update_cosine"] = found["update_cosine"]
            named = {f"{stage}{metric}": values for metric, values in found.items()}
            scores[world, name, size] |= {m: v for m, v in named.items() if m in METRICS}
    return scores


def score_learning(recipes: Mapping[str, Scored], settings: Settings, world: str) -> Scores:
    """The area under every recipe's learning curves, block by block, from the same start."""
    size, tasks = settings.learning_size, settings.draw_tasks(world)
    scores: Scores = {(world, name, size): {} for name in recipes}
    runs = {"momentum_auc": MOMENTUM} | ({"learning_auc": 0.0} if settings.plain else {})
    for (name, recipe), (metric, momentum) in itertools.product(recipes.items(), runs.items()):
        curves = learning_curves(
            tasks,
            partial(advantage, fresh(recipe)),
            settings.random(world, size, LEARNING),
            settings.conditions(world, size),
            updates=settings.updates,
            block=settings.tasks,
            momentum=momentum,
            parts=settings.parts,
        )
        scores[world, name, size][metric] = curves.mean(axis=0)
    return scores


def advantage(recipe: Scored, batch: AuditBatch) -> Floats:
    """The advantage of every row of a batch."""
    return np.asarray(recipe(batch.table).advantage, dtype=np.float64)


def _run(jobs: list[Callable[[], Scores]], processes: int) -> Iterable[Scores]:
    if processes <= 1:
        yield from (job() for job in jobs)
        return
    # The processes use all cores already; threads inside matrix products would slow them down.
    saved = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield from pool.map(operator.call, jobs)
    finally:
        for name, value in saved.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
