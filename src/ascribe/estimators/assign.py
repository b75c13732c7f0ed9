"""From a table to its credit in one call: check it, select its groups, compute."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit, Reason
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
    keep = selection.keep
    if keep.all():
        return Assignment(recipe(table, **inputs), selection)
    if not keep.any():
        kinds = selection.dropped_rows
        raise TableError(p for p in selection.report.problems if p.kind.label in kinds)
    credit = recipe(table.take(keep), **inputs).spread(keep)
    padding = table.flag("padding", default=False)
    for reasons in (credit.reason, *(term.reason for term in credit.terms.values())):
        reasons[padding] = Reason.PADDING
    return Assignment(credit, selection)


def credit_columns(credit: Credit) -> dict[str, "pa.Array"]:
    """Arrow columns of a credit: null where a row has none, and a column of reasons.

    ``advantage`` and ``reason`` for the whole, ``advantage_TERM`` and ``reason_TERM`` for each
    term, not multiplied by its weight.
    """
    columns = {"advantage": _nullable(credit.advantage, credit.reason)}
    columns["reason"] = _reason_labels(credit.reason)
    for name, term in credit.terms.items():
        columns[f"advantage_{name}"] = _nullable(term.values, term.reason)
        columns[f"reason_{name}"] = _reason_labels(term.reason)
    return columns


def _nullable(values: Any, reason: Any) -> "pa.Array":
    import pyarrow as pa

    return pa.array(values, mask=reason != Reason.CREDITED)


def _reason_labels(reason: Any) -> "pa.Array":
    import pyarrow as pa

    names = pa.array([reason.label for reason in Reason])
    return pa.DictionaryArray.from_arrays(pa.array(reason.astype(np.int32)), names)
