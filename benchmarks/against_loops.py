"""The same credit by the access pattern of published code, and by Ascribe, in one process.

GiGPO, 6,400 rows (16 groups of 8 trajectories of 50 steps): the loops keep dictionaries by group
and state, and search the whole batch for every row to put the returns of its trajectory back, so
their time grows with the square of the rows. Both get the same columns of Python texts and numbers;
one line counts Ascribe's time from there, one from a table that has been read already.

Grouping by similarity, 400 rows of one group, texts of 300 characters: first fit with
``difflib.SequenceMatcher``, row by row, beside ``ascribe.groups.similar``, which compares a text
that occurs in several rows once. The two measures are not the same (difflib takes the longest
common block and goes on left and right of it; Ascribe takes the longest common subsequence, which
is never shorter), so the share of pairs that both put on the same side of the threshold is printed
too. With autojunk, difflib's default, characters that are frequent in a text of 200 or more
characters are not compared.
"""

import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import common
import numpy as np
from common import Figures, Work, interleaved

from ascribe import StepTable
from ascribe.estimators import GiGPO
from ascribe.groups.similar import similar
from ascribe.steps.check import arrange

THRESHOLD = 0.9
EPSILON = 1e-6

Columns = dict[str, Any]
Compared = dict[tuple[str, str], bool]
"""Whether two texts, in this order, were found similar."""


def main() -> None:
    """Measure and print."""
    with Figures("against_loops") as figures:
        gigpo(figures)
        similarity(figures)


# GiGPO.


def gigpo(figures: Figures) -> None:
    """GiGPO by loops and by Ascribe, with its defaults."""
    table = common.steps(16, lengths=(50, 50))
    columns = {name: list(values) for name, values in _columns(table).items()}
    recipe = GiGPO()
    ours = recipe(table).advantage
    difference = float(np.abs(ours - loops(columns, recipe.gamma)).max())
    if difference > 1e-9:
        sys.exit(f"the loops and Ascribe disagree by {difference}")

    works = {
        "loops": Work(lambda: columns, lambda given: loops(given, recipe.gamma)),
        "columns": Work(lambda: columns, lambda given: recipe(StepTable.from_columns(given))),
        "table": Work(lambda: replace(table), recipe),
    }
    seconds = interleaved(works, rounds=3 if figures.quick else 7)
    case = f"gigpo, {len(table):,} rows"
    figures.emit(f"{case}, loops", "cpu_seconds", seconds["loops"].cpu, "s", "lower")
    for name, said in (("columns", "from columns"), ("table", "from a table")):
        cpu = seconds[name].cpu
        speedup = seconds["loops"].cpu / cpu
        figures.emit(f"{case}, {said}", "cpu_seconds", cpu, "s", "lower")
        figures.emit(f"{case}, {said}", "speedup", speedup, "ratio", "higher", 100.0)
    figures.emit(case, "largest_difference", difference, "advantage", "lower", 1e-9)


def _columns(table: StepTable) -> Columns:
    names = ("group", "trajectory", "state", "action")
    texts = {name: table.columns()[name].texts() for name in names}
    return texts | {"step": table.step.tolist(), "reward": table.reward.tolist()}


def loops(columns: Columns, gamma: float) -> np.ndarray:
    """GiGPO's advantages, with the defaults of the paper, row by row.

    Names are kept in object arrays, as batches of engines hold them. Rows of a trajectory come in
    the order of its steps.
    """
    group, state = columns["group"], columns["state"]
    trajectory = np.array(columns["trajectory"], dtype=object)
    reward = np.array(columns["reward"])

    episode: dict[str, float] = {}
    discounted: dict[str, list[float]] = {}
    for name in dict.fromkeys(columns["trajectory"]):
        rewards = reward[trajectory == name]
        episode[name] = float(rewards.sum())
        running, backwards = 0.0, []
        for paid in rewards[::-1]:
            running = float(paid) + gamma * running
            backwards.append(running)
        discounted[name] = backwards[::-1]

    returns = []
    for row, name in enumerate(trajectory):
        places = np.flatnonzero(trajectory == name)  # the whole batch, once for every row
        returns.append(discounted[name][int(np.flatnonzero(places == row)[0])])

    members: dict[str, dict[str, float]] = defaultdict(dict)
    visits: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, name in enumerate(trajectory):
        members[group[row]][name] = episode[name]
        visits[group[row], state[row]].append(row)

    advantage = np.zeros(len(returns))
    of_group = {name: _mean_and_std(list(values.values())) for name, values in members.items()}
    for row, name in enumerate(trajectory):
        mean, std = of_group[group[row]]
        if len(members[group[row]]) > 1:
            advantage[row] = (episode[name] - mean) / (std + EPSILON)
    for rows in visits.values():
        if len(rows) > 1:
            mean, std = _mean_and_std([returns[row] for row in rows])
            for row in rows:
                advantage[row] += (returns[row] - mean) / (std + EPSILON)
    return advantage


def _mean_and_std(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


# Grouping by similarity.


def similarity(figures: Figures) -> None:
    """First fit over the rows of one group, with difflib and with Ascribe."""
    length = 12 if figures.quick else 50
    table = common.steps(1, lengths=(length, length))
    arranged, values = arrange(table), table.state.values
    texts = list(values[arranged.state])
    fitted: dict[bool, tuple[list[int], Compared]] = {}

    def ours(_: Any = None) -> list[int]:
        return similar(arranged.group, arranged.state, values, THRESHOLD).labels.tolist()

    def theirs(autojunk: bool) -> None:
        fitted[autojunk] = first_fit(texts, autojunk)

    works = {"ours": Work(lambda: None, ours)}
    for autojunk in (False, True):
        works[_said(autojunk)] = Work(lambda given=autojunk: given, theirs)
    # difflib takes long, so no repetition is spent on warming up.
    seconds = interleaved(works, rounds=1 if figures.quick else 3, warm_up=False)
    case = f"similar, {len(texts):,} rows"
    figures.emit(f"{case}, ascribe", "cpu_seconds", seconds["ours"].cpu, "s", "lower")
    for autojunk, (labels, compared) in fitted.items():
        agreed = statistics.mean(both_similar(pair) == found for pair, found in compared.items())
        equal = labels == ours()
        if agreed == 1.0 and not equal:
            sys.exit("every comparison agrees, and the groups do not")
        said, cpu = f"{case}, {_said(autojunk)}", seconds[_said(autojunk)].cpu
        speedup, goal = cpu / seconds["ours"].cpu, None if autojunk else 20.0
        figures.emit(said, "cpu_seconds", cpu, "s", "lower")
        figures.emit(said, "speedup", speedup, "ratio", "higher", goal)
        figures.emit(said, "partition_agreement", agreed, "share", "higher")
        figures.emit(said, "partitions_equal", float(equal), "1 is yes", "higher")


def _said(autojunk: bool) -> str:
    return f"difflib {'with' if autojunk else 'without'} autojunk"


def first_fit(texts: list[str], autojunk: bool) -> tuple[list[int], Compared]:
    """Each text joins the first group whose first text is similar enough, else founds one."""
    founders: list[str] = []
    labels = []
    compared: Compared = {}
    for text in texts:
        for number, founder in enumerate(founders):
            ratio = SequenceMatcher(None, text, founder, autojunk=autojunk).ratio()
            compared[text, founder] = ratio >= THRESHOLD
            if compared[text, founder]:
                labels.append(number)
                break
        else:
            labels.append(len(founders))
            founders.append(text)
    return labels, compared


def both_similar(pair: tuple[str, str]) -> bool:
    """Whether Ascribe finds two texts similar."""
    task, state = np.zeros(2, dtype=np.int64), np.arange(2)
    return similar(task, state, np.array(pair, dtype=object), THRESHOLD).count == 1


if __name__ == "__main__":
    main()
