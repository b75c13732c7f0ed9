"""Two credits side by side: which steps changed sign, and by how much."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ascribe.report.crediting import Credited
from ascribe.report.text import one_line, shortened
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange

SIGNS = ("negative", "no credit", "positive")
MOST_STEPS = 50
"""Changed steps that are listed."""
DOTS = 2_000
"""Steps that the scatter plot shows at most."""

Plain = dict[str, Any]


@dataclass(frozen=True)
class SignCount:
    """Steps by their sign under both."""

    first: str
    second: str
    steps: int
    share: float


@dataclass(frozen=True)
class Comparison:
    """How a credit differs from another one.

    Attributes:
        first: name of the one.
        second: name of the other.
        kind: whether two recipes are compared on the same steps, or the same decisions over time.
        things: what is counted: steps, or decisions (the same action in the same state).
        compared: how many were compared.
        changed: share of those that went from negative to positive or back.
        gained: share that had no credit and got one.
        lost: share that had a credit and lost it.
        correlation: of the two credits; None where one of them is constant.
        signs: counts by both signs.
        largest: the largest changes, each in units of the root mean square of its credit.
        dots: pairs of credits for a plot, in the same units.
    """

    first: str
    second: str
    kind: str
    things: str
    compared: int
    changed: float
    gained: float
    lost: float
    correlation: float | None
    signs: tuple[SignCount, ...]
    largest: tuple[Plain, ...]
    dots: tuple[tuple[float, float], ...]

    def sentence(self) -> str:
        """What changed, in words."""
        if self.compared == 0:
            return f"No {self.things} can be compared."
        return (
            f"Of {self.compared:,} {self.things}, {self.changed:.1%} change sign from {self.first} "
            f"to {self.second}; {self.gained:.1%} gain a credit and {self.lost:.1%} lose theirs."
        )

    def tables(self) -> dict[str, list[Plain]]:
        """The tables of the comparison, by name."""
        return {
            f"signs_{self.kind}": [asdict(each) for each in self.signs],
            f"changed_{self.kind}": list(self.largest),
            f"dots_{self.kind}": [{"first": one, "second": other} for one, other in self.dots],
        }


def two_recipes(one: Credited, other: Credited) -> Comparison:
    """The same steps under two recipes. Credits are compared in units of their own size."""
    table, steps = one.table, arrange(one.table)
    rows = steps.rows
    first, second = one.credit.advantage[rows], other.credit.advantage[rows]

    def step(place: int) -> Plain:
        row = int(rows[place])
        return {
            "group": one_line(table.group.values[table.group.codes[row]], 60),
            "trajectory": one_line(table.trajectory.values[table.trajectory.codes[row]], 60),
            "step": int(steps.step[place]),
            "action": _text(table.action.values, int(steps.action[place])),
        }

    names = (one.recipe.name, _other_name(one, other))
    return _compared(first, second, names, kind="recipes", things="steps", describe=step)


def over_time(credited: Credited) -> Comparison | None:
    """The same decisions in the first and the second half of the batches, under one recipe.

    A decision is an action in a state, by their texts; its credit is the mean over its steps. None
    with fewer than two batches.
    """
    batches = len(credited.names)
    if batches < 2:
        return None
    table, steps = credited.table, arrange(credited.table)
    keys = credited.recipe.action_keys(table)
    pair, count = segments.pairs(steps.state, keys.labels, keys.count)
    late = credited.batch[steps.rows] >= batches // 2
    advantage = credited.credit.advantage[steps.rows]
    early_of, late_of = np.where(late, -1, pair), np.where(late, pair, -1)
    both = (segments.size(early_of, count) > 0) & (segments.size(late_of, count) > 0)
    kept = np.flatnonzero(both)
    first = segments.mean(advantage, early_of, count)[kept]
    second = segments.mean(advantage, late_of, count)[kept]
    example = segments.first_rows(pair, count)[kept]
    visits = segments.size(pair, count)[kept]

    def decision(number: int) -> Plain:
        place = int(example[number])
        return {
            "state": _text(table.state.values, int(steps.state[place])),
            "action": _text(table.action.values, int(steps.action[place])),
            "steps": int(visits[number]),
        }

    halves = ("the first half", "the second half")
    return _compared(
        first, second, halves, kind="iterations", things="decisions", describe=decision
    )


def _compared(
    first: Floats,
    second: Floats,
    names: tuple[str, str],
    *,
    kind: str,
    things: str,
    describe: Callable[[int], Plain],
) -> Comparison:
    total = max(first.size, 1)
    signs = 3 * (np.sign(first) + 1).astype(np.int64) + (np.sign(second) + 1).astype(np.int64)
    counted = np.bincount(signs, minlength=9).reshape(3, 3)
    one, other = first / _rms(first), second / _rms(second)
    flipped = np.flatnonzero(first * second < 0)
    order = flipped[np.argsort(-np.abs(other - one)[flipped], kind="stable")][:MOST_STEPS]
    dots = np.unique(np.linspace(0, first.size - 1, min(DOTS, first.size)).astype(np.int64))
    varied = first.size > 1 and first.std() > 0 and second.std() > 0
    return Comparison(
        first=names[0],
        second=names[1],
        kind=kind,
        things=things,
        compared=int(first.size),
        changed=float(counted[0, 2] + counted[2, 0]) / total,
        gained=float(counted[1, 0] + counted[1, 2]) / total,
        lost=float(counted[0, 1] + counted[2, 1]) / total,
        correlation=float(np.corrcoef(first, second)[0, 1]) if varied else None,
        signs=tuple(
            SignCount(SIGNS[i], SIGNS[j], int(counted[i, j]), float(counted[i, j]) / total)
            for i in range(3)
            for j in range(3)
        ),
        largest=tuple(
            {
                **describe(int(number)),
                "first": _short(first[number]),
                "second": _short(second[number]),
                "change": _short(other[number] - one[number]),
            }
            for number in order
        ),
        dots=tuple((_short(one[number]), _short(other[number])) for number in dots),
    )


def _rms(values: Floats) -> float:
    size = float(np.sqrt(np.mean(values * values))) if values.size else 0.0
    return size or 1.0


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(values: Any, code: int) -> str | None:
    return None if code < 0 else shortened(values[code], 160)


def _other_name(one: Credited, other: Credited) -> str:
    """Two settings of one recipe are told apart by the parameters that differ."""
    name = other.recipe.name
    if name != one.recipe.name:
        return name
    values = [(field.name, getattr(other.recipe, field.name)) for field in fields(other.recipe)]
    differ = [f"{key}={value}" for key, value in values if value != getattr(one.recipe, key)]
    return f"{name} with {', '.join(differ)}" if differ else name
