"""Shared by the studies: runs that are made in pieces, their statistics, and their figures."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.groups.radius import Target
from ascribe.steps.atomic import replacing
from ascribe_lab.models import TransformersPolicy
from ascribe_lab.rollout import Plan, Rollout, Sampling, Setup, rollout
from ascribe_lab.train.chat import in_layout
from ascribe_lab.train.config import Layout
from benchmarks.common import read_lines

# Runs in pieces.

TARGET = Target(low=1e-4, over="rows")
"""BiPACE's rule for the radius of clusters: a median size of 4 to 8 (here over steps)."""

OPTIONS: dict[str, Any] = {
    "work": {"type": Path, "help": "folder for finished runs"},
    "processes": {"type": int, "default": 1},
    "minutes": {"type": float, "default": 1e9, "help": "start no run after so many"},
    "curves": {"type": Path, "help": "a file of curves of finished runs"},
}
"""Of every study whose runs are made in pieces."""


def run_units(run: Callable[[Any], None], units: Sequence[Any], processes: int) -> None:
    """All units, in several processes."""
    if processes == 1:
        for unit in units:
            run(unit)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(run, units))


def keep(line: Mapping[str, Any], path: Path) -> None:
    """Write the file of a run."""
    with replacing(path) as file:
        file.write(json.dumps(line).encode())


def finished(folder: Path) -> list[dict[str, Any]]:
    """The curves of all finished runs."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def play_all(
    model: Path,
    setup: Setup,
    repeats: int,
    turns: int,
    sampling: Sampling,
    most: int | None = None,
    tasks: Sequence[int] | None = None,
    layout: Layout = "step",
) -> Rollout:
    """Episodes of a model at all tasks of an environment, or at these, as a training plays them."""
    tasks = tasks or range(min(setup.facts[0] or 0, most or 10**9))
    count = len(tasks)
    plan = Plan(count, repeats, turns, seed=1, tasks=tasks, sampling=sampling)
    policy = TransformersPolicy.load(model, growing=layout == "trajectory")
    agent, policy = in_layout(layout, setup.agent, policy)
    with setup.open_pool(count * repeats) as pool:
        return rollout(plan, pool, agent, policy)


# Statistics.


def auc(line: Mapping[str, Any]) -> float:
    """The mean success over training, by trapezoids."""
    return float(np.trapezoid(line["held_out"]) / (len(line["held_out"]) - 1))


def sign_flip(differences: Sequence[float]) -> float:
    """The exact two-sided p value of the mean against all changes of signs.

    The sums of all 2^n changes are those of two halves, so 24 differences need 2 x 4096 sums.
    """
    values = np.asarray(differences, dtype=np.float64)
    halves = []
    for half in (values[: values.size // 2], values[values.size // 2 :]):
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=half.size)))
        halves.append(signs @ half)
    bound = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    second = np.sort(halves[1])
    above = second.size - np.searchsorted(second, bound - halves[0], side="left")
    below = np.searchsorted(second, -bound - halves[0], side="right")
    count = int(np.minimum(above + below, second.size).sum())
    return count / 2.0**values.size


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Values of p, corrected by Holm's method."""
    corrected, largest = {}, 0.0
    for place, name in enumerate(sorted(values, key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - place) * values[name]))
        corrected[name] = largest
    return corrected


def ranks(values: Sequence[float]) -> Any:
    """Ranks, with the mean rank for ties."""
    array = np.asarray(values)
    return (array[:, None] > array).sum(1) + ((array[:, None] == array).sum(1) - 1) / 2


def spearman(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Rank correlation, and its exact one-sided p value over all orders (of at most 9 items)."""
    x, y = ranks(first), ranks(second)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale == 0.0:
        return 0.0, 1.0
    found = float(x @ y)
    orders = np.array(list(itertools.permutations(range(len(y)))))
    return found / scale, float((y[orders] @ x >= found - 1e-9).mean())


# Figures.

Case = dict[str, float]
"""Values by metric."""
Cases = dict[str, Case]


def read(path: Path) -> Cases:
    """The figures of committed results."""
    found: Cases = {}
    for line in read_lines(path)[1:]:
        found.setdefault(line["case"], {})[line["metric"]] = line["value"]
    return found


def chance(case: Case, metric: str = "p") -> str:
    """A value of p, if there is one."""
    if metric not in case:
        return "–"
    return f"{case[metric]:.2g}" if case[metric] >= 1e-4 else "below 0.0001"
