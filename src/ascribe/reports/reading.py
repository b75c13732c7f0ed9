"""Rollout files as batches: the steps of one iteration each, with the columns a report reads.

Texts and token ids are most of a file's bytes, so only the columns that a report needs are read,
and observations, prompts and responses later, only for the steps that the page shows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ascribe.engines.crediting import TRAINED
from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.balance import Balance
from ascribe.steps.files import Rollouts, read_rows
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, TableError, one_line, printable
from ascribe.steps.table import KNOWN_COLUMNS, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

    from ascribe.sessions.reading import SessionOptions

WON, FINISH, REWRITTEN = "won", "finish", "rewritten"
TRANSCRIPT = ("observation", "prompt", "response", "messages")
"""Columns that are shown with a step, if the file has them."""
TOKENS = "response_ids"
"""Tokens of each response, of which the number is shown."""
MEASURES = {"tokens": (TOKENS, "response_tokens", "tokens"), "seconds": ("seconds", "duration")}
"""What a step took: the columns that may say so, as numbers or, of tokens, as lists."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Steps that were credited together: a file, or one iteration in it.

    Attributes:
        name: name of the file, or number of the iteration.
        table: the steps.
        won: whether the task was done after each step, if the file has the column.
        trained: the advantage that each step was trained with, if the file has the column.
        path: the file.
        rows: number of each step's row in the file.
        finish: why each response ended, if the file has the column.
        rewritten: whether the context was rewritten after each step, if the file has the column.
        carried: the other columns, of a file of conversations.
        note: what a file of conversations was read as.
        balance: what was left out of it.
        problems: those that the table alone does not show.
        number: of the iteration: the file's own, or else the place among all batches, from 1.
        arguments: of a file of sessions: its name and the options to read it.
        measures: what each step took, by the names of ``MEASURES``, if the file tells.
    """

    name: str
    table: StepTable
    won: Bools | None
    trained: Floats | None
    path: Path
    rows: Ints
    finish: Objects | None = None
    rewritten: Bools | None = None
    carried: "pa.Table | None" = None
    note: str = ""
    balance: Balance | None = None
    problems: tuple[Problem, ...] = ()
    number: int = 1
    arguments: Sequence[str] = ()
    measures: Mapping[str, Floats] = field(default_factory=dict)


class RefusedFileError(TableError):
    """A file that cannot be read or credited: which one, and why."""

    def __init__(self, path: Path, problems: Iterable[Problem]) -> None:
        self.path = path
        super().__init__(problems)

    def __str__(self) -> str:
        return f"{printable(self.path.name)}: {super().__str__()}"


def refused(batch: Batch, error: TableError) -> RefusedFileError:
    """The error for a batch that cannot be credited, with the rows of its file."""
    prefix = "" if batch.name.endswith(batch.path.name) else f"{batch.name}: "
    problems = [
        replace(problem, detail=f"{prefix}{problem.detail}", rows=batch.rows[problem.rows])
        for problem in error.problems
    ]
    return RefusedFileError(batch.path, problems)


def read_batches(
    files: Sequence[Path | StepTable],
    *,
    fingerprints: bool,
    columns: Mapping[str, str] | None = None,
    memory: int = 2 << 30,
    whole: bool = False,
    **sessions: Unpack["SessionOptions"],
) -> list[Batch]:
    """The files as batches in the order given, a file with a column ``iteration`` in its order.

    Args:
        files: tables of steps, in files or in memory, or conversations.
        fingerprints: whether fingerprints are needed, which may be most of a file.
        columns: what the files call a column of the format.
        memory: bytes to use; of larger tables, and of folders of them, a sample of whole groups is
            read that fits.
        whole: whether a file is one batch, whatever its iterations.
        **sessions: how to read sessions.

    Raises:
        RefusedFileError: if a file cannot be read as a step table.
        OSError: if a file cannot be opened.
    """
    import pyarrow as pa

    from ascribe.archives import is_archive
    from ascribe.sessions.reading import CHECKED_COLUMNS, Imported, read

    known = [name for name in KNOWN_COLUMNS if fingerprints or name != "fingerprint"]
    measures = [name for names in MEASURES.values() for name in names]
    wanted = {*known, WON, TRAINED, REWRITTEN, *CHECKED_COLUMNS, *measures}.__contains__
    batches: list[Batch] = []
    for path in files:
        if isinstance(path, StepTable):
            nothing = pa.table({})
            name = Path(f"table {len(batches) + 1}")
            split = _split(name, Rollouts(path, nothing, nothing), whole=whole)
            batches += [replace(batch, carried=nothing) for batch in split]
            continue
        try:
            if is_archive(str(path), memory):
                batches += _sampled(path, memory // len(files), wanted, sessions, whole=whole)
                continue
            rollouts = read(path, wanted=wanted, columns=columns, **sessions)
        except TableError as error:
            raise RefusedFileError(path, error.problems) from error
        split = _split(path, rollouts, whole=whole)
        split = [replace(batch, balance=rollouts.balance) for batch in split]
        if isinstance(rollouts, Imported):  # reading it again would take as long
            note = f"{one_line(path.name)}: {rollouts.sentence()} {rollouts.advice()}".strip()
            made = {"carried": rollouts.carried, "note": note, "arguments": rollouts.arguments}
            split = [replace(batch, **made) for batch in split]
        batches += split
    if any(a.number >= b.number for a, b in pairwise(batches)):
        batches = [replace(batch, number=place) for place, batch in enumerate(batches, start=1)]
    name_counts = Counter(batch.name for batch in batches)
    return [
        batch
        if name_counts[batch.name] == 1
        else replace(batch, name=f"{batch.number}: {batch.name}")
        for batch in batches
    ]


def _sampled(
    path: Path,
    memory: int,
    wanted: Callable[[str], bool],
    sessions: "SessionOptions",
    *,
    whole: bool,
) -> list[Batch]:
    """The batches of whole groups of a large table, with the texts that a page may show."""
    from ascribe.archives import sample_archive

    rollouts, rows, size = sample_archive(
        path, memory, lambda name: wanted(name) or name in TRANSCRIPT, **sessions
    )
    split = _split(path, rollouts, whole=whole)
    if rows.size < size:
        share = f"{rows.size:,} of {size:,} rows ({rows.size / size:.2%})"
        note = f"{one_line(path.name)}: a sample of whole groups, {share}; "
        note += f"a larger {option('memory')} reads more."
        split = [replace(batch, note=note) for batch in split]
    made = {"carried": rollouts.carried, "balance": rollouts.balance}
    return [replace(batch, **made) for batch in split]


def read_transcript(batches: Sequence[Batch], batch: Ints, rows: Ints) -> dict[str, list[Any]]:
    """Observations, prompts and responses of chosen steps, where files have them.

    Of the tokens of responses, their number.

    Each file is read once.

    Args:
        batches: all batches.
        batch: number of the batch of each step.
        rows: row of each step in its batch's table.

    Raises:
        RefusedFileError: if these columns are damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts: dict[str, list[Any]] = {}
    row_of_file = np.array([batches[b].rows[row] for b, row in zip(batch, rows, strict=True)])
    for path in dict.fromkeys(item.path for item in batches):
        in_file = [index for index, item in enumerate(batches) if item.path == path]
        selected = np.flatnonzero(np.isin(batch, in_file))
        if not selected.size:
            continue
        carried = batches[in_file[0]].carried
        if carried is None:
            try:
                columns = read_rows(path, (*TRANSCRIPT, TOKENS), row_of_file[selected])
            except TableError as error:
                raise RefusedFileError(path, error.problems) from error
        else:
            columns = carried.select([name for name in TRANSCRIPT if name in carried.column_names])
            columns = columns.take(pa.array(row_of_file[selected]))
        for name in columns.column_names:
            column = columns.column(name)
            counted = name == TOKENS and pa.types.is_list(column.type)
            if counted:
                column = pc.list_value_length(column)
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            if counted or (is_text and name != TOKENS):
                of_steps = texts.setdefault(name, [None] * rows.size)
                for step, text in zip(selected.tolist(), column.to_pylist(), strict=True):
                    of_steps[step] = text
    return texts


def _split(path: Path, rollouts: Rollouts, *, whole: bool = False) -> list[Batch]:
    """One batch for each iteration of the table, or one of all."""
    import pyarrow as pa
    import pyarrow.types as kinds

    from ascribe.sessions.reading import CHECKED_COLUMNS, check_carried

    table, carried = rollouts.table, rollouts.carried

    def column(name: str, fits: Callable[[Any], bool]) -> Any:
        if name not in carried.column_names:
            return None
        values = carried.column(name)
        return values.to_numpy() if fits(values.type) and not values.null_count else None

    won, rewritten = rollouts.flag(WON), rollouts.flag(REWRITTEN)
    trained, finish = column(TRAINED, kinds.is_floating), column(FINISH, kinds.is_string)
    checked = carried.select([name for name in CHECKED_COLUMNS if name in carried.column_names])
    measures = _measures(carried)
    batches = []
    parts = [(1, np.arange(len(table)), table)] if whole else table.iterations()
    for number, rows, part in parts:
        columns = checked.take(pa.array(rows))
        batches.append(
            Batch(
                path.name if whole or table.iteration is None else f"iteration {number}",
                part,
                None if won is None else won[rows],
                None if trained is None else trained[rows],
                path,
                rows,
                None if finish is None else finish[rows],
                None if rewritten is None else rewritten[rows],
                problems=tuple(check_carried(Rollouts(part, columns, columns.select([])))),
                number=1 if whole or table.iteration is None else number,
                measures={name: values[rows] for name, values in measures.items()},
            )
        )
    return batches


def _measures(carried: "pa.Table") -> dict[str, Floats]:
    """What each step took, by the names of ``MEASURES``; NaN where it is not known."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    found: dict[str, Floats] = {}
    for measure, names in MEASURES.items():
        for name in filter(carried.column_names.__contains__, names):
            column = carried.column(name)
            if name == TOKENS and (kinds.is_list(column.type) or kinds.is_large_list(column.type)):
                column = pc.list_value_length(column)
            if kinds.is_integer(column.type) or kinds.is_floating(column.type):
                values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
                found.setdefault(measure, np.where(values >= 0, values, np.nan))
    return found


def measured(batches: Sequence[Batch], batch: Ints, rows: Ints, name: str) -> Floats:
    """What each of these steps took; NaN where it is not known."""
    values = np.full(rows.size, np.nan)
    for number, each in enumerate(batches):
        if name in each.measures:
            own = batch == number
            values[own] = each.measures[name][rows[own]]
    return values


def rollouts_of(batch: Batch) -> Rollouts:
    """The steps of a batch, and whether they won."""
    import pyarrow as pa

    nothing = pa.table({})
    carried = nothing if batch.won is None else pa.table({WON: batch.won})
    return Rollouts(batch.table, carried, nothing)
