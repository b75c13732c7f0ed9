"""Where GiGPO's presets differ from the paper's form: one small example, row by row."""

from dataclasses import fields
from typing import Any

from tables import table

from ascribe import Credit, StepTable
from ascribe.estimators import GiGPO

STEPS: list[tuple[str, str, int, str, str, float, bool]] = [
    # Task apple: one success in two steps, one failure in four, with an invalid action.
    ("apple", "a", 0, "hall", "go to kitchen", 0.0, True),
    ("apple", "a", 1, "kitchen", "take apple", 10.0, True),
    ("apple", "b", 0, "hall", "go to garden", 0.0, True),
    ("apple", "b", 1, "garden", "xyzzy", 0.0, False),
    ("apple", "b", 2, "garden", "go to hall", 0.0, True),
    ("apple", "b", 3, "hall", "go to attic", 0.0, True),
    # Task pear: two successes, one step apart. Its states have the same texts.
    ("pear", "c", 0, "hall", "go to garden", 0.0, True),
    ("pear", "c", 1, "garden", "take pear", 10.0, True),
    ("pear", "d", 0, "hall", "go to kitchen", 0.0, True),
    ("pear", "d", 1, "kitchen", "go to garden", 0.0, True),
    ("pear", "d", 2, "garden", "take pear", 10.0, True),
    # Task lamp: one trajectory of one step.
    ("lamp", "e", 0, "cellar", "switch on lamp", 10.0, True),
]
COLUMNS = ("group", "trajectory", "step", "state", "action", "reward", "valid")

WHY = {
    "baseline_unit": "The paper averages over the trajectories of a group. Averaging over rows "
    "lets a trajectory of 40 steps weigh 40 times as much as one of a single step.",
    "gamma": "The paper uses 0.95, so that of two ways to succeed the shorter one is worth more.",
    "group_of_one": "Nothing to compare with is no signal. Giving the raw return instead pushes "
    "up whatever was done in a success, whether it helped or not.",
    "invalid_penalty": "Ours is 0, because rewards often hold the penalty already; "
    "set it if yours do not.",
    "normalise": "The paper has both forms. Most runs are compared with the one that divides; "
    "the mean alone did better on the paper's harder tasks.",
    "penalty_timing": "In the paper the penalty is part of the reward, so earlier steps feel it. "
    "Taken off after discounting, it touches one row, and that row's episode score with it.",
    "scope": "Two tasks may show the same text and mean different things; "
    "the paper builds its state groups inside one task.",
}
"""Why the default of each parameter that a preset changes is what it is."""


def example() -> StepTable:
    """The steps as a table."""
    return StepTable.from_dicts(dict(zip(COLUMNS, step, strict=True)) for step in STEPS)


def credits() -> dict[str, Credit]:  # noqa: A001 (a plural, not the built-in)
    """The example's credit under the paper's form, with and without a penalty, and every preset."""
    recipes = {"paper": GiGPO(), "paper, penalty 0.1": GiGPO(invalid_penalty=0.1)}
    recipes |= {name: GiGPO.preset(name) for name in GiGPO.presets}
    return {name: recipe(example()) for name, recipe in recipes.items()}


def steps_table() -> str:
    """The example itself."""
    rows = [(number, *step[:-1], "" if step[-1] else "no") for number, step in enumerate(STEPS)]
    return table(("row", "task", *COLUMNS[1:]), rows)


def rows_table() -> str:
    """Each row's advantage under each form, in bold where it is not the paper's."""
    found = credits()
    paper = found["paper"]
    rows = []
    for number in range(len(STEPS)):
        cells = []
        for credit in found.values():
            text = _cell(credit, number)
            cells.append(text if text == _cell(paper, number) else f"**{text}**")
        rows.append((number, *cells))
    return table(("row", *(f"`{name}`" if name in GiGPO.presets else name for name in found)), rows)


def _cell(credit: Credit, row: int) -> str:
    terms = [
        _number(term.weight * term.values[row]) if term.credited[row] else "–"
        for term in credit.terms.values()
    ]
    total = _number(credit.advantage[row]) if credit.credited[row] else "–"
    return f"{total} ({', '.join(terms)})"


def _number(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:+.2f}"  # the sum turns -0.0 into 0.0


def parameters_table() -> str:
    """The parameters that differ, and why the default is what it is."""
    defaults: dict[str, Any] = {field.name: field.default for field in fields(GiGPO)}
    changed = sorted({name for preset in GiGPO.presets.values() for name in preset})
    rows = [
        (
            f"`{name}`",
            f"`{defaults[name]}`",
            *(f"`{preset[name]}`" if name in preset else "" for preset in GiGPO.presets.values()),
            WHY[name],
        )
        for name in changed
    ]
    presets = (f"`{name}`" for name in GiGPO.presets)
    return table(("parameter", "paper", *presets, "why the default"), rows)
