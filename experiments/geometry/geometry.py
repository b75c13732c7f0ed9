"""Do hidden states of a pretrained model group steps of like value? BiPACE's claim, untrained.

``protocol.md`` says what is asked, and how. SmolLM2-135M plays TextCraft and generated
ALFWorld games: a command is drawn from the model's own probabilities of the admissible ones, or is
the expert's in a stated share of the steps, since the model alone hardly ever wins. The recording
holds every step, and hidden states at the end of the prompt, over the prompt and at the end of the
command. Then groupings of the steps of a task predict the returns of trajectories left out:
``explained`` is the share of their variance around the task's mean that goes, ``raw`` the same
without shrinkage, ``beyond_turn`` the share of what the task's mean in each turn leaves.

    python -m experiments.geometry.geometry --work runs/geometry --out geometry.jsonl

``--work`` keeps what was recorded, one file for each task; a run that was stopped goes on there.
The quick case has four other goals of TextCraft alone, and a tiny model that knows nothing.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ascribe import StepTable
from ascribe.groups.cluster import cluster_grams
from ascribe.groups.fingerprints import normalised
from ascribe.groups.keys import keyed, propose, tools_before
from ascribe.groups.ngram import ngram
from ascribe.groups.radius import Target, search
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import Coded
from ascribe_lab.models.loading import load_smollm2
from benchmarks import common
from experiments.geometry.geometry_record import ATTEMPTS, LAYERS, WORLDS, record, tiny_model

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "alfworld", "textworld")
PAGE = Path(__file__).with_name("report.md")
GAMMA = 0.95
RADII = tuple(digit * 10.0**power for power in (-4, -3, -2, -1) for digit in (1, 2, 5))
SHRINKAGES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, np.inf)
"""Rows that the base prediction counts for in the mean of a group."""
TURN_SHRINKAGE = 4.0
DRAWS = 8
"""Of random groups."""
LEVELS = {"hidden states": 0.05 / 3}
"""Of three contrasts that hold together at 0.05; the others hold one by one."""
CONTRASTS = {
    "hidden states": ("random texts", "n-grams", "exact text"),
    "hidden states, best radius": ("hidden states", "n-grams, best radius", "exact text"),
    "joint hidden states": ("hidden states", "joint n-grams"),
    "own key": ("exact text", "hidden states"),
}
SHOWN = (
    *("hidden states", "random texts", "n-grams", "exact text", "own key", "one state for all"),
    *(f"hidden states minus {other}" for other in CONTRASTS["hidden states"]),
    "own key minus hidden states",
)
"""Groupings and differences in the table of the page."""
QUESTIONS = ("states", "states with actions")
COLUMNS = (
    "variance",
    "error",
    "raw_error",
    "turn_variance",
    "turn_error",
    "alone",
    "pairs",
    "pure",
)
"""Numbers of a line of the curves: sums over the rows of a task."""

Option = tuple[str, Any]
"""A grouping that may be chosen: what it is, and the label of every row."""


# Groupings.


class Steps:
    """All recorded steps of an environment, by task, attempt and turn."""

    def __init__(self, folder: Path, name: str, tasks: range) -> None:
        rows, self.prompts, self.ends = list[dict[str, Any]](), list[Any](), list[Any]()
        for task in tasks:
            with np.load(folder / f"{name}-{task}.npz") as file:
                offsets = {"prompt": sum(map(len, self.prompts)), "pair": sum(map(len, self.ends))}
                for row in json.loads(str(file["rows"])):
                    moved = {key: row[key] + offset for key, offset in offsets.items()}
                    rows.append(row | moved | {"task": task})
                self.prompts.append(file["prompts"])
                self.ends.append(file["ends"])
        self.rows = rows
        self.task, self.turn, self.prompt, self.pair = (
            np.array([row[key] for row in rows]) for key in ("task", "step", "prompt", "pair")
        )
        self.task -= tasks.start
        self.trajectory = self.task * ATTEMPTS + np.array([row["attempt"] for row in rows])
        columns = {key: [row[key] for row in rows] for key in ("step", "state", "action", "reward")}
        columns["group"], columns["trajectory"] = map(str, self.task), map(str, self.trajectory)
        self.table = StepTable.from_columns({key: list(each) for key, each in columns.items()})
        self.state, self.action = self.table.state, self.table.action
        self.own = Coded.encode([row["own"] for row in rows])
        self.returns = reward_to_go(self.table.reward, self.trajectory, GAMMA)
        self.bounds = np.searchsorted(self.task, np.arange(len(tasks) + 1))
        self.folds = [self._folds(slice(*ends)) for ends in pairwise(self.bounds)]

    def _folds(self, rows: slice) -> list[tuple[Any, Any, Any]]:
        """Of a task: the base prediction of every row and what it leaves, by attempt left out.

        The base is the task's mean, or the mean of its turn, shrunk; from the other attempts.
        """
        returns, turn = self.returns[rows, None], np.eye(self.turn.max() + 1)[self.turn[rows]]
        others = (self.trajectory[rows, None] % ATTEMPTS != np.arange(ATTEMPTS)).astype(float)
        mean = np.broadcast_to((returns * others).sum(0) / others.sum(0), others.shape)
        left = turn.T @ ((returns - mean) * others) / (turn.T @ others + TURN_SHRINKAGE)
        return [(base, (returns - base) * others, others) for base in (mean, mean + turn @ left)]

    def errors(self, labels: Any, tasks: Any) -> Any:
        """Squared errors of the returns left out, of shape (tasks, bases, shrinkages).

        The mean of a group, over the other attempts, counts with its rows, the base with as many
        as the shrinkage says.
        """
        found = np.zeros((len(tasks), 2, len(SHRINKAGES)))
        for place, task in enumerate(tasks):
            start, stop = self.bounds[task : task + 2]
            group = np.unique(labels[start:stop], return_inverse=True)[1]
            member, own = np.eye(group.max() + 1)[group], self.trajectory[start:stop] % ATTEMPTS
            for number, (base, left, others) in enumerate(self.folds[task]):
                total, count = ((member.T @ each)[group, own] for each in (left, others))
                residual = self.returns[start:stop] - base[np.arange(own.size), own]
                weight = np.maximum(count + np.array(SHRINKAGES)[:, None], 1e-9)
                found[place, number] = ((residual - total / weight) ** 2).sum(axis=1)
        return found

    def counts(self, labels: Any) -> Any:
        """By task: rows that are alone, pairs of rows in a group, and those with one own key."""
        found = []
        for start, stop in pairwise(self.bounds):
            group, own = labels[start:stop], self.own.codes[start:stop]
            size = np.unique(group, return_counts=True)[1]
            both = np.unique(np.stack([group, own]), axis=1, return_counts=True)[1]
            found.append([(size == 1).sum(), *((n * (n - 1) // 2).sum() for n in (size, both))])
        return np.array(found)

    def joined(self, *codes: Any) -> Any:
        """Labels of the rows with equal codes in one task."""
        return np.unique(np.stack([self.task, *codes]), axis=1, return_inverse=True)[1].ravel()

    def shuffled(self, labels: Any, unit: Any, random: np.random.Generator) -> Any:
        """The labels dealt anew to the units (rows, or texts) of each task."""
        dealt = labels.copy()
        for start, stop in pairwise(self.bounds):
            first, unit_of = np.unique(unit[start:stop], return_index=True, return_inverse=True)[1:]
            dealt[start:stop] = labels[start:stop][random.permutation(first)][unit_of]
        return dealt


def clusters(steps: Steps, what: str, vectors: Any, half: Any, *, tuned: bool) -> list[Option]:
    """Clusters at every radius, or at that which gives groups of a half the right median size."""
    units = normalised(vectors)
    grams = [units[start:stop] @ units[start:stop].T for start, stop in pairwise(steps.bounds)]
    radii = RADII
    if not tuned:
        chosen, target = [grams[task] for task in half], Target()
        ways = {r: target.direction(target.median(cluster_grams(chosen, r))) for r in RADII}
        low = max((radius for radius, way in ways.items() if way > 0), default=0.0)
        high = min((r for r, way in ways.items() if way < 0 and r > low), default=RADII[-1])
        radii = (search(chosen, replace(target, low=low, high=high)).radius,)
    return [
        (f"{what}, radius {r:.3g}", steps.joined(np.concatenate(cluster_grams(grams, r))))
        for r in radii
    ]


def families(steps: Steps, half: Any) -> Iterator[tuple[str, list[Option]]]:
    """Every family of groupings, with the options that one half of the tasks may choose from."""
    prompts, ends = (np.concatenate(parts) for parts in (steps.prompts, steps.ends))
    texts, actions = (
        np.array([row[key] for row in steps.rows], dtype=object) for key in ("state", "action")
    )
    spaces = {
        "hidden states": {
            f"block {LAYERS[layer]}, {pooling}": prompts[steps.prompt, layer, number]
            for layer in range(prompts.shape[1])
            for number, pooling in enumerate(("last token", "mean"))
        },
        "n-grams": {"n-grams": ngram(texts)},
        "joint hidden states": {
            f"block {LAYERS[layer]}": ends[steps.pair, layer] for layer in range(ends.shape[1])
        },
        "joint n-grams": {"n-grams": ngram(texts + "\n" + actions)},
    }
    for name, space in spaces.items():
        for tuned in (False, True):
            options = [clusters(steps, *each, half, tuned=tuned) for each in space.items()]
            yield name + ", best radius" * tuned, [one for some in options for one in some]
    key = propose(steps.table.take(np.isin(steps.task, half)))
    coded = keyed(steps.state, key, tools_before(steps.table)).codes
    yield "exact text", [("", steps.joined(steps.state.codes))]
    yield "canonical key", [(key.in_words(), steps.joined(coded))]
    yield "own key", [("", steps.joined(steps.own.codes))]
    yield "turn", [("", steps.joined(steps.turn))]
    yield "own key and turn", [("", steps.joined(steps.own.codes, steps.turn))]
    yield "one state for all", [("", steps.task)]


def curves(name: str, steps: Steps) -> Iterator[dict[str, Any]]:
    """The errors of every grouping in every task, with choices made on the other half of them."""
    tasks, each_row = np.arange(len(steps.folds)), np.arange(len(steps.rows))
    for number in (0, 1):
        half, random = tasks[tasks % 2 == number], np.random.default_rng(number)
        for family, options in families(steps, half):
            joint = family.startswith("joint")
            for question in QUESTIONS[joint:]:

                def split(labels: Any, whole: bool = joint or question == QUESTIONS[0]) -> Any:
                    return labels if whole else steps.joined(labels, steps.action.codes)

                of_half = [steps.errors(split(labels), half)[:, 0] for _, labels in options]
                choice, labels = options[np.argmin([e.sum(axis=0).min() for e in of_half])]
                draws = {family: [split(labels)]}
                if family == "hidden states":
                    deal, texts = steps.shuffled, steps.state.codes
                    rows = [deal(split(labels), each_row, random) for _ in range(DRAWS)]
                    merged = [split(deal(labels, texts, random)) for _ in range(DRAWS)]
                    draws |= {"random rows": rows, "random texts": merged}
                for called, dealt in draws.items():
                    errors = np.mean([steps.errors(each, tasks) for each in dealt], axis=0)
                    counts = np.mean([steps.counts(each) for each in dealt], axis=0)
                    shrinkage = errors[half].sum(axis=0).argmin(axis=1)
                    for task in np.setdiff1d(tasks, half):
                        (raw, *_), beyond = errors[task]
                        line = {"environment": name, "question": question, "grouping": called}
                        line |= {"choice": choice, "task": int(task)}
                        line |= {"rows": int(np.diff(steps.bounds)[task])}
                        values = (errors[task, 0, -1], errors[task, 0, shrinkage[0]], raw)
                        values += (beyond[-1], beyond[shrinkage[1]], *counts[task])
                        yield line | {
                            key: float(f"{value:.6g}")
                            for key, value in zip(COLUMNS, values, strict=True)
                        }


# Figures.


def gains(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, tuple[float, ...]]]:
    """Every case and metric of the curves: a value, and the ends of its interval if it has one."""
    cases: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in sorted(lines, key=itemgetter("task")):
        case = cases.setdefault(f"{line['environment']}, {line['question']}", {})
        case.setdefault(line["grouping"], []).append(line)
    for place, groupings in cases.items():
        of = {
            name: {key: np.array([line[key] for line in some]) for key in ("rows", *COLUMNS)}
            for name, some in groupings.items()
        }
        for name, own in of.items():
            where, variance, beyond = f"{place}, {name}", own["variance"], own["turn_variance"]
            yield where, "explained", share(variance - own["error"], variance)
            yield where, "raw", share(variance - own["raw_error"], variance)
            yield where, "beyond_turn", share(beyond - own["turn_error"], beyond)
            yield where, "alone", (own["alone"].sum() / own["rows"].sum(),)
            yield where, "purity", (own["pure"].sum() / max(own["pairs"].sum(), 1),)
        for first, others in CONTRASTS.items():
            for other in others if first in of else ():
                gain, level = of[other]["error"] - of[first]["error"], LEVELS.get(first, 0.05)
                where = f"{place}, {first} minus {other}"
                yield where, "explained", share(gain, of[first]["variance"], level)


def share(part: Any, whole: Any, level: float = 0.05) -> tuple[float, float, float]:
    """The sum of one as a share of that of the other, with a bootstrap interval over tasks."""
    times = drawn_times(len(part))
    low, high = np.quantile(times @ part / (times @ whole), [level / 2, 1 - level / 2])
    return float(part.sum() / whole.sum()), float(low), float(high)


@cache
def drawn_times(tasks: int) -> Any:
    """How often each task is drawn, in 10,000 draws of as many."""
    drawn = np.random.default_rng(0).integers(0, tasks, (10_000, tasks))
    return np.stack([(drawn == task).sum(axis=1) for task in range(tasks)], axis=1).astype(float)


def filled(page: str, lines: Sequence[dict[str, Any]]) -> str:
    """The page with the table of these curves."""
    cells = {case: values for case, metric, values in gains(lines) if metric == "explained"}
    rows = ["| grouping |", "| --- |"]
    for world in WORLDS:
        rows[0] += f" {world}: states | with actions |"
        rows[1] += " --- |" * 2
    for name in SHOWN:
        row = f"| {name} |"
        for world, question in product(WORLDS, QUESTIONS):
            sign = "+" if " minus " in name else ""
            ends = [f"{value:{sign}.3f}" for value in cells[f"{world}, {question}, {name}"]]
            row += f" {ends[0]} ({ends[1]} to {ends[2]}) |"
        rows.append(row)
    return common.fill_page(page, {"geometry": "\n".join(rows)})


def main() -> None:
    """Record what is missing, analyse and print."""
    work = {"type": Path, "help": "folder for the recording"}
    with common.Figures("geometry", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        folder, lines = figures.options.work or Path(spare), list[dict[str, Any]]()
        folder.mkdir(parents=True, exist_ok=True)
        worlds = WORLDS
        if figures.quick:
            worlds = {"textcraft": replace(WORLDS["textcraft"], tasks=range(60, 64), assisted=0.5)}
        for name, world in worlds.items():
            record(name, world, folder, tiny_model if figures.quick else load_smollm2)
        for name, world in worlds.items():
            steps = Steps(folder, name, world.tasks)
            ended = np.unique(steps.trajectory).size
            figures.emit(name, "episodes", ended, "episodes", "higher")
            figures.emit(name, "steps", len(steps.rows), "steps", "higher")
            figures.emit(name, "won", (steps.table.reward > 0).sum() / ended, "share", "higher")
            assisted = np.mean([row["assisted"] for row in steps.rows])
            figures.emit(name, "assisted", assisted, "share", "lower")
            lines += curves(name, steps)
        for case, metric, values in gains(lines):
            better: common.Better = "lower" if metric == "alone" else "higher"
            if len(values) > 1:
                figures.emit_interval(case, metric, values, "share", better)
            else:
                figures.emit(case, metric, values[0], "share", better)
        figures.write_curve(lines)


if __name__ == "__main__":
    main()
