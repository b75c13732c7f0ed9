"""From a table to its credit in one call: check it, select its groups, compute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit, Reason
from ascribe.steps.arrays import Bools
from ascribe.steps.problems import Severity, TableError
from ascribe.steps.select import GroupSelection, OnProblem, select
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Assignment:
    """A credit for every row of a table, and which rows were selected for it."""

    credit: Credit
    selection: GroupSelection


def assign(
    table: StepTable,
    recipe: Recipe,
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
        recipe: the estimator.
        on_problem: what to do about problems, see ``select``; by default, refuse the table.
        severity: the least severity that counts.
        group_size: how many trajectories each group was meant to have, if known.
        inputs: further inputs of the recipe.

    Raises:
        TableError: if the table is refused, or no group is left.
    """
    selection = select(table, on_problem, severity=severity, group_size=group_size)
    if not selection.keep.any():
        kinds = selection.dropped_rows
        raise TableError(p for p in selection.report.problems if p.kind.label in kinds)
    return Assignment(credit_selected(table, recipe, selection.keep, **inputs), selection)


def credit_selected(table: StepTable, recipe: Recipe, keep: Bools, **inputs: Any) -> Credit:
    """Credit the rows ``keep``, which are whole groups; the others get the reason ``DROPPED``."""
    if keep.all():
        return recipe(table, **inputs)
    credit = recipe(table.take(keep), **inputs).spread(keep)
    padding = table.flag("padding", default=False)
    for reasons in (credit.reason, *(term.reason for term in credit.terms.values())):
        reasons[padding] = Reason.PADDING
    return credit


def credit_arrays(credit: Credit) -> dict[str, npt.NDArray[Any]]:
    """The columns of a credit: ``advantage`` and ``reason``, and those of each term.

    ``advantage_TERM`` is not multiplied by the term's weight.
    """
    columns: dict[str, npt.NDArray[Any]] = {"advantage": credit.advantage, "reason": credit.reason}
    for name, term in credit.terms.items():
        columns |= {f"advantage_{name}": term.values, f"reason_{name}": term.reason}
    return columns


def credit_columns(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, "pa.Array"]:
    """Arrow columns from ``credit_arrays``: null where a row has no credit, reasons by name."""
    import pyarrow as pa

    labels = pa.array([reason.label for reason in Reason])
    columns = {}
    for name, values in arrays.items():
        if name.startswith("reason"):
            codes = pa.array(values.astype(np.int32))
            columns[name] = pa.DictionaryArray.from_arrays(codes, labels)
        else:
            reason = arrays[name.replace("advantage", "reason", 1)]
            columns[name] = pa.array(values, mask=reason != Reason.CREDITED)
    return columns
