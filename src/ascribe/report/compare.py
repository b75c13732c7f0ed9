"""Two credits side by side: which steps changed sign, and by how much."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.groups.responses import readable
from ascribe.report.crediting import Credited
from ascribe.report.text import shortened
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.problems import one_line
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
        first: name of the first credit.
        second: name of the second credit.
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


def two_recipes(first: Credited, second: Credited) -> Comparison:
    """The same steps under two recipes."""
    table, steps = first.table, first.steps

    def step(index: int) -> Plain:
        return {
            **_place(first, index),
            "action": _text(table.action, int(steps.rows[index]), readable),
        }

    credits_ = first.credit.advantage[steps.rows], second.credit.advantage[steps.rows]
    names = first.recipe.name, other_name(first.recipe, second.recipe)
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
    early, late_pair = np.where(late, -1, pair), np.where(late, pair, -1)
    in_both = (segments.size(early, count) > 0) & (segments.size(late_pair, count) > 0)
    advantage = credited.credit.advantage[steps.rows]
    credits_ = (
        segments.mean(advantage, early, count)[in_both],
        segments.mean(advantage, late_pair, count)[in_both],
    )
    example = segments.first_rows(pair, count)[in_both]
    visits = segments.size(pair, count)[in_both]

    def decision(index: int) -> Plain:
        row = int(steps.rows[example[index]])
        return {
            **_place(credited, int(example[index])),
            "state": _text(table.state, row),
            "action": _text(table.action, row, readable),
            "steps": int(visits[index]),
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
    x, y = first / _rms(first), second / _rms(second)
    flipped = np.flatnonzero(first * second < 0)
    order = flipped[np.argsort(-np.abs(y - x)[flipped], kind="stable")][:MOST_STEPS]
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
                **describe(int(index)),
                "first": _short(first[index]),
                "second": _short(second[index]),
                "change": _short(y[index] - x[index]),
            }
            for index in order
        ),
        dots=tuple({"first": _short(x[n]), "second": _short(y[n])} for n in dots),
    )


def _rms(values: Floats) -> float:
    size = float(np.sqrt(np.mean(values * values))) if values.size else 0.0
    return size or 1.0


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(column: Coded, row: int, change: Callable[[str], str] = str) -> str | None:
    code = column.codes[row]
    return None if code < 0 else shortened(change(column.values[code]), 160)


def _place(credited: Credited, index: int) -> Plain:
    """Where a step is, in the names that the browser shows."""
    table, row = credited.table, int(credited.steps.rows[index])
    return {
        "group": one_line(table.group.values[table.group.codes[row]], 200),
        "trajectory": one_line(table.trajectory.values[table.trajectory.codes[row]], 200),
        "step": int(credited.steps.step[index]),
    }


def other_name(first: Recipe, second: Recipe) -> str:
    """The name of the second recipe, or its parameters that differ if both have the same name."""
    name = second.name
    if name != first.name:
        return name
    values = [(field.name, getattr(second, field.name)) for field in fields(second)]
    differ = [f"{key}={value}" for key, value in values if value != getattr(first, key)]
    return f"{name} with {', '.join(differ)}" if differ else name
