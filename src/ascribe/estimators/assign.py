"""From a table to its credit in one call: check, decide, compute."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit, Reason
from ascribe.steps.check import Decision, Policy, Raise, Report, check
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Assignment:
    """A credit for every row of a table, and what was found and decided on the way."""

    credit: Credit
    report: Report
    decision: Decision


def assign(
    table: StepTable,
    recipe: Recipe,
    policy: Policy = Raise(),
    *,
    group_size: int | None = None,
    **inputs: Any,
) -> Assignment:
    """Check ``table``, let ``policy`` decide what to go on with, and credit that.

    Rows that the policy drops are in the credit too: 0, with the reason ``DROPPED``.

    Args:
        table: the steps.
        recipe: the estimator.
        policy: what to do about problems; by default, refuse the table.
        group_size: how many trajectories each group was meant to have, if known.
        inputs: what the recipe takes besides the table.

    Raises:
        TableError: if the policy refuses the table.
    """
    report = check(table, group_size=group_size)
    decision = policy(table, report)
    if decision.keep.all():
        return Assignment(recipe(table, **inputs), report, decision)
    credit = recipe(table.take(decision.keep), **inputs).spread(decision.keep)
    padding = table.flag("padding", default=False)
    for reasons in (credit.reason, *(term.reason for term in credit.terms.values())):
        reasons[padding] = Reason.PADDING
    return Assignment(credit, report, decision)


def credit_columns(credit: Credit) -> dict[str, "pa.Array"]:
    """Arrow columns of a credit: null where there is none, with the reason beside it.

    ``advantage`` and ``reason`` for the whole, ``advantage_TERM`` and ``reason_TERM`` for each
    term, the weight of the term not yet in.
    """
    columns = {"advantage": _nullable(credit.advantage, credit.reason)}
    columns["reason"] = _named(credit.reason)
    for name, term in credit.terms.items():
        columns[f"advantage_{name}"] = _nullable(term.values, term.reason)
        columns[f"reason_{name}"] = _named(term.reason)
    return columns


def _nullable(values: Any, reason: Any) -> "pa.Array":
    import pyarrow as pa

    return pa.array(values, mask=reason != Reason.CREDITED)


def _named(reason: Any) -> "pa.Array":
    import pyarrow as pa

    names = pa.array([reason.label for reason in Reason])
    return pa.DictionaryArray.from_arrays(pa.array(reason.astype(np.int32)), names)
