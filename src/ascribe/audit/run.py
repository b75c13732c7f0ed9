"""Run the audit: every recipe in every world, on blocks of fresh tasks, and what comes out."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from ascribe.audit.learning import learning_curves
from ascribe.audit.rollouts import Batch, Conditions, rollouts
from ascribe.audit.scores import Scores, Tally
from ascribe.audit.worlds import WORLDS
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable

Scored = Callable[[StepTable], Any]
"""A recipe, or any function of a step table whose answer has an ``advantage`` for every row."""

RESAMPLES = 2000
"""Bootstrap samples behind an interval."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What tells libraries for matrix products how many threads to use."""

LEARNING_SUCCESS = (0.03, 0.35)
"""Success at the start of a learning run: low, so that there is something to learn."""


METRICS = (*(score.name for score in fields(Scores)), "learning_auc")
"""Every metric, in the order of tables."""


@dataclass(frozen=True)
class Settings:
    """What the audit runs.

    Attributes:
        worlds: names of worlds.
        sizes: group sizes.
        blocks: independent blocks of tasks; intervals are over blocks.
        batches: batches of rollouts of each block.
        tasks: tasks of each block.
        updates: length of the learning run; 0 leaves it out.
        learning_size: group size of the learning run.
        gamma: discount of the true advantage; 0.95 is that of the step-level recipes.
        paraphrase: chance of another wording; by default each world's own.
        wordings: wordings of an observation; by default each world's own.
        noise: noise of fingerprints.
        blur: how much fingerprints of all states look alike, from 0 to 1.
        forms: surface forms of an action.
        seed: everything random follows from it.
    """

    worlds: tuple[str, ...] = tuple(WORLDS)
    sizes: tuple[int, ...] = (8,)
    blocks: int = 10
    batches: int = 4
    tasks: int = 8
    updates: int = 20
    learning_size: int = 8
    gamma: float = 0.95
    paraphrase: float | None = None
    wordings: int | None = None
    noise: float = Conditions.noise
    blur: float = Conditions.blur
    forms: int = 4
    seed: int = 0

    def conditions(self, world: str, size: int) -> Conditions:
        """How a world is rolled out."""
        own = WORLDS[world].paraphrase
        rate = own if self.paraphrase is None else self.paraphrase
        return Conditions(size, rate, self.noise, self.blur)


QUICK = Settings()
FULL = Settings(sizes=(4, 8, 16), blocks=12, batches=6, updates=40)


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval over blocks."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: for every case, the score of every block.

    ``scores[world, recipe, size][metric]`` holds one number for each block. Block i of a world and
    size is the same tasks, and the same rollouts, for every recipe, so differences are paired.
    """

    settings: Settings
    recipes: dict[str, str]
    """What each recipe is, in full."""
    scores: dict[tuple[str, str, int], dict[str, Floats]] = field(default_factory=dict)
    seconds: float = 0.0

    def blocks(self, world: str, recipe: str, size: int, metric: str) -> Floats:
        """The score of every block; the world ``mean`` is the mean over worlds."""
        if world == "mean":
            rows = [self.scores[w, recipe, size][metric] for w in self.settings.worlds]
            return np.asarray(np.mean(rows, axis=0))
        return self.scores[world, recipe, size][metric]

    def estimate(self, world: str, recipe: str, size: int, metric: str) -> Estimate:
        """The mean over blocks and its interval."""
        return interval(self.blocks(world, recipe, size, metric))

    def difference(self, world: str, first: str, second: str, size: int, metric: str) -> Estimate:
        """First recipe minus second, paired over blocks."""
        one = self.blocks(world, first, size, metric)
        return interval(one - self.blocks(world, second, size, metric))

    def metrics(self, size: int) -> list[str]:
        """Names of the metrics that every case of this size has."""
        found = self.scores[self.settings.worlds[0], next(iter(self.recipes)), size]
        return [name for name in METRICS if name in found]


def interval(values: Floats) -> Estimate:
    """Mean of the blocks, with the middle 95 % of the means of blocks drawn with replacement."""
    random = np.random.default_rng(0)
    picked = values[random.integers(0, values.size, (RESAMPLES, values.size))].mean(axis=1)
    low, high = np.quantile(picked, [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))


def audit(
    recipes: Mapping[str, Scored],
    settings: Settings = QUICK,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Score recipes against the truth.

    Args:
        recipes: what to score, by name.
        settings: what to run.
        processes: how many processes share the work; with more than one, the recipes must pickle.
        progress: called with the jobs done and the jobs in all.
    """
    began = time.perf_counter()
    given = dict(recipes)
    jobs: list[Callable[[], Found]] = []
    if settings.updates:  # first, since these are the long ones
        jobs += [partial(score_learning, given, settings, world) for world in settings.worlds]
    jobs += [
        partial(score_block, given, settings, world, size, block)
        for world in settings.worlds
        for size in settings.sizes
        for block in range(settings.blocks)
    ]
    cases: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for done, found in enumerate(_run(jobs, processes), start=1):
        for case, metric, values in found:
            cases.setdefault(case, {}).setdefault(metric, []).extend(values)
        if progress is not None:
            progress(done, len(jobs))
    scores = {
        case: {metric: np.array(values) for metric, values in metrics.items()}
        for case, metrics in cases.items()
    }
    named = {name: repr(recipe) for name, recipe in recipes.items()}
    return Audit(settings, named, scores, time.perf_counter() - began)


Found = list[tuple[tuple[str, str, int], str, list[float]]]
"""Scores of a job: case, metric, one number for each block."""


def score_block(
    recipes: Mapping[str, Scored], settings: Settings, world: str, size: int, block: int
) -> Found:
    """Every recipe on the same rollouts of one block of tasks."""
    random = np.random.default_rng([settings.seed, block, size, *world.encode()])
    given = WORLDS[world]
    tasks = given.tasks(settings.tasks, random, forms=settings.forms, wordings=settings.wordings)
    exact = tasks.solve(settings.gamma)
    tallies = {name: Tally(tasks, exact) for name in recipes}
    for _ in range(settings.batches):
        batch = rollouts(tasks, exact, random, settings.conditions(world, size))
        for name, recipe in recipes.items():
            tallies[name].add(batch, _advantage(recipe, batch))
    return [
        ((world, name, size), metric, [value])
        for name, tally in tallies.items()
        for metric, value in asdict(tally.scores()).items()
    ]


def score_learning(recipes: Mapping[str, Scored], settings: Settings, world: str) -> Found:
    """The area under every recipe's learning curve, block by block, from the same start."""
    size = settings.learning_size
    seed = [settings.seed, size, *b"learn", *world.encode()]
    tasks = WORLDS[world].tasks(
        settings.blocks * settings.tasks,
        np.random.default_rng(seed),
        forms=settings.forms,
        wordings=settings.wordings,
        success=LEARNING_SUCCESS,
    )
    found: Found = []
    for name, recipe in recipes.items():
        curves = learning_curves(
            tasks,
            partial(_advantage, recipe),
            np.random.default_rng([*seed, 1]),
            settings.conditions(world, size),
            updates=settings.updates,
            block=settings.tasks,
        )
        found.append(((world, name, size), "learning_auc", curves.mean(axis=0).tolist()))
    return found


def _advantage(recipe: Scored, batch: Batch) -> Floats:
    return np.asarray(recipe(batch.table).advantage, dtype=np.float64)


def _run(jobs: list[Callable[[], "Found"]], processes: int) -> Iterable["Found"]:
    if processes <= 1:
        yield from (job() for job in jobs)
        return
    # Processes share the cores already; threads inside matrix products would only get in the way.
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield from pool.map(_call, jobs)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _call(job: Callable[[], "Found"]) -> "Found":
    return job()
