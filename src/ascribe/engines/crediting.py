"""Credit for the steps of an iteration: which groups count, their advantages, and the files."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit, Reason
from ascribe.groups.actions import FIRST_TOKENS
from ascribe.sessions import Spans
from ascribe.steps.arrays import Bools, Brief, Floats
from ascribe.steps.atomic import write_file
from ascribe.steps.check import first_names
from ascribe.steps.discount import propose_discount
from ascribe.steps.errors import InputError
from ascribe.steps.files import table_to_arrow, write
from ascribe.steps.problems import ProblemKind
from ascribe.steps.select import OnProblem, select
from ascribe.steps.strict_json import loads
from ascribe.steps.table import Coded, StepTable

HISTORY = "ascribe_history.json"
"""File in a checkpoint with the state that the recipe carries from one iteration to the next."""

TRAINED = "trained_advantage"
"""Column of a rollout file with the advantage that each step was trained with."""

HARDLY_ANY = 0.05
"""Share of steps whose task is remembered, below which a memory is of no use."""

MANY_BATCHES = 50
"""A memory of so many batches of tasks has seen whether tasks come again."""

History = dict[str, Any] | None
"""State carried between iterations, such as running statistics (``Credit.history``)."""

_BEGUN: set[str] = set()
"""Recipes whose first batch was credited, of those with a discount."""

Compute = Callable[[StepTable, Bools], Credit]
"""Credits a table: the steps that count, and a mask of those among all steps."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CreditedSteps(Brief):
    """Steps of whole groups, with their credit."""

    table: StepTable
    """The steps of the groups that count."""
    counts: Bools
    """For each step whether its group counts."""
    credit: Credit | None
    """Of the steps that count, in their order."""
    dropped: dict[str, str]
    """Groups that do not count, and why."""
    without_reward: int = 0
    """Trajectories that do not count because they have no reward."""

    def next_history(self, before: History) -> History:
        """The carried state for the next iteration; unchanged if no group counted."""
        return before if self.credit is None else self.credit.history

    @property
    def advantage(self) -> Floats:
        """Of every step; 0 for those without credit."""
        values = np.zeros(self.counts.size)
        values[self.counts] = 0.0 if self.credit is None else self.credit.advantage
        return values

    @property
    def learned(self) -> Bools:
        """Steps that count and are learned from: not those that only measure what others earn."""
        values = self.counts.copy()
        if self.credit is not None:
            values[self.counts] = self.credit.reason != Reason.COUNTERFACTUAL
        return values

    @property
    def signal(self) -> Bools:
        """Steps with an advantage other than 0."""
        return np.not_equal(self.advantage, 0.0)


def credit_steps(
    table: StepTable,
    recipe: Recipe,
    on_problem: OnProblem = "drop",
    *,
    group_size: int | None = None,
    failed: Mapping[str, str] | None = None,
    history: History = None,
    compute: Compute | None = None,
) -> CreditedSteps:
    """Select the groups of a table that count, and credit them.

    Args:
        table: the steps of all processes.
        recipe: the estimator.
        on_problem: what to do about steps that cannot be credited, see ``select``.
        group_size: trajectories that each group was meant to have, if known.
        failed: groups to drop whatever their steps are, with the reason.
        history: the state that the recipe carried over from the iteration before.
        compute: applies the recipe, if not in this process.
    """
    if not len(table):
        nobody = np.zeros(0, dtype=np.bool_)
        return CreditedSteps(table=table, counts=nobody, credit=None, dropped=dict(failed or {}))
    selection = select(table, on_problem, group_size=group_size, failed=failed)
    for problem in selection.report.problems:
        if problem.kind.label in selection.dropped_rows:
            codes = np.unique(table.trajectory.codes[problem.rows])
            names = first_names(table.trajectory, codes)
            unlabelled = problem.kind is ProblemKind.MISSING_REWARD
            what = "Left out" if unlabelled else "Groups dropped: those of"
            logging.getLogger(__name__).warning("%s %s %s", problem, what, names)
    keep, dropped = selection.keep, selection.dropped
    kept = table.take(keep)
    missing = [p for p in selection.report.problems if p.kind is ProblemKind.MISSING_REWARD]
    told: dict[str, Any] = {"dropped": dropped, "without_reward": sum(p.count for p in missing)}
    if not keep.any():
        return CreditedSteps(table=kept, counts=keep, credit=None, **told)
    gamma = getattr(recipe, "gamma", None)
    if gamma is not None and repr(recipe) not in _BEGUN:
        _BEGUN.add(repr(recipe))
        say_once(f"{recipe!r}. {propose_discount(kept).compared(gamma)}")
    inputs: dict[str, Any] = {"history": history} if recipe.has_history else {}
    credit = recipe(kept, **inputs) if compute is None else compute(kept, keep)
    for note in credit.notes:
        say_once(note)
    kept_tasks = len((history or {}).get("tasks", ()))
    share = credit.metrics.get("memory_share", 1.0)
    if share < HARDLY_ANY and kept_tasks > MANY_BATCHES * kept.group.used().values.size:
        say_once(
            f"{recipe.name} remembers many tasks, and hardly any comes again, so its memory is of "
            "no use; sample several rollouts of each task"
        )
    return CreditedSteps(table=kept, counts=keep, credit=credit, **told)


def fingerprint_layer(
    recipe: Recipe, layer: int | None, key: str = "fingerprints.layer"
) -> int | None:
    """The layer to take fingerprints from; None if the recipe takes none.

    Without a layer, a recipe that could use fingerprints compares states by their exact text, as
    it does on a file without them; a line in the log says so.
    """
    from_policy = getattr(recipe, "fingerprint", None) == "given"
    if not from_policy or getattr(recipe, "states", "cluster") == "exact":
        return None
    if layer is None:
        say_once(
            f"{recipe.name} compares states by their exact text: {key} names the layer whose "
            "hidden states it can compare instead (ascribe calibrate finds one)"
        )
    return layer


@cache
def say_once(message: str) -> None:
    """Log a warning, unless it was logged before."""
    logging.getLogger(__name__).warning(message)


def with_first_tokens(
    table: StepTable, spans: Spans, tokens: Sequence[Any], recipe: Recipe
) -> StepTable:
    """The table with the first tokens of each turn, if the recipe compares actions by them.

    Args:
        table: the turns.
        spans: where the tokens of each are.
        tokens: ids of each sequence.
        recipe: the estimator.
    """
    if getattr(recipe, "action_key", None) != "first_tokens":
        return table
    ends = np.minimum(spans.end, spans.start + FIRST_TOKENS)
    places = zip(spans.sequence, spans.start, ends, strict=True)
    texts = [" ".join(str(int(one)) for one in tokens[row][i:j]) or None for row, i, j in places]
    return replace(table, first_tokens=Coded.encode(texts))


def save_history(history: History, checkpoint: str | Path) -> None:
    """Write the carried state into a checkpoint, before the file that completes the checkpoint."""
    Path(checkpoint).mkdir(parents=True, exist_ok=True)
    write_file(Path(checkpoint, HISTORY), json.dumps(history))


def load_history(recipe: Recipe, checkpoint: str | Path) -> History:
    """The carried state of a checkpoint, so that a resumed run computes what an unbroken one would.

    Raises:
        ValueError: if the recipe needs it and the checkpoint has none.
    """
    if not recipe.has_history:
        return None
    try:
        history: History = loads((Path(checkpoint) / HISTORY).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(no_history(recipe, checkpoint, HISTORY)) from error
    return history


def no_history(recipe: Recipe, checkpoint: str | Path, name: str) -> str:
    """What is wrong with a checkpoint that lacks the carried state, which is under this name."""
    return (
        f"{recipe.name} continues from what earlier iterations measured, and {checkpoint} holds no "
        f"{name}: it was not written by a run of this recipe; start anew, or resume with its own"
    )


def write_steps(
    credited: CreditedSteps,
    folder: str | Path,
    number: int,
    steps: Any = None,
    columns: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``rollouts_NUMBER.parquet``: the steps of the groups that count (``trained_steps``)."""
    return write_iteration(trained_steps(credited, number, steps, columns), folder, number)


def trained_steps(
    credited: CreditedSteps,
    number: int,
    steps: Any = None,
    columns: Mapping[str, Any] | None = None,
) -> Any:
    """The steps of the groups that count, as an Arrow table.

    Besides the columns in ``steps`` it has ``trained_advantage``, ``iteration`` and all inputs of
    the recipe, such as ``fingerprint``: ``ascribe credit`` computes the same advantages from it,
    and from a folder of such files. ``columns`` are further ones, with a value for every step.
    """
    import pyarrow as pa

    inputs = table_to_arrow(credited.table)
    steps = inputs if steps is None else steps
    for name in inputs.column_names:
        if name not in steps.column_names:
            steps = steps.append_column(name, inputs.column(name))
    for name, values in (columns or {}).items():
        steps = steps.append_column(name, pa.array(values[credited.counts]))
    steps = steps.append_column(TRAINED, pa.array(credited.advantage[credited.counts]))
    counted = pa.array([number + 1] * len(steps), pa.int64())  # from 1, as in metrics.jsonl
    return steps.append_column("iteration", counted)


def write_iteration(steps: Any, folder: str | Path, number: int) -> Path:
    """Write ``rollouts_NUMBER.parquet``."""
    path = Path(folder, f"rollouts_{number:05d}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(steps, path)
    return path
