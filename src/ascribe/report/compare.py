"""Two credits side by side: which steps changed sign, and by how much."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ascribe.report.crediting import Credited
from ascribe.report.text import one_line, shortened
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.table import Coded

SIGNS = ("negative", "no credit", "positive")
MOST_STEPS = 50
"""Changed steps that are listed."""
DOTS = 2_000
"""Steps that the scatter plot shows at most."""

Plain = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """How one credit differs from another.

    Attributes:
        first: name of the one.
        second: name of the other.
        kind: ``recipes`` on the same steps, or the same decisions over ``iterations``.
        things: what is counted: steps, or decisions (the same action in the same state).
        compared: how many were compared.
        changed: share of those that went from negative to positive or back.
        gained: share that had no credit in the first and has one in the second.
        lost: share that had a credit in the first and has none in the second.
        correlation: of the two credits; None where one of them is constant.
        signs: counts and shares by both signs.
        largest: the largest changes of sign, in units of the root mean square of each credit.
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
    signs: tuple[Plain, ...]
    largest: tuple[Plain, ...]
    dots: tuple[Plain, ...]

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
            f"signs_{self.kind}": list(self.signs),
            f"changed_{self.kind}": list(self.largest),
            f"dots_{self.kind}": list(self.dots),
        }


def two_recipes(one: Credited, other: Credited) -> Comparison:
    """The same steps under two recipes."""
    table, steps = one.table, one.steps

    def step(place: int) -> Plain:
        row = int(steps.rows[place])
        return {
            "group": one_line(table.group.values[table.group.codes[row]], 60),
            "trajectory": one_line(table.trajectory.values[table.trajectory.codes[row]], 60),
            "step": int(steps.step[place]),
            "action": _text(table.action, row),
        }

    credits_ = one.credit.advantage[steps.rows], other.credit.advantage[steps.rows]
    names = one.recipe.name, _other_name(one, other)
    return _compared("recipes", "steps", names, credits_, step)


def over_time(credited: Credited) -> Comparison | None:
    """The same decisions in the first and the second half of the batches, under one recipe.

    A decision is an action in a state, by their texts; its credit is the mean over its steps. None
    with fewer than two batches.
    """
    batches = len(credited.names)
    if batches < 2:
        return None
    table, steps = credited.table, credited.steps
    keys = credited.recipe.action_keys(table)
    pair, count = segments.pairs(steps.state, keys.labels, keys.count)
    late = credited.batch[steps.rows] >= batches // 2
    first, second = np.where(late, -1, pair), np.where(late, pair, -1)
    both = (segments.size(first, count) > 0) & (segments.size(second, count) > 0)
    advantage = credited.credit.advantage[steps.rows]
    credits_ = (
        segments.mean(advantage, first, count)[both],
        segments.mean(advantage, second, count)[both],
    )
    example = steps.rows[segments.first_rows(pair, count)[both]]
    visits = segments.size(pair, count)[both]

    def decision(number: int) -> Plain:
        row = int(example[number])
        return {
            "state": _text(table.state, row),
            "action": _text(table.action, row),
            "steps": int(visits[number]),
        }

    names = "the first half", "the second half"
    return _compared("iterations", "decisions", names, credits_, decision)


def _compared(
    kind: str,
    things: str,
    names: tuple[str, str],
    credits_: tuple[Floats, Floats],
    describe: Callable[[int], Plain],
) -> Comparison:
    first, second = credits_
    total = max(first.size, 1)
    signs = 3 * (np.sign(first) + 1).astype(np.int64) + (np.sign(second) + 1).astype(np.int64)
    counts = np.bincount(signs, minlength=9).reshape(3, 3)
    shares = counts / total
    one, other = first / _rms(first), second / _rms(second)
    flipped = np.flatnonzero(first * second < 0)
    order = flipped[np.argsort(-np.abs(other - one)[flipped], kind="stable")][:MOST_STEPS]
    dots = np.unique(np.linspace(0, first.size - 1, min(DOTS, first.size)).astype(np.int64))
    varied = first.size > 1 and first.std() > 0 and second.std() > 0
    return Comparison(
        *names,
        kind=kind,
        things=things,
        compared=int(first.size),
        changed=float(shares[0, 2] + shares[2, 0]),
        gained=float(shares[1, 0] + shares[1, 2]),
        lost=float(shares[0, 1] + shares[2, 1]),
        correlation=float(np.corrcoef(first, second)[0, 1]) if varied else None,
        signs=tuple(
            {
                "first": SIGNS[i],
                "second": SIGNS[j],
                "steps": int(counts[i, j]),
                "share": float(shares[i, j]),
            }
            for i, j in np.ndindex(3, 3)
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
        dots=tuple({"first": _short(one[n]), "second": _short(other[n])} for n in dots),
    )


def _rms(values: Floats) -> float:
    size = float(np.sqrt(np.mean(values * values))) if values.size else 0.0
    return size or 1.0


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(column: Coded, row: int) -> str | None:
    code = column.codes[row]
    return None if code < 0 else shortened(column.values[code], 160)


def _other_name(one: Credited, other: Credited) -> str:
    """The name of the recipe, or the parameters that differ if both are the same recipe."""
    name = other.recipe.name
    if name != one.recipe.name:
        return name
    values = [(field.name, getattr(other.recipe, field.name)) for field in fields(other.recipe)]
    differ = [f"{key}={value}" for key, value in values if value != getattr(one.recipe, key)]
    return f"{name} with {', '.join(differ)}" if differ else name
