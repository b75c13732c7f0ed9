"""Columns that some recipes need and engines give: entropies and values, from tokens to steps."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ascribe.conversations import Spans
from ascribe.engines.crediting import CreditedSteps
from ascribe.estimators import Recipe
from ascribe.steps.arrays import Floats
from ascribe.steps.hints import page
from ascribe.steps.table import INPUT_COLUMNS, StepTable


def missing_columns(recipe: Recipe, engine: str, given: Collection[str]) -> str | None:
    """What is wrong with a recipe whose columns an engine does not give; None if nothing is.

    Args:
        recipe: the estimator.
        engine: its name.
        given: columns that the engine gives.
    """
    missing = [name for name in recipe.columns if name in INPUT_COLUMNS and name not in given]
    if not missing:
        return None
    return (
        f"{recipe.name} needs the column {' and '.join(missing)}, which {engine} does not give "
        f"here: {page('estimators/other')} says what gives it"
    )


def with_columns(table: StepTable, columns: Mapping[str, Floats]) -> StepTable:
    """The table with these columns besides."""
    more: dict[str, Any] = dict(columns)
    return replace(table, **more)


def of_steps(name: str, tokens: Sequence[Floats], spans: Spans) -> Floats:
    """A column of the step table from numbers of the tokens.

    Args:
        name: ``entropy``, the mean over the tokens of a step; or ``value``, that of the first one,
            which a critic gives to the state before it.
        tokens: of each sequence.
        spans: the sequence and the tokens of each step.
    """
    columns = zip(spans.sequence, spans.start, spans.end, strict=True)
    if name == "value":
        return np.array([tokens[row][start] for row, start, _ in columns], dtype=np.float64)
    return np.array([tokens[row][start:end].mean() for row, start, end in columns], np.float64)


def critic_targets(credited: CreditedSteps, value: Floats) -> Floats:
    """What a critic should have expected of each step: its λ-return, or its value without credit.

    Args:
        credited: the steps, with their credit.
        value: what the critic expected of each step.
    """
    targets = value.copy()
    if credited.credit is not None:
        term = credited.credit.terms.get("gae")
        own = value[credited.counts] + credited.credit.advantage if term is None else term.own
        known = credited.credit.credited if term is None else term.credited
        targets[credited.counts] = np.where(known, own, value[credited.counts])
    return targets
