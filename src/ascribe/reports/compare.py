"""Two recipes on the same steps: which steps changed sign, and by how much."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.groups.responses import readable
from ascribe.reports.crediting import Credited
from ascribe.reports.text import shortened
from ascribe.steps.arrays import Floats
from ascribe.steps.problems import one_line
from ascribe.steps.table import StepTable

SIGNS = ("negative", "no credit", "positive")
MOST_STEPS = 50
"""Changed steps that are listed."""

Plain = dict[str, Any]


@dataclass(frozen=True)
class RecipeComparison:
    """How the credit of one recipe differs from that of another.

    Attributes:
        first: name of the first recipe.
        second: name of the second recipe.
        signs: counts and shares of steps by both signs.
        changed: the steps that went from negative to positive or back, the largest changes first,
            in units of the root mean square of each credit.
    """

    first: str
    second: str
    signs: list[Plain]
    changed: list[Plain]

    def sentence(self) -> str:
        """What changed, in words."""

        def share(*pairs: tuple[str, str]) -> float:
            signs = (s for s in self.signs if (s["first"], s["second"]) in pairs)
            return float(sum(s["share"] for s in signs))

        negative, none, positive = SIGNS
        changed = share((negative, positive), (positive, negative))
        gained = share((none, negative), (none, positive))
        lost = share((negative, none), (positive, none))
        return (
            f"Of {sum(s['steps'] for s in self.signs):,} steps, {changed:.1%} change sign from "
            f"{self.first} to {self.second}; {gained:.1%} gain a credit and {lost:.1%} lose theirs."
        )


def two_recipes(one: Credited, other: Credited) -> RecipeComparison:
    """The same steps under two recipes."""
    rows = one.steps.rows
    first, second = one.credit.advantage[rows], other.credit.advantage[rows]
    pair = 3 * (np.sign(first) + 1) + np.sign(second) + 1
    counts = np.bincount(pair.astype(np.int64), minlength=9).tolist()
    change = second / _rms(second) - first / _rms(first)
    flipped = np.flatnonzero(first * second < 0)
    order = flipped[np.argsort(-np.abs(change[flipped]), kind="stable")][:MOST_STEPS]
    return RecipeComparison(
        one.recipe.name,
        other_name(one.recipe, other.recipe),
        signs=[
            {
                "first": SIGNS[number // 3],
                "second": SIGNS[number % 3],
                "steps": count,
                "share": count / rows.size,
            }
            for number, count in enumerate(counts)
        ],
        changed=[
            {
                **place_of(one.table, int(rows[index])),
                "first": _short(first[index]),
                "second": _short(second[index]),
                "change": _short(change[index]),
            }
            for index in order
        ],
    )


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values * values))) or 1.0


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def place_of(table: StepTable, row: int) -> Plain:
    """Where a step is, in the names that the browser shows, and its action."""
    action = table.action.codes[row]
    return {
        "group": one_line(table.group.values[table.group.codes[row]], 200),
        "trajectory": one_line(table.trajectory.values[table.trajectory.codes[row]], 200),
        "step": int(table.step[row]),
        "action": None if action < 0 else shortened(readable(table.action.values[action]), 160),
    }


def other_name(first: Recipe, second: Recipe) -> str:
    """The name of the second recipe, or its parameters that differ if both have the same name."""
    name = second.name
    if name != first.name:
        return name
    values = [(field.name, getattr(second, field.name)) for field in fields(second)]
    differ = [f"{key}={value}" for key, value in values if value != getattr(first, key)]
    return f"{name} with {', '.join(differ)}" if differ else name
