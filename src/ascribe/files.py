"""Step tables in Arrow, Parquet and JSON lines: the readers and the writers.

The format is written down in ``docs/format.md``. Parquet pages carry checksums, which are verified
when read, so that a damaged file is refused and not half believed. pyarrow is imported inside the
functions, to keep ``import ascribe`` light.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ascribe.columns import (
    FLAG_COLUMNS,
    KNOWN_COLUMNS,
    REQUIRED_COLUMNS,
    TEXT_COLUMNS,
    columns_from_rows,
    missing_columns,
    table_from_columns,
)
from ascribe.problems import Kind, Problem, TableError
from ascribe.table import MISSING_STEP, Coded, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_KEY = b"ascribe.step_table"
FORMAT_VERSION = b"1"

CREDIT_COLUMNS = ("advantage", "reason")
"""The columns that ``ascribe credit`` adds, besides those that begin so with an underscore after.

A reader of rollouts keeps them apart: crediting a file again replaces them.
"""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")

Progress = Callable[[float], None]
"""Called now and then with the share that is done."""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """A table read from a file, with what the file held besides."""

    table: StepTable
    carried: "pa.Table"
    """Columns that are not part of the format, in the same row order."""
    credit: "pa.Table"
    """Columns of an earlier credit; none in a plain file of rollouts."""
    notes: tuple[Problem, ...] = ()
    """What the reader noticed and could live with."""


def read(path: str | Path, progress: Progress = lambda _: None) -> Rollouts:
    """Read a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file of steps.

    Raises:
        TableError: if the file cannot be read as a step table, with every reason found.
        OSError: if the file cannot be opened.
    """
    path = Path(path)
    return _read_jsonl(path, progress) if _is_jsonl(path) else _read_parquet(path, progress)


def write(table: "pa.Table", path: str | Path) -> None:
    """Write an Arrow table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``."""
    path = Path(path)
    if _is_jsonl(path):
        with _open(path, "wb") as file:
            for batch in table.to_batches(max_chunksize=10_000):
                for row in batch.to_pylist():
                    file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        return
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def table_from_arrow(table: "pa.Table") -> StepTable:
    """A ``StepTable`` from the known columns of an Arrow table.

    Raises:
        TableError: with every problem of every column.
    """
    repeated = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if repeated:
        detail = f"column {', '.join(repeated)} appears twice"
        raise TableError([Problem(Kind.DUPLICATE_KEY, detail, count=len(repeated))])
    problems = _wrong_version(table) + missing_columns(table.column_names)
    columns: dict[str, Any] = {}
    for name in KNOWN_COLUMNS:
        if name in table.column_names:
            found: list[Problem] = []
            columns[name] = _arrow_column(name, table.column(name), found)
            problems += found
    if problems:
        raise TableError(problems)
    return StepTable(**columns)


def table_to_arrow(table: StepTable) -> "pa.Table":
    """An Arrow table in the documented schema; text columns are dictionary-coded."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, column in table.columns().items():
        if isinstance(column, Coded):
            codes = pa.array(column.codes, type=pa.int32(), mask=column.codes < 0)
            values = pa.array(column.values, type=pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(codes, values)
        elif name == "step":
            columns[name] = pa.array(column, mask=column == MISSING_STEP)
        else:
            columns[name] = pa.array(column)
    return pa.table(columns, metadata={FORMAT_KEY: FORMAT_VERSION})


# Parquet and Arrow.


def _read_parquet(path: Path, progress: Progress) -> Rollouts:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as opened:
        try:
            schema = pq.ParquetFile(opened).schema_arrow
            text = [f.name for f in schema if f.name in TEXT_COLUMNS and pa.types.is_string(f.type)]
            file = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=text)
            parts = []
            for number in range(file.num_row_groups):
                parts.append(file.read_row_group(number))
                progress((number + 1) / file.num_row_groups)
            arrow = pa.concat_tables(parts) if parts else file.read()
        # pyarrow reports damage by many exception types, some of them plain ones.
        except Exception as error:
            detail = f"{path.name} cannot be read as Parquet: {_first_line(error)}"
            raise TableError([Problem(Kind.UNREADABLE_FILE, detail)]) from error
    unknown, credit = _unknown(arrow.column_names)
    carried, earlier = arrow.select(unknown), arrow.select(credit)
    return Rollouts(table_from_arrow(arrow), carried, earlier, _unknown_note(unknown))


def _wrong_version(table: "pa.Table") -> list[Problem]:
    version = (table.schema.metadata or {}).get(FORMAT_KEY, FORMAT_VERSION)
    if version == FORMAT_VERSION:
        return []
    detail = f"the file has format {version!r}; this ascribe reads {FORMAT_VERSION!r}"
    return [Problem(Kind.UNKNOWN_FORMAT, detail)]


def _arrow_column(name: str, column: "pa.ChunkedArray", problems: list[Problem]) -> Any:
    """One column as numpy or ``Coded``; what is wrong with it is appended to ``problems``."""
    import pyarrow as pa

    if name in TEXT_COLUMNS:
        return _arrow_text(name, column, problems)
    if name in FLAG_COLUMNS:
        return _arrow_flag(name, column, problems)
    kind = column.type
    if name == "step":
        fits, wanted = pa.types.is_integer(kind) and not pa.types.is_uint64(kind), "an integer"
    else:
        fits, wanted = pa.types.is_floating(kind) or pa.types.is_integer(kind), "a number"
    if not fits:
        detail = f"column {name} must be {wanted}, not {kind}"
        problems.append(Problem(Kind.WRONG_TYPE, detail, count=len(column)))
        return None
    if name == "step":
        return column.cast(pa.int64()).fill_null(MISSING_STEP).to_numpy()
    # Integers beyond 2**53 lose their last digits here, which no reward needs.
    return column.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy()


def _arrow_flag(name: str, column: "pa.ChunkedArray", problems: list[Problem]) -> Any:
    import pyarrow as pa

    if column.null_count == len(column) and len(column) > 0:
        return None  # given nowhere is the same as absent
    if not pa.types.is_boolean(column.type):
        detail = f"column {name} must be true or false, not {column.type}"
        problems.append(Problem(Kind.WRONG_TYPE, detail, count=len(column)))
        return None
    if column.null_count:
        rows = np.flatnonzero(column.is_null().to_numpy())
        detail = f"column {name} is empty in some rows"
        problems.append(Problem(Kind.PARTIAL_FLAG, detail, rows, int(rows.size)))
        return None
    return column.to_numpy().astype(np.bool_)


def _arrow_text(name: str, column: "pa.ChunkedArray", problems: list[Problem]) -> Coded | None:
    import pyarrow as pa

    coded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if coded else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    text = text or pa.types.is_string_view(kind)
    if not (text or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        detail = f"column {name} must be text, not {kind}"
        problems.append(Problem(Kind.WRONG_TYPE, detail, count=len(column)))
        return None
    if not coded:
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            column = column.cast(pa.large_string())
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    try:
        array.dictionary.validate(full=True)
    except pa.ArrowInvalid:
        detail = f"column {name} holds text that is not valid UTF-8"
        problems.append(Problem(Kind.MALFORMED_TEXT, detail, count=len(column)))
        return None
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    distinct = array.dictionary.cast(pa.large_string()).to_numpy(zero_copy_only=False)
    return _without_repeats(codes, distinct.astype(object))


def _without_repeats(codes: Any, values: Any) -> Coded:
    """A dictionary may hold a value twice, or a null; neither may split a state in two."""
    if len(set(values)) == len(values) and None not in set(values):
        return Coded(codes, values)
    again = Coded.encode(list(values))
    return Coded(np.append(again.codes, -1)[codes], again.values)


# JSON lines.


def _read_jsonl(path: Path, progress: Progress) -> Rollouts:
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for number, line in _lines(path, progress):
        problem, row = _parse(number, line)
        if problem:
            problems.append(problem)
        elif row is not None:
            rows.append(row)
    if problems:
        raise TableError(problems)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        columns: dict[str, list[Any]] = {name: [] for name in REQUIRED_COLUMNS}
    elif missing := missing_columns(names):
        raise TableError(missing)
    else:
        columns = columns_from_rows(rows)
    table = table_from_columns(columns)
    unknown, credit = _unknown(names)
    return Rollouts(table, _carry(rows, unknown), _carry(rows, credit), _unknown_note(unknown))


def _parse(number: int, line: bytes) -> tuple[Problem | None, dict[str, Any] | None]:
    """The object of one line, or what is wrong with the line; neither for a blank one."""
    where, said = np.array([number]), f"line {number + 1}"
    if not line.strip():
        return None, None
    try:
        row = json.loads(line.decode(), object_pairs_hook=_unique_keys)
    except _RepeatedKeyError as error:
        detail = f"{said} gives the key {error} twice"
        return Problem(Kind.DUPLICATE_KEY, detail, where), None
    except (ValueError, RecursionError) as error:
        return Problem(Kind.BAD_LINE, f"{said} is not JSON: {_first_line(error)}", where), None
    if not isinstance(row, dict):
        detail = f"{said} is a JSON {type(row).__name__}, not an object"
        return Problem(Kind.BAD_LINE, detail, where), None
    return None, row


class _RepeatedKeyError(Exception):
    """A JSON object gives one key twice."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(repr(next(name for name in names if names.count(name) > 1)))
    return row


def _lines(path: Path, progress: Progress) -> Iterator[tuple[int, bytes]]:
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
        try:
            for number, line in enumerate(file):
                if number % 10_000 == 0:
                    progress(raw.tell() / size)
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            detail = f"{path.name} cannot be unpacked: {_first_line(error)}"
            raise TableError([Problem(Kind.UNREADABLE_FILE, detail)]) from error


def _carry(rows: list[dict[str, Any]], names: list[str]) -> "pa.Table":
    """The unknown keys of JSON rows as Arrow columns; as JSON text where types are mixed."""
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, ValueError, OverflowError):
            columns[name] = pa.array([json.dumps(value) for value in values])
    return pa.table(columns)


def _unknown(names: list[str]) -> tuple[list[str], list[str]]:
    """The names outside the format: those that are carried along, and those of a credit."""
    outside = [name for name in names if name not in KNOWN_COLUMNS]
    begin = tuple(f"{name}_" for name in CREDIT_COLUMNS)
    credit = [name for name in outside if name in CREDIT_COLUMNS or name.startswith(begin)]
    return [name for name in outside if name not in credit], credit


def _unknown_note(names: list[str]) -> tuple[Problem, ...]:
    if not names:
        return ()
    detail = f"not part of the format: {', '.join(map(repr, names))}"
    return (Problem(Kind.UNKNOWN_COLUMN, detail, count=len(names)),)


def _is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


@contextmanager
def _open(path: Path, mode: str) -> Iterator[IO[bytes]]:
    with path.open(mode) as raw:
        if path.suffix == ".gz":
            with gzip.open(raw, mode) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield raw


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
