"""Batches credited one by one and joined, and two recipes on the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ascribe.decisions.changed import Changed
from ascribe.estimators import Recipe
from ascribe.estimators.assign import assign
from ascribe.estimators.credit import Credit
from ascribe.estimators.diagnostics import Diagnosis, diagnose
from ascribe.groups.events import Calls, read_calls
from ascribe.groups.exact import exact
from ascribe.reports.reading import Batch, refused
from ascribe.reports.text import unique
from ascribe.sessions.messages import errors_at_end
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.check import Arranged, CheckReport, arrange, join_reports
from ascribe.steps.problems import Severity, TableError
from ascribe.steps.returns import episode_outcome
from ascribe.steps.strict_json import loads
from ascribe.steps.table import Coded, StepTable

NAMES = ("group", "trajectory", "corrects")
"""Columns that name groups or trajectories; equal names in two batches mean different things."""
CARRIED = ("won", "trained", "finish", "rewritten")
"""What a batch may tell of its steps besides the table."""
SIGNS = ("negative", "no credit", "positive")

Plain = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Credited:
    """All steps that could be credited, with their credit and their origin.

    Attributes:
        recipe: the estimator.
        table: the steps of all batches.
        credit: their credit.
        report: problems of all batches; rows are numbered from the first batch to the last.
        batch: batch of each row of the table.
        row: number of each row of the table in its batch.
        names: name of each batch.
        numbers: number of each batch's iteration.
        won: whether the task was done after each step, if all files have the column.
        trained: the advantage that each step was trained with, if all files have the column.
        finish: why each response ended, if all files have the column.
        rewritten: whether the context was rewritten after each step, if all files tell.
        dropped_groups: groups that could not be credited.
        dropped_rows: their rows.
        diagnoses: numbers about the credit of each batch.
    """

    recipe: Recipe
    table: StepTable
    credit: Credit
    report: CheckReport
    batch: Ints
    row: Ints
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    won: Bools | None
    trained: Floats | None
    finish: Objects | None
    rewritten: Bools | None
    dropped_groups: int
    dropped_rows: int
    diagnoses: tuple[Diagnosis, ...]

    @property
    def steps(self) -> Arranged:
        """The table in canonical order."""
        return arrange(self.table)

    @property
    def states(self) -> Ints:
        """State group of each step: the recipe's, or equal texts if it compares by no state."""
        if "step" in self.credit.terms and self.recipe.without_recurrence():
            return self.credit.terms["step"].labels[self.steps.rows]
        steps = self.steps
        return exact(steps.group, steps.state, self.table.state.values.size).labels

    @cached_property
    def sessions(self) -> list[str]:
        """The name of each trajectory in canonical order, as every part of a report shows it."""
        texts = self.table.trajectory.take(self.steps.rows[self.steps.starts]).texts()
        return unique([str(text or "") for text in texts])

    @cached_property
    def tasks(self) -> tuple[Ints, list[str]]:
        """The task of each group in canonical order, and the names that reports show for tasks.

        Groups of several batches are one task where the column ``task`` says so.
        """
        group, starts = self.steps.group_of_trajectory, self.steps.starts
        rows = self.steps.rows[starts[segments.first_rows(group, self.steps.group_count)]]
        names = [
            "not given" if text is None else str(text)
            for text in self.table.group.take(rows).texts()
        ]
        if len(self.names) == 1 or self.table.task is None:
            return np.arange(rows.size), unique(names)
        _, first, label = np.unique(
            self.table.task.codes[rows], return_index=True, return_inverse=True
        )
        own = [names[at].removeprefix(f"{self.names[self.batch[rows[at]]]}: ") for at in first]
        return label.astype(np.int64), unique(own)

    @cached_property
    def session_of_row(self) -> Ints:
        """The number of the trajectory of each row of the table; -1 for padding."""
        return self.steps.to_table_order(self.steps.trajectory, len(self.table), -1)

    @cached_property
    def returns(self) -> Floats:
        """What each trajectory earned."""
        steps = self.steps
        return episode_outcome(steps.reward, steps.trajectory, steps.trajectory_count)


def credit_batches(
    batches: Sequence[Batch], recipe: Recipe, group_size: int | None = None
) -> Credited:
    """Credit every batch by itself, as a trainer does, and join them.

    Groups with fatal problems are left out and counted.

    Raises:
        RefusedFileError: if nothing is left of a batch.
    """
    tables, credits_, reports, rows = [], [], [], []
    dropped_groups, history = 0, None
    for batch in batches:
        inputs: dict[str, Any] = {"history": history} if history is not None else {}
        inputs |= {"severity": Severity.FATAL, "group_size": group_size}
        try:
            assigned = assign(batch.table, recipe, "drop", **inputs)
        except TableError as error:
            raise refused(batch, error) from error
        keep = np.flatnonzero(assigned.selection.keep)
        all_kept = keep.size == len(batch.table)
        history = assigned.credit.history
        tables.append(batch.table if all_kept else batch.table.take(keep))
        credits_.append(assigned.credit if all_kept else assigned.credit.rows(keep))
        report = assigned.selection.report
        reports.append(CheckReport(report.rows, (*report.problems, *batch.problems)))
        rows.append(keep)
        dropped_groups += len(assigned.selection.dropped)
    names = tuple(batch.name for batch in batches)
    sizes = [len(table) for table in tables]
    lengths = [len(batch.table) for batch in batches]
    own: dict[str, Any] = {
        name: _joined_arrays([getattr(each, name) for each in batches], rows) for name in CARRIED
    }
    return Credited(
        recipe=recipe,
        table=_joined_tables(tables, names),
        credit=Credit.join(credits_),
        report=join_reports(reports, np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])),
        batch=np.repeat(np.arange(len(batches)), sizes),
        row=np.concatenate(rows),
        names=names,
        numbers=tuple(batch.number for batch in batches),
        dropped_groups=dropped_groups,
        dropped_rows=sum(lengths) - sum(sizes),
        diagnoses=tuple(map(diagnose, tables, credits_)),
        **own,
    )


def calls_of(credited: Credited, batches: Sequence[Batch]) -> Calls:
    """The calls of all batches; also refused are those of which a log's last result says so."""
    calls, steps = read_calls(credited.table), credited.steps
    refused, last = calls.refused.copy(), np.append(steps.starts[1:], steps.rows.size) - 1
    last = last[np.isin(last, calls.place)]
    for number, each in enumerate(batches):
        if not each.arguments or each.carried is None:  # it is no file of sessions
            continue
        own = last[credited.batch[steps.rows[last]] == number]
        texts = each.carried["messages"].take(each.rows[credited.row[steps.rows[own]]])
        for place, text in zip(own.tolist(), texts.to_pylist(), strict=True):
            if errors := errors_at_end(loads(text or "[]")):
                at = slice(*np.searchsorted(calls.place, [place, place + 1]))
                refused[at] |= errors if len(errors) == refused[at].size else any(errors)
    return replace(calls, refused=refused, again=calls.again & ~refused)


def credit_versions(
    batches: Sequence[Batch], changed: Changed, recipe: Recipe, group_size: int | None = None
) -> Credited:
    """Credit the files of two versions together, so that attempts of both are compared."""
    inputs: dict[str, Any] = {"severity": Severity.FATAL, "group_size": group_size}
    assigned = assign(changed.table, recipe, "drop", **inputs)
    keep = np.flatnonzero(assigned.selection.keep)
    batch = np.repeat([0, 1], [rows.size for rows in changed.kept])[keep]
    row = np.concatenate(changed.kept)[keep]
    kept = [row[batch == number] for number in (0, 1)]
    table, credit = changed.table.take(keep), assigned.credit.rows(keep)
    own: dict[str, Any] = {
        name: _joined_arrays([getattr(each, name) for each in batches], kept) for name in CARRIED
    }
    return Credited(
        recipe=recipe,
        table=table,
        credit=credit,
        report=assigned.selection.report,
        batch=batch,
        row=row,
        names=changed.names,
        numbers=(1, 2),
        dropped_groups=len(assigned.selection.dropped),
        dropped_rows=sum(len(each.table) for each in batches) - keep.size,
        diagnoses=(diagnose(table, credit),),
        **own,
    )


def _joined_arrays(arrays: Sequence[Any], rows: Sequence[Ints]) -> Any:
    """The arrays at their rows, one after another; None if a batch has none."""
    if any(array is None for array in arrays):
        return None
    return np.concatenate([array[kept] for array, kept in zip(arrays, rows, strict=True)])


def _joined_tables(tables: Sequence[StepTable], names: Sequence[str]) -> StepTable:
    """One table of all rows. Groups and trajectories of two batches are never the same ones.

    A column that a batch lacks gets its default there; one without a default is left out.
    """
    if len(tables) == 1:
        return tables[0]
    sizes = [len(table) for table in tables]
    names_of = [[n for t in tables for n in getattr(t, name).used().values] for name in NAMES[:2]]
    clash = any(len(set(used)) < len(used) for used in names_of)
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables for name in table.columns()):
        if name == "iteration":
            continue  # the names of groups and trajectories tell the batches apart
        blocks = [getattr(table, name) for table in tables]
        example = next(block for block in blocks if block is not None)
        if isinstance(example, Coded):
            prefixes = [f"{batch}: " if clash and name in NAMES else "" for batch in names]
            columns[name] = _joined_texts(blocks, sizes, prefixes)
        elif example.dtype == np.bool_:
            default = name == "valid"
            columns[name] = np.concatenate([table.flag(name, default=default) for table in tables])
        elif len({None if block is None else block.shape[1:] for block in blocks}) == 1:
            columns[name] = np.concatenate(blocks)
    return StepTable(**columns)


def _joined_texts(
    columns: Sequence[Coded | None], sizes: Sequence[int], prefixes: Sequence[str]
) -> Coded:
    used = [
        c.used() if c is not None else Coded.encode([None] * n)
        for c, n in zip(columns, sizes, strict=True)
    ]
    texts = [prefix + value for c, prefix in zip(used, prefixes, strict=True) for value in c.values]
    joined = Coded.encode(texts)
    starts = np.cumsum([0, *(c.values.size for c in used)])
    codes = [
        np.append(joined.codes[start : start + c.values.size], -1)[c.codes]
        for c, start in zip(used, starts, strict=False)
    ]
    return Coded(np.concatenate(codes), joined.values)


# Two recipes: which steps changed sign, and by how much.


@dataclass(frozen=True)
class RecipeComparison:
    """How the credit of one recipe differs from that of another.

    Attributes:
        first: name of the first recipe.
        second: name of the second recipe.
        signs: counts and shares of steps by both signs.
    """

    first: str
    second: str
    signs: list[Plain]

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
    )


def other_name(first: Recipe, second: Recipe) -> str:
    """The name of the second recipe, or its parameters that differ if both have the same name."""
    name = second.name
    if name != first.name:
        return name
    values = [(field.name, getattr(second, field.name)) for field in fields(second)]
    differ = [f"{key}={value}" for key, value in values if value != getattr(first, key)]
    return f"{name} with {', '.join(differ)}" if differ else name
