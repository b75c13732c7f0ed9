"""Rollout files as batches: the steps of one iteration each, with what a report reads besides.

A report needs few of the columns that a file may hold. Prompts and token ids are most of its bytes,
so a Parquet file is read column by column, and what was seen and said is read later, for the steps
that the page shows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascribe.engines.crediting import TRAINED
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.files import Progress, read, read_rows
from ascribe.steps.problems import Problem, TableError, printable
from ascribe.steps.table import KNOWN_COLUMNS, Coded, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

WON, ITERATION = "won", "iteration"
SAID = ("observation", "response")
"""Columns with what was seen and said, shown beside a step where a file has them."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Steps that were credited together: a file, or one iteration in it."""

    name: str
    table: StepTable
    won: Bools | None
    """Whether the task was done after each step, if the file says so."""
    trained: Floats | None
    """The advantage that each step was trained with, if the file says so."""
    path: Path
    rows: Ints
    """Row of the file that each row of the table is."""


class RefusedFileError(TableError):
    """A file that cannot be read or credited: which one, and why."""

    def __init__(self, path: Path, problems: Iterable[Problem]) -> None:
        self.path = path
        super().__init__(problems)

    def __str__(self) -> str:
        return f"{printable(self.path.name)}: {super().__str__()}"


def refused(batch: Batch, error: TableError) -> RefusedFileError:
    """The error for a batch that cannot be credited, with the rows of its file."""
    part = "" if batch.name.endswith(batch.path.name) else f"{batch.name}: "
    problems = [
        replace(each, detail=f"{part}{each.detail}", rows=batch.rows[each.rows])
        for each in error.problems
    ]
    return RefusedFileError(batch.path, problems)


def read_batches(
    files: Sequence[Path], *, fingerprints: bool, progress: Progress = lambda _: None
) -> list[Batch]:
    """The files as batches in the order given, a file with a column ``iteration`` in its order.

    Args:
        files: ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.
        fingerprints: whether fingerprints are wanted, which may be most of a file.
        progress: told the share that is done.

    Raises:
        RefusedFileError: if a file cannot be read as a step table.
        OSError: if a file cannot be opened.
    """
    known = [name for name in KNOWN_COLUMNS if fingerprints or name != "fingerprint"]
    batches = []
    for number, path in enumerate(files):
        try:
            rollouts = read(path, columns=(*known, WON, ITERATION, TRAINED))
            batches += _split(path, rollouts.table, rollouts.carried)
        except TableError as error:
            raise RefusedFileError(path, error.problems) from error
        progress((number + 1) / len(files))
    return _told_apart(batches)


def said(batches: Sequence[Batch], batch: Ints, rows: Ints) -> dict[str, list[str | None]]:
    """What was seen and said, by column, where the files tell. Each file is read once.

    Args:
        batches: all batches.
        batch: number of the batch of each step that is asked for.
        rows: row of its batch's table that each step is.
    """
    wanted: dict[Path, list[Ints]] = {}
    for number in np.unique(batch):
        places = np.flatnonzero(batch == number)
        rows_of_file = batches[number].rows[rows[places]]
        wanted.setdefault(batches[number].path, []).append(np.stack([places, rows_of_file]))
    found: dict[str, list[str | None]] = {}
    for path, parts in wanted.items():
        places, rows_of_file = np.concatenate(parts, axis=1)
        for name, texts in _said_in_file(path, rows_of_file).items():
            whole = found.setdefault(name, [None] * rows.size)
            for place, text in zip(places.tolist(), texts, strict=True):
                whole[place] = text
    return found


def _said_in_file(path: Path, rows: Ints) -> dict[str, list[str | None]]:
    import pyarrow as pa

    found = read_rows(path, SAID, rows)
    return {
        name: found.column(name).to_pylist()
        for name in found.column_names
        if pa.types.is_string(found.column(name).type)
        or pa.types.is_large_string(found.column(name).type)
    }


def _split(path: Path, table: StepTable, others: "pa.Table") -> list[Batch]:
    """One batch for each value of the column ``iteration``; the whole table without one."""
    import pyarrow as pa

    columns = {name: others.column(name) for name in others.column_names}
    won, trained = columns.get(WON), columns.get(TRAINED)
    won = won if won is not None and pa.types.is_boolean(won.type) else None
    trained = trained if trained is not None and pa.types.is_floating(trained.type) else None
    whole = Batch(
        path.name,
        table,
        None if won is None or won.null_count else won.to_numpy().astype(np.bool_),
        None if trained is None or trained.null_count else trained.to_numpy().astype(np.float64),
        path,
        np.arange(len(table)),
    )
    number = columns.get(ITERATION)
    if number is None or not pa.types.is_integer(number.type) or number.null_count:
        return [whole]
    numbers = number.to_numpy()
    return [
        _part(whole, f"iteration {value}", np.flatnonzero(numbers == value))
        for value in np.unique(numbers)
    ]


def _part(whole: Batch, name: str, rows: Ints) -> Batch:
    table = whole.table.take(rows)
    columns = table.columns().items()
    texts: dict[str, Any] = {n: c.used() for n, c in columns if isinstance(c, Coded)}
    return Batch(
        name,
        replace(table, **texts),  # what only other iterations say costs nothing here
        None if whole.won is None else whole.won[rows],
        None if whole.trained is None else whole.trained[rows],
        whole.path,
        whole.rows[rows],
    )


def _told_apart(batches: Iterable[Batch]) -> list[Batch]:
    """The batches with names that differ: two files of one name in two folders get numbers."""
    batches = list(batches)
    counted = Counter(batch.name for batch in batches)
    return [
        batch if counted[batch.name] == 1 else replace(batch, name=f"{number}: {batch.name}")
        for number, batch in enumerate(batches, start=1)
    ]
