"""Memory: what earlier iterations measured of a task, for ``returns`` and ``sbc``.

A memory holds a weight and a mean for each name: a task, a state of a task, an action in a state.
Weights are numbers of rows, and count less with every iteration that passes:

    weight of an iteration t ago = decay^t rows;  mean = Σ weight x / Σ weight.

Names are hashes, so the memory neither shows nor grows with the texts. What counts less than half a
row is forgotten, so that tasks that do not come again are not kept for long.

Page: docs/estimators/returns.md. Test: tests/estimators/test_memory.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Comparison, Norm, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged
from ascribe.steps.table import StepTable

FORGOTTEN = 0.5
"""An entry that will count for fewer rows, and was not measured in this iteration, is dropped."""
LARGEST = 1e15
"""No number of rows or iterations, and no return, is larger."""

Entry = tuple[int, float, float]
"""The iteration that an entry was changed in, its weight then, and its mean."""


@dataclass(frozen=True, eq=False)
class Recalled:
    """Weight and mean of each segment before this iteration; 0 for what is new."""

    weight: Floats
    mean: Floats


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory before an iteration.

    Attributes:
        decay: what a weight is multiplied by with every iteration.
        iteration: number of this iteration.
        entries: by name.
    """

    decay: float
    iteration: int
    entries: dict[str, Entry]

    @classmethod
    def of(cls, decay: float, history: dict[str, Any] | None) -> "Memory":
        """The memory in a history; empty without one.

        Raises:
            ValueError: if the history is no memory.
        """
        if history is None:
            return cls(decay, 0, {})
        try:
            last = int(history["iteration"])
            entries = {name: (int(i), float(w), float(m)) for name, (i, w, m) in _items(history)}
            if not all(0 <= i <= last <= LARGEST for i in [0, *(e[0] for e in entries.values())]):
                raise ValueError("an iteration that was not yet")
            if not all(0 < w <= LARGEST and abs(m) <= LARGEST for _, w, m in entries.values()):
                raise ValueError("a weight or a mean that cannot be")
            return cls(decay, last + 1, entries)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(
                "the history holds no memory of tasks: it was damaged, or written by another "
                "recipe; begin without it, or take the recipe that wrote it"
            ) from error

    def recall(self, names: Sequence[str]) -> Recalled:
        """What is known under these names."""
        found = np.array([self.entries.get(name, (0, 0.0, 0.0)) for name in names])
        since, weight, mean = found.reshape(-1, 3).T
        return Recalled(weight * self.decay ** (self.iteration - since), mean)

    def updated(self, *measured: tuple[Sequence[str], Ints, Floats]) -> dict[str, Any]:
        """The history for the next iteration, given names, numbers of rows and sums."""
        now, entries = self.iteration, dict(self.entries)
        for names, rows, sums in measured:
            for name, count, total in zip(names, rows.tolist(), sums.tolist(), strict=True):
                since, weight, mean = entries.get(name, (now, 0.0, 0.0))
                weight *= self.decay ** (now - since)
                if count:
                    all_rows = weight + count
                    entries[name] = (now, all_rows, (weight * mean + total) / all_rows)
        kept = {
            name: list(entry)
            for name, entry in entries.items()
            if entry[0] == now or entry[1] * self.decay ** (now + 1 - entry[0]) >= FORGOTTEN
        }
        return {"iteration": now, "entries": kept}


def _items(history: dict[str, Any]) -> Iterable[tuple[str, Sequence[float]]]:
    items: Iterable[tuple[str, Sequence[float]]] = history["entries"].items()
    return items


def hashed(*parts: object) -> str:
    """A short name of what these parts name together."""
    text = "\0".join(map(str, parts))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def task_names(table: StepTable, steps: Arranged) -> list[str]:
    """What identifies the task of each group over iterations: ``task``, or else ``group``."""
    column = table.group if table.task is None else table.task
    first = steps.rows[segments.first_rows(steps.group, steps.group_count)]
    named = zip(column.take(first).texts(), table.group.take(first).texts(), strict=True)
    return [str(group if task is None else task) for task, group in named]


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
