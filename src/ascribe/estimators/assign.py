"""From a table to its credit in one call: check it, select its groups, compute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ascribe.estimators import DEFAULT, Recipe, as_recipe
from ascribe.estimators.credit import Credit, Reason
from ascribe.steps.arrays import Bools, Brief
from ascribe.steps.problems import Severity, TableError
from ascribe.steps.select import GroupSelection, OnProblem, select
from ascribe.steps.table import StepTable


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Brief):
    """A credit for every row of a table, and which rows were selected for it.

    Example:
        >>> assigned = ascribe.assign(table, "gigpo", "drop")
        >>> assigned.credit
        Credit(5 rows, 100% with a signal, GiGPO())
        >>> assigned.selection.dropped
        {}
    """

    credit: Credit
    selection: GroupSelection


def assign(
    table: StepTable,
    recipe: Recipe | str = DEFAULT,
    on_problem: OnProblem = "raise",
    *,
    severity: Severity = Severity.ERROR,
    group_size: int | None = None,
    **inputs: Any,
) -> Assignment:
    """Credit the groups of ``table`` that ``select`` keeps.

    Rows of dropped groups are in the credit too: 0, with the reason ``DROPPED``.

    Args:
        table: the steps.
        recipe: the estimator, or its name.
        on_problem: what to do about problems, see ``select``; by default, refuse the table.
        severity: the least severity that counts.
        group_size: how many trajectories each group was meant to have, if known.
        inputs: further inputs of the recipe.

    Raises:
        TableError: if the table is refused, or no group is left.

    Example:
        >>> assigned = ascribe.assign(table, "grpo")
        >>> assigned.credit.advantage.round(2).tolist()
        [1.15, 1.15, -0.58, -0.58, -0.58]
    """
    estimator = as_recipe(recipe)
    selection = select(table, on_problem, severity=severity, group_size=group_size)
    if not selection.keep.any():
        kinds = selection.dropped_rows
        raise TableError(p for p in selection.report.problems if p.kind.label in kinds)
    return Assignment(credit_selected(table, estimator, selection.keep, **inputs), selection)


def credit_selected(
    table: StepTable, recipe: Callable[..., Credit], keep: Bools, **inputs: Any
) -> Credit:
    """Credit the rows ``keep``, which are whole groups; the others get the reason ``DROPPED``."""
    if keep.all():
        return recipe(table, **inputs)
    credit = recipe(table.take(keep), **inputs).spread(keep)
    padding = table.flag("padding", default=False)
    for reasons in (credit.reason, *(term.reason for term in credit.terms.values())):
        reasons[padding] = Reason.PADDING
    return credit
