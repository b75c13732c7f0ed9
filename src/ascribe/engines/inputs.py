"""What engines give to recipes, and what loops and environments give to engines, checked.

A fault in the configuration is refused before the first rollout. A fault in the data of an episode
drops its group.
"""

import json
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from ascribe.engines.crediting import CreditedSteps
from ascribe.estimators import Recipe
from ascribe.estimators.memory import hashed
from ascribe.sessions import Spans
from ascribe.steps.arrays import Floats
from ascribe.steps.errors import InputError
from ascribe.steps.hints import page, unknown
from ascribe.steps.problems import one_line, replace_surrogates
from ascribe.steps.table import INPUT_COLUMNS, Coded, StepTable

OF_TEAMS = ("agent", "without")
"""Columns that environments of teams give."""


def refuse_unknown(key: str, value: object, choices: Any) -> None:
    """Raise ValueError for a value of a key that is not among those of a ``Literal``."""
    if value not in get_args(choices):
        raise unknown("choice", value, get_args(choices)).within(key)


def missing_columns(recipe: Recipe, engine: str, given: Collection[str]) -> str | None:
    """What is wrong with a recipe whose columns an engine does not give; None if nothing is.

    Args:
        recipe: the estimator.
        engine: its name.
        given: columns that the engine gives, and ``corrects`` if it plays corrections.
    """
    needed = [name for name in recipe.columns if name in (*INPUT_COLUMNS, *OF_TEAMS)]
    needed += ["corrects"] if recipe.needs_corrections else []
    missing = [name for name in needed if name not in given]
    if not missing:
        return None
    return (
        f"{recipe.name} needs the column {' and '.join(missing)}, which {engine} does not give "
        f"here: {page('estimators/columns')} says what gives it"
    )


def uncompared(recipe: Recipe, rollouts: int | None) -> str | None:
    """What is wrong with a recipe that compares the rollouts of a task, if there is one of each."""
    inner = getattr(recipe, "inner", recipe)
    attempts = inner.compares_attempts
    alone = getattr(inner, "memory", 0) or getattr(inner, "group_of_one", None) == "raw"
    over_batch = not inner.compares_in_groups or getattr(inner, "scope", None) == "batch"
    if rollouts != 1 or (not attempts and (alone or over_batch or "value" in inner.columns)):
        return None
    return (
        f"{recipe.name} compares the rollouts of a task, and with one of each no step would have "
        "an advantage; sample two or more, or take returns or sbc with memory=0.8 (sbc with "
        "states=exact), which compares with earlier iterations"
    )


def task_name(row: Any) -> str:
    """What identifies a task over iterations: a hash of what its dataset holds."""
    return hashed(json.dumps(row, sort_keys=True, default=str))


def with_tasks(table: StepTable, tasks: Sequence[str] | None, spans: Spans) -> StepTable:
    """The table with the task of each step, if those of the sequences are known."""
    if tasks is None:
        return table
    return replace(table, task=Coded.encode([tasks[at] for at in spans.sequence]))


def finite(value: Any) -> float:
    """The number; raises ValueError if it is not finite."""
    if not math.isfinite(number := float(value)):
        raise InputError(f"{number} is not finite")
    return number


def as_text(value: Any) -> str | None:
    """The value as text that can be written; None stays None."""
    return None if value is None else replace_surrogates(str(value))


def turn_lists(
    name: str,
    given: Iterable[Any],
    turns: Iterable[int],
    episodes: Iterable[tuple[str, Any]],
    entry: Callable[[Any], Any] = finite,
) -> tuple[list[list[Any]], dict[str, str]]:
    """The list of each sequence, with an entry for each turn; and the groups to drop, with why.

    A malformed list is logged, and replaced by one of empty entries. ``episodes`` are the groups
    and trajectories; ``entry`` raises TypeError or ValueError for a value that is none.
    """
    kept: list[list[Any]] = []
    failed: dict[str, str] = {}
    for values, count, (group, trajectory) in zip(given, turns, episodes, strict=True):
        is_list = not isinstance(values, str | bytes | Mapping)
        try:
            entries = [entry(value) for value in values] if is_list else []
        except (TypeError, ValueError):
            entries = []
        if len(entries) != count:
            failed[str(group)] = f"bad_{name}"
            logging.getLogger(__name__).warning(
                "episode %s/%s: %s is %s, but must be a list with an entry for each of %d turns; "
                "its group is dropped",
                *(group, trajectory, name, one_line(values), count),
            )
            entries = [None if entry is as_text else math.nan] * count
        kept.append(entries)
    return kept, failed


def with_columns(table: StepTable, columns: Mapping[str, Floats]) -> StepTable:
    """The table with these columns besides."""
    more: dict[str, Any] = dict(columns)
    return replace(table, **more)


def of_steps(name: str, tokens: Sequence[Floats], spans: Spans) -> Floats:
    """A column of the step table from numbers of the tokens.

    Args:
        name: ``entropy``, the mean over the tokens of a step; or ``value``, that of the first one,
            which a critic gives to the state before it. A step without tokens ends its sequence:
            it has no entropy, and the value of the sequence's first token.
        tokens: of each sequence.
        spans: the sequence and the tokens of each step.
    """
    columns = zip(spans.sequence, spans.start, spans.end, strict=True)
    if name == "value":
        firsts = [tokens[row][start if start < end else 0] for row, start, end in columns]
        return np.array(firsts, dtype=np.float64)
    found = [tokens[row][i:j].mean() if i < j else np.nan for row, i, j in columns]
    return np.array(found, dtype=np.float64)


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
