"""Memory: what earlier iterations measured of a task, for ``returns`` and ``sbc``.

A memory holds, for each task, a weight and a mean for each name: the task, a state, an action in a
state. Weights are numbers of rows, and count less with every later visit to the task:

    weight of t visits ago = decay^t rows;  mean = Σ weight x / Σ weight.

Names are hashes, so the memory neither shows nor grows with the texts. What counts less than half a
row is forgotten, and beyond ``MOST`` entries the tasks that did not come for the longest time.

Page: docs/estimators/returns.md. Test: tests/estimators/test_memory.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Comparison, Norm, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

FORGOTTEN = 0.5
"""An entry that will count for fewer rows, and was not measured in this visit, is dropped."""
MOST = 200_000
"""Entries of a memory; each takes about 60 bytes in a checkpoint."""
LARGEST = 1e120
"""No number of rows and no return is larger: rewards are at most 1e100."""

Entry = tuple[int, float, float]
"""The visit that an entry was changed in, its weight then, and its mean."""

Task = tuple[int, dict[str, Entry]]
"""How often a task was visited, and its entries."""


@dataclass(frozen=True, eq=False)
class Recalled:
    """Weight and mean of each segment before this iteration; 0 for what is new."""

    weight: Floats
    mean: Floats


Names = Sequence[tuple[str, str]]
"""The task of each segment, and the segment's name in it."""


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory before an iteration.

    Attributes:
        decay: what a weight is multiplied by with every visit to its task.
        tasks: the tasks, those that came last at the end.
    """

    decay: float
    tasks: dict[str, Task]

    @classmethod
    def of(cls, decay: float, history: dict[str, Any] | None) -> "Memory":
        """The memory in a history; empty without one.

        Raises:
            ValueError: if the history is no memory.
        """
        try:
            given = {} if history is None else history["tasks"]
            return cls(decay, {name: _task(*task) for name, task in given.items()})
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                "the history holds no memory of tasks: it was damaged, or written by another "
                "recipe",
                hint="begin without it, or take the recipe that wrote it",
            ) from error

    def recall(self, names: Names) -> Recalled:
        """What is known under these names."""
        found = np.zeros((len(names), 2))
        for place, (task, name) in enumerate(names):
            visits, entries = self.tasks.get(task, (0, {}))
            since, weight, mean = entries.get(name, (visits, 0.0, 0.0))
            found[place] = weight * self.decay ** (visits - since), mean
        return Recalled(found[:, 0], found[:, 1])

    def updated(self, *measured: tuple[Names, Ints, Floats]) -> dict[str, Any]:
        """The history for the next iteration, given names, numbers of rows and sums."""
        tasks = dict(self.tasks)
        now: dict[str, Task] = {}
        for names, rows, sums in measured:
            counts = zip(names, rows.tolist(), sums.tolist(), strict=True)
            for (task, name), count, total in counts:
                if not count:
                    continue
                if task not in now:
                    visits, entries = tasks.pop(task, (0, {}))
                    now[task] = visits, dict(entries)
                visits, entries = now[task]
                since, weight, mean = entries.get(name, (visits, 0.0, 0.0))
                weight *= self.decay ** (visits - since)
                rows_of = weight + count
                entries[name] = visits, rows_of, (weight * mean + total) / rows_of
        tasks |= {name: self._next(*task) for name, task in now.items()}
        surplus = sum(len(entries) for _, entries in tasks.values()) - MOST
        for name in list(tasks)[:-1]:
            if surplus <= 0:
                break
            surplus -= len(tasks.pop(name)[1])
        return {"tasks": {n: [v, {k: [*e] for k, e in of.items()}] for n, (v, of) in tasks.items()}}

    def _next(self, visits: int, entries: dict[str, Entry]) -> Task:
        """A task after this visit, without what it forgets."""
        return visits + 1, {
            name: entry
            for name, entry in entries.items()
            if entry[0] == visits or entry[1] * self.decay ** (visits + 1 - entry[0]) >= FORGOTTEN
        }


def _task(visits: Any, entries: dict[str, Any]) -> Task:
    """A task as a history holds it; raises if it holds none."""
    read = {name: (int(i), float(w), float(m)) for name, (i, w, m) in entries.items()}
    if not all(0 <= i < visits < 2**53 for i, _, _ in read.values()):
        raise InputError("a visit that was not yet")
    if not all(0 < w <= LARGEST and abs(m) <= LARGEST for _, w, m in read.values()):
        raise InputError("a weight or a mean that cannot be")
    return int(visits), read


def hashed(*parts: object) -> str:
    """A short name of what these parts name together."""
    text = "\0".join(map(str, parts))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def task_names(table: StepTable, steps: Arranged) -> list[str]:
    """A name of the task of each group that lasts: of ``task``, or else of ``group``."""
    column = table.group if table.task is None else table.task
    first = steps.rows[segments.first_rows(steps.group, steps.group_count)]
    named = zip(column.take(first).texts(), table.group.take(first).texts(), strict=True)
    return [hashed(group if task is None else task) for task, group in named]


def against(values: Floats, labels: Ints, count: int, recalled: Recalled) -> Comparison:
    """As ``relative`` by the mean, with what is recalled of each group as further members.

    A group has no credit if nothing is recalled of it and it is a group of one, or if its members
    and what is recalled are all equal.
    """
    compared = relative(values, labels, count, Norm("mean"))
    known = np.append(recalled.weight, 0.0)  # the last segment takes no part
    size, mean = compared.size + known, np.append(recalled.mean, 0.0)
    mean = (compared.size * compared.mean + known * mean) / np.where(size > 0, size, 1.0)
    advantage, reason = values - mean[compared.labels], compared.reason.copy()
    reason[(known > 0)[compared.labels]] = Reason.CREDITED
    differ = np.abs(advantage) > segments.ROUNDING * np.maximum(np.abs(values), 1.0)
    constant = np.append(segments.constant(values, labels, count), True)
    same = constant[compared.labels] & ~differ & (reason == Reason.CREDITED)
    reason[same] = Reason.ZERO_VARIANCE
    advantage[reason != Reason.CREDITED] = 0.0
    return Comparison(
        advantage, reason, values, compared.labels, mean, compared.size, leave_one_out=False
    )
