"""Batches credited one by one and put together: the one table that a report is about."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from ascribe.diagnose import Diagnosis, diagnose
from ascribe.estimators import Recipe
from ascribe.estimators.assign import assign
from ascribe.estimators.credit import Credit, Explanation, Term
from ascribe.report.reading import Batch, refused
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, CheckReport, arrange
from ascribe.steps.problems import Problem, Severity, TableError
from ascribe.steps.table import Coded, StepTable

NAMES = ("group", "trajectory", "corrects")
"""Columns that name groups or trajectories, which are others in every batch."""


@dataclass(frozen=True, eq=False)
class Credited:
    """All steps that could be credited, with their credit and where they come from."""

    recipe: Recipe
    table: StepTable
    credit: Credit
    report: CheckReport
    """What ``check`` found in all batches; rows are numbered through from the first to the last."""
    batch: Ints
    """Batch of each row of the table."""
    row: Ints
    """Row of its batch that each row of the table is."""
    names: tuple[str, ...]
    """Name of each batch."""
    won: Bools | None
    trained: Floats | None
    dropped_groups: int
    dropped_rows: int
    diagnoses: tuple[Diagnosis, ...]
    """Of each batch."""

    @property
    def steps(self) -> Arranged:
        """The table in canonical order."""
        return arrange(self.table)


def credit_batches(
    batches: Sequence[Batch], recipe: Recipe, group_size: int | None = None
) -> Credited:
    """Credit every batch by itself, as a trainer does, and put them together.

    Groups whose rows leave no right answer are left out and counted.

    Raises:
        RefusedFileError: if nothing is left of a batch.
    """
    tables, credits_, reports, rows = [], [], [], []
    diagnoses: list[Diagnosis] = []
    dropped_groups, history = 0, None
    for batch in batches:
        inputs: dict[str, Any] = {"history": history} if history is not None else {}
        try:
            assigned = assign(
                batch.table,
                recipe,
                "drop",
                severity=Severity.FATAL,
                group_size=group_size,
                **inputs,
            )
        except TableError as error:
            raise refused(batch, error) from error
        keep = assigned.selection.keep
        history = getattr(assigned.credit, "history", None)
        whole = bool(keep.all())
        tables.append(batch.table if whole else batch.table.take(keep))
        credits_.append(assigned.credit if whole else assigned.credit.rows(keep))
        diagnoses.append(diagnose(tables[-1], credits_[-1]))
        reports.append(assigned.selection.report)
        rows.append(np.flatnonzero(keep))
        dropped_groups += len(assigned.selection.dropped)
    table = _joined_tables(tables, [batch.name for batch in batches])
    return Credited(
        recipe=recipe,
        table=table,
        credit=_joined_credits(credits_),
        report=_joined_reports(reports),
        batch=np.repeat(np.arange(len(batches)), [len(part) for part in tables]),
        row=np.concatenate(rows),
        names=tuple(batch.name for batch in batches),
        won=_joined_arrays([batch.won for batch in batches], rows),
        trained=_joined_arrays([batch.trained for batch in batches], rows),
        dropped_groups=dropped_groups,
        dropped_rows=sum(len(batch.table) for batch in batches) - len(table),
        diagnoses=tuple(diagnoses),
    )


def _joined_arrays(arrays: Sequence[Any], rows: Sequence[Ints]) -> Any:
    """The arrays at their rows, one after another; None if a batch has none."""
    if any(array is None for array in arrays):
        return None
    return np.concatenate([array[kept] for array, kept in zip(arrays, rows, strict=True)])


def _joined_tables(tables: Sequence[StepTable], names: Sequence[str]) -> StepTable:
    """One table of all rows. Groups and trajectories of two batches are never the same ones."""
    if len(tables) == 1:
        return tables[0]
    clash = any(
        _clash([getattr(table, name) for table in tables]) for name in ("group", "trajectory")
    )
    columns: dict[str, Any] = {}
    for field in fields(StepTable):
        parts = [getattr(table, field.name) for table in tables]
        if all(part is None for part in parts):
            continue
        if field.name in NAMES and clash:
            parts = [_prefixed(part, name) for part, name in zip(parts, names, strict=True)]
        joined = _joined_columns(field.name, parts, [len(table) for table in tables])
        if joined is not None:
            columns[field.name] = joined
    return StepTable(**columns)


def _joined_columns(name: str, parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """One column; where a batch lacks it, its default, or nothing at all if it has none."""
    example = next(part for part in parts if part is not None)
    if isinstance(example, Coded):
        return _joined_texts(parts, sizes)
    if example.dtype == np.bool_:
        default = name == "valid"
        filled = [
            np.full(size, default) if part is None else part
            for part, size in zip(parts, sizes, strict=True)
        ]
        return np.concatenate(filled)
    shapes = {None if part is None else part.shape[1:] for part in parts}
    return np.concatenate(parts) if len(shapes) == 1 else None


def _joined_texts(parts: Sequence[Coded | None], sizes: Sequence[int]) -> Coded:
    used = [None if part is None else part.used() for part in parts]
    values = [value for part in used if part is not None for value in part.values]
    again = Coded.encode(values)
    codes, start = [], 0
    for part, size in zip(used, sizes, strict=True):
        if part is None:
            codes.append(np.full(size, -1, dtype=np.int64))
            continue
        stop = start + part.values.size
        codes.append(np.append(again.codes[start:stop], -1)[part.codes])
        start = stop
    return Coded(np.concatenate(codes), again.values)


def _clash(parts: Sequence[Coded]) -> bool:
    seen: set[str] = set()
    for part in parts:
        values = set(part.used().values)
        if seen & values:
            return True
        seen |= values
    return False


def _prefixed(part: Coded | None, name: str) -> Coded | None:
    if part is None:
        return None
    values = np.empty(part.values.size, dtype=object)
    values[:] = [f"{name}: {value}" for value in part.values]
    return Coded(part.codes, values)


def _joined_credits(parts: Sequence[Credit]) -> Credit:
    """One credit; labels of different batches differ. Numbers are means, by rows."""
    if len(parts) == 1:
        return parts[0]
    terms = {}
    for name, first in parts[0].terms.items():
        labels, used = [], 0
        for part in parts:
            own = part.terms[name].labels
            labels.append(np.where(own < 0, -1, own + used))
            used += int(own.max(initial=-1)) + 1
        terms[name] = Term(
            np.concatenate([part.terms[name].values for part in parts]),
            np.concatenate([part.terms[name].reason for part in parts]),
            np.concatenate(labels),
            first.weight,
            partial(_joined_explanations, [part.terms[name] for part in parts]),
        )
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    numbers = {
        name: float(np.average([part.numbers[name] for part in parts], weights=sizes))
        for name in parts[0].numbers
        if all(name in part.numbers for part in parts)
    }
    return Credit(
        np.concatenate([part.advantage for part in parts]),
        np.concatenate([part.reason for part in parts]),
        terms,
        parts[0].recipe,
        numbers,
    )


def _joined_explanations(terms: Sequence[Term]) -> Explanation:
    """The explanations of a term in several batches; each brings its sentences."""
    parts = [term.explanation for term in terms]
    starts = np.cumsum([0, *(len(part.sentences) for part in parts)])
    none = [np.zeros(part.own.size, dtype=np.int64) for part in parts]
    ways = [zero if part.way is None else part.way for part, zero in zip(parts, none, strict=True)]
    return Explanation(
        own=np.concatenate([part.own for part in parts]),
        baseline=np.concatenate([part.baseline for part in parts]),
        peers=np.concatenate([part.peers for part in parts]),
        sentences=tuple(sentence for part in parts for sentence in part.sentences),
        way=np.concatenate([way + start for way, start in zip(ways, starts, strict=False)]),
        alike=np.concatenate(
            [
                zero if part.alike is None else part.alike
                for part, zero in zip(parts, none, strict=True)
            ]
        ),
    )


def _more(batches: int) -> str:
    return "one batch more" if batches == 1 else f"{batches:,} batches more"


def _joined_reports(parts: Sequence[CheckReport]) -> CheckReport:
    """The problems of all batches, each kind once, with the words of the first batch."""
    if len(parts) == 1:
        return parts[0]
    merged: dict[Any, Problem] = {}
    where: dict[Any, int] = {}
    start = 0
    for part in parts:
        for problem in part.problems:
            rows, count, detail = problem.rows + start, problem.count, problem.detail
            if problem.kind in merged:
                before = merged[problem.kind]
                rows = np.concatenate([before.rows, rows])
                count, detail = before.count + count, before.detail
            merged[problem.kind] = Problem(problem.kind, detail, rows, count)
            where[problem.kind] = where.get(problem.kind, 0) + 1
        start += part.rows
    found = [
        problem
        if where[kind] == 1
        else Problem(
            kind,
            f"{problem.detail}; and {_more(where[kind] - 1)}",
            problem.rows,
            problem.count,
        )
        for kind, problem in merged.items()
    ]
    return CheckReport(start, tuple(sorted(found, key=lambda problem: -problem.severity)))
