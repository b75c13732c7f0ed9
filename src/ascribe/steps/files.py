"""Step tables in Arrow, Parquet and JSON lines: the one reader and the one writer.

``docs/format.md`` describes the format. Every column, from whatever source, passes the checks of
``ascribe.steps.table.read_columns``. Parquet files carry checksums of their pages and a seal over
the whole file; both are verified, so that a damaged file is refused. pyarrow is imported inside the
functions, to keep ``import ascribe`` light.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from operator import eq
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ascribe.steps.arrays import Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.strict_json import DuplicateKeyError, unique_keys, without_nan
from ascribe.steps.table import (
    KNOWN_COLUMNS,
    MISSING_STEP,
    REQUIRED_COLUMNS,
    TEXT_COLUMNS,
    Coded,
    Column,
    StepTable,
    column_error,
    encodable,
    read_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_KEY = b"ascribe.step_table"
FORMAT_VERSION = b"1"

CREDIT_COLUMNS = ("advantage", "reason")
"""The columns that ``ascribe credit`` adds, with ``advantage_TERM`` and ``reason_TERM``.

The reader keeps them apart, because crediting a file again replaces them.
"""

TRANSCRIPT_COLUMNS = (
    *("observation", "prompt", "response", "prompt_ids", "response_ids", "logprobs"),
    *("finish", "problem", "won", "messages", "version"),
)
"""The columns that ``ascribe rollout`` and ``ascribe import`` add. No recipe reads them."""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")

SEAL_MARK = b"ascribe sealed 1"
SEAL_SIZE = len(SEAL_MARK) + 16
"""The seal of a Parquet file: the mark, and a digest of all other bytes of the file.

Parquet has checksums for its pages, but not for the footer that says where they are and how many
rows they hold: one wrong bit there can lose rows silently. The seal is between the last page and
the footer, where readers do not look. A copy written by another tool has no seal, and needs none.
"""

Progress = Callable[[float], None]
"""Called from time to time with the share of the work that is done."""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """A table read from a file, with the other columns of the file."""

    table: StepTable
    carried: "pa.Table"
    """Columns that are not part of the format, in the same row order."""
    credit: "pa.Table"
    """Columns of an earlier credit; none in a plain file of rollouts."""
    notes: tuple[Problem, ...] = ()
    """Problems that do not affect the table, such as unknown columns."""


def read_table(path: str | Path) -> StepTable:
    """The step table of a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file.

    Raises:
        TableError: if the file cannot be read as a step table, with every reason found.
        OSError: if the file cannot be opened.
    """
    return read(path).table


def write_table(table: StepTable, path: str | Path) -> None:
    """Write a step table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``."""
    write(table_to_arrow(table), path)


def read(
    path: str | Path,
    progress: Progress = lambda _: None,
    columns: Collection[str] | None = None,
) -> Rollouts:
    """Read a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file of steps.

    Args:
        path: the file.
        progress: called with the share that has been read.
        columns: the columns to read from a Parquet file; None: all.

    Raises:
        TableError: if the file cannot be read as a step table, with every reason found.
        OSError: if the file cannot be opened.
    """
    path = Path(path)
    if _is_jsonl(path):
        return _read_jsonl(path, progress)
    arrow = _read_parquet(path, progress, columns)
    _refuse_repeated(arrow.column_names)
    others, credit = _other_columns(arrow.column_names)
    damaged = [_damage(repr(name), arrow.column(name)) for name in others + credit]
    if problems := [problem for problem in damaged if problem is not None]:
        raise TableError(problems)
    table = table_from_arrow(arrow)
    return Rollouts(table, arrow.select(others), arrow.select(credit), _unknown_note(others))


def read_rows(path: str | Path, columns: Collection[str], rows: Ints) -> "pa.Table":
    """Columns outside the format at these rows of a file, in the order of ``rows``.

    Of a Parquet file, one row group is in memory at a time.
    """
    import pyarrow as pa

    path = Path(path)
    if not _is_jsonl(path):
        return _read_parquet(path, lambda _: None, columns, rows)
    carried = _read_jsonl(path, lambda _: None).carried
    return carried.select([c for c in carried.column_names if c in columns]).take(pa.array(rows))


def write(table: "pa.Table", path: str | Path) -> None:
    """Write an Arrow table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.

    Raises:
        TableError: if the format cannot hold a column; nothing is written then.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    if _is_jsonl(path):
        _write_jsonl(table, path)
    else:
        _write_parquet(table, path)


def table_from_arrow(table: "pa.Table") -> StepTable:
    """A step table from the known columns of an Arrow table.

    Raises:
        TableError: with every problem of every column.
    """
    _refuse_repeated(table.column_names)
    version = (table.schema.metadata or {}).get(FORMAT_KEY, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        detail = f"the file has format {version!r}; this ascribe reads {FORMAT_VERSION!r}"
        raise _error(ProblemKind.UNKNOWN_FORMAT, detail)
    return read_columns(dict(zip(table.column_names, table.columns, strict=True)), _from_arrow)


def table_to_arrow(table: StepTable) -> "pa.Table":
    """An Arrow table in the documented schema; text columns are dictionary-coded."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, column in table.columns().items():
        if isinstance(column, Coded):
            used = column.used()
            codes = pa.array(used.codes, type=pa.int32(), mask=used.codes < 0)
            values = pa.array(used.values, type=pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(codes, values)
        elif name == "step":
            columns[name] = pa.array(column, mask=column == MISSING_STEP)
        elif name == "without":
            columns[name] = pa.array(column, mask=np.isnan(column))
        elif name == "fingerprint":
            flat = pa.array(np.ascontiguousarray(column).ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
        else:
            columns[name] = pa.array(column)
    return pa.table(columns, metadata={FORMAT_KEY: FORMAT_VERSION})


# Arrow columns.


def _from_arrow(name: str, column: "pa.ChunkedArray") -> Column:
    """An Arrow column as coded text, numpy or Python values."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if _is_text(kind) and name != "fingerprint":
        return _text_from_arrow(name, column)
    if damaged := _damage(name, column):
        raise TableError([damaged])
    if name == "fingerprint":
        fits = pa.types.is_null(kind) or (_is_list(kind) and _is_number(kind.value_type))
    else:
        fits = _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    if not fits:
        detail = f"column {name} has the type {kind}, which the format does not list for it"
        raise column_error(ProblemKind.WRONG_TYPE, detail, np.arange(len(column)))
    if _is_list(kind):
        return _vectors_from_arrow(column)
    column = column.cast(kind)  # of a dictionary, its values
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64()).fill_null(float("nan"))
    values: Column = column.to_pylist() if column.null_count else column.to_numpy()
    return values


def _text_from_arrow(name: str, column: "pa.ChunkedArray") -> Coded:
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if damaged := _damage(name, array):
        # Bytes that are not UTF-8 become half surrogates, which the checks of text refuse.
        raw = array.dictionary.cast(pa.large_binary()).to_pylist()
        texts = [text and text.decode(errors="surrogateescape") for text in raw]
        if all(encodable(text or "") for text in texts):
            raise TableError([damaged])
        values = np.array([*texts, None], dtype=object)[:-1]
    else:
        values = array.dictionary.cast(pa.large_string()).to_numpy(zero_copy_only=False)
    distinct = set(values)
    if len(distinct) < len(values) or None in distinct:
        # A dictionary may hold a text twice, or a null.
        recoded = Coded.encode(list(values))
        codes, values = np.append(recoded.codes, -1)[codes], recoded.values
    return Coded(codes, values.astype(object)).used()


def _vectors_from_arrow(column: "pa.ChunkedArray") -> Column:
    """Lists of numbers as a matrix, or as lists if they do not fit one."""
    import pyarrow.compute as pc

    array = column.combine_chunks()
    widths = pc.unique(pc.list_value_length(array).drop_null()).to_pylist()
    flat = array.drop_null().flatten()
    if len(widths) != 1 or widths == [0] or flat.null_count:
        lists: Column = column.to_pylist()
        return lists
    values = flat.to_numpy(zero_copy_only=False)
    matrix = np.zeros((len(column), widths[0]), dtype=values.dtype)
    matrix[array.is_valid().to_numpy(zero_copy_only=False)] = values.reshape(-1, widths[0])
    return matrix


def _damage(name: str, column: Any) -> Problem | None:
    """The problem of a damaged column: text that is not UTF-8, or offsets or codes out of range."""
    try:
        column.validate(full=True)
    except ValueError as error:
        detail = f"column {name} is damaged: {_first_line(error)}"
        return Problem(ProblemKind.UNREADABLE_FILE, detail)
    return None


def _refuse_repeated(names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        detail = f"column {', '.join(map(repr, repeated))} appears twice"
        raise _error(ProblemKind.DUPLICATE_KEY, detail, count=len(repeated))


def _is_text(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_list(kind: "pa.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


# Parquet.


def _read_parquet(
    path: Path, progress: Progress, columns: Collection[str] | None, rows: Ints | None = None
) -> "pa.Table":
    """Columns of a Parquet file; with ``rows``, these rows alone, in their order."""
    with path.open("rb") as file:
        if _is_broken(file):
            detail = f"{path.name} is not as it was written: its seal is broken"
            raise _error(ProblemKind.UNREADABLE_FILE, detail)
        try:
            return _arrow_from_parquet(file, progress, columns, rows)
        # pyarrow reports damage by many exception types, some of them plain ones.
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            detail = f"{path.name} cannot be read as Parquet: {_first_line(error)}"
            raise _error(ProblemKind.UNREADABLE_FILE, detail) from error


def _arrow_from_parquet(
    opened: IO[bytes], progress: Progress, columns: Collection[str] | None, rows: Ints | None
) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.ParquetFile(opened).schema_arrow
    text = [f.name for f in schema if f.name in TEXT_COLUMNS and pa.types.is_string(f.type)]
    file = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=text)
    names = None if columns is None else [name for name in schema.names if name in columns]
    tables, start = [], 0
    for index in range(file.num_row_groups):
        size = file.metadata.row_group(index).num_rows
        inside = None if rows is None else np.sort(rows[(rows >= start) & (rows < start + size)])
        if inside is None:
            tables.append(file.read_row_group(index, columns=names))
        elif inside.size:
            row_group = file.read_row_group(index, columns=names)
            tables.append(row_group.take(pa.array(inside - start)))
        start += size
        progress((index + 1) / file.num_row_groups)
    arrow = pa.concat_tables(tables) if tables else file.read_row_groups([], columns=names)
    if rows is not None:
        return arrow.take(pa.array(np.argsort(np.argsort(rows, kind="stable"), kind="stable")))
    if arrow.num_rows != file.metadata.num_rows:
        raise ValueError(f"{arrow.num_rows:,} rows found, {file.metadata.num_rows:,} announced")
    return arrow


def _write_parquet(table: "pa.Table", path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    try:
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    except pa.ArrowException as error:
        detail = f"Parquet cannot hold these columns: {_first_line(error)}"
        raise _error(ProblemKind.WRONG_TYPE, detail) from error
    contents = memoryview(buffer.getvalue())
    footer = len(contents) - 8 - int.from_bytes(contents[-8:-4], "little")
    with replacing(path) as file:
        file.write(contents[:footer])
        file.write(SEAL_MARK + _digest(contents[footer:], [contents[:footer]]))
        file.write(contents[footer:])


def _is_broken(file: IO[bytes]) -> bool:
    """Whether a Parquet file has a seal that does not fit its other bytes."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    footer = size - 8 - int.from_bytes(file.read(4), "little")
    start = footer - SEAL_SIZE
    if start < 0:
        return False
    file.seek(start)
    mark, digest = file.read(len(SEAL_MARK)), file.read(SEAL_SIZE - len(SEAL_MARK))
    # The mark may be damaged too: six of its bytes in their places show that it was there.
    if sum(map(eq, mark, SEAL_MARK)) < 6:
        return False
    tail = file.read()
    file.seek(0)
    body = iter(lambda: file.read(min(2**20, start - file.tell())), b"")
    return digest != _digest(tail, body)


def _digest(tail: Any, body: Iterable[Any]) -> bytes:
    digest = blake2b(tail, digest_size=SEAL_SIZE - len(SEAL_MARK))
    for block in body:
        digest.update(block)
    return digest.digest()


# JSON lines.


def _read_jsonl(path: Path, progress: Progress) -> Rollouts:
    rows = _parse_lines(_lines(path, progress))
    names = list(dict.fromkeys(name for row in rows for name in row))
    if broken := [name for name in names if not encodable(name)]:
        detail = f"not valid Unicode: the name of column {', '.join(map(repr, broken))}"
        raise _error(ProblemKind.MALFORMED_TEXT, detail, count=len(broken))
    present = [name for name in names if name in KNOWN_COLUMNS] if rows else REQUIRED_COLUMNS
    table = read_columns({name: [row.get(name) for row in rows] for name in present})
    others, credit = _other_columns(names)
    return Rollouts(table, _carry(rows, others), _carry(rows, credit), _unknown_note(others))


def _parse_lines(lines: Iterable[tuple[int, bytes]]) -> list[dict[str, Any]]:
    """The objects of all lines but blank ones; ``TableError`` with one problem for each kind."""
    rows, broken = [], dict[ProblemKind, tuple[str, list[int]]]()
    for index, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode(), object_pairs_hook=unique_keys)
            if isinstance(row, dict):
                rows.append(row)
                continue
            kind, detail = ProblemKind.BAD_LINE, f"is a JSON {type(row).__name__}, not an object"
        except DuplicateKeyError as error:
            kind, detail = ProblemKind.DUPLICATE_KEY, f"is ambiguous: {error}"
        except (ValueError, RecursionError) as error:
            kind, detail = ProblemKind.BAD_LINE, f"is not JSON: {_first_line(error)}"
        broken.setdefault(kind, (f"line {index + 1} {detail}", []))[1].append(index)
    if broken:
        raise TableError(
            Problem(
                kind,
                f"{first}, and {len(at) - 1:,} lines more" if len(at) > 1 else first,
                np.array(at),
                len(at),
            )
            for kind, (first, at) in broken.items()
        )
    return rows


def _lines(path: Path, progress: Progress) -> Iterator[tuple[int, bytes]]:
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
        try:
            for index, line in enumerate(file):
                if index % 10_000 == 0:
                    progress(raw.tell() / size)
                yield index, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            detail = f"{path.name} cannot be unpacked: {_first_line(error)}"
            raise _error(ProblemKind.UNREADABLE_FILE, detail) from error


def _carry(rows: list[dict[str, Any]], names: list[str]) -> "pa.Table":
    """The unknown keys of JSON rows as Arrow columns."""
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            array = _unaltered(values)
            if array is None:
                texts = [None if value is None else json.dumps(value) for value in values]
                array = pa.array(texts, type=pa.string())
        except RecursionError as error:
            detail = f"column {name!r} is nested too deeply"
            raise _error(ProblemKind.BAD_LINE, detail) from error
        columns[name] = array
    return pa.table(columns)


def _unaltered(values: list[Any]) -> "pa.Array | None":
    """The values as an Arrow array, or None if Arrow or Parquet cannot hold them as they are.

    Arrow has one type for a column: objects gain the keys of other rows, and mixed types have none.
    Parquet cannot hold an object without keys.
    """
    import pyarrow as pa

    try:
        array = pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    altered = pa.types.is_nested(array.type) and array.to_pylist() != values
    return None if altered or "struct<>" in str(array.type) else array


def _write_jsonl(table: "pa.Table", path: Path) -> None:
    if unsupported := [field for field in table.schema if not _fits_json(field.type)]:
        names = ", ".join(f"{field.name!r} is {field.type}" for field in unsupported)
        detail = f"JSON has no such type ({names}); write .parquet instead"
        raise _error(ProblemKind.WRONG_TYPE, detail, count=len(unsupported))
    with (
        replacing(path) as raw,
        # Without a name and a time, which gzip would take from the draft and the clock.
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
        if path.suffix == ".gz"
        else nullcontext(raw) as file,
    ):
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                file.write(json.dumps(without_nan(row), ensure_ascii=False).encode() + b"\n")


def _fits_json(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return all(_fits_json(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return _fits_json(kind.value_type)
    is_simple = pa.types.is_boolean(kind) or pa.types.is_null(kind)
    return bool(is_simple) or _is_text(kind) or _is_number(kind)


def _other_columns(names: list[str]) -> tuple[list[str], list[str]]:
    """The names outside the format: those that are carried along, and those of a credit."""
    prefixes = tuple(f"{name}_" for name in CREDIT_COLUMNS)
    others = [name for name in names if name not in KNOWN_COLUMNS]
    credit = [name for name in others if name in CREDIT_COLUMNS or name.startswith(prefixes)]
    return [name for name in others if name not in credit], credit


def _unknown_note(names: list[str]) -> tuple[Problem, ...]:
    unknown = [name for name in names if name not in TRANSCRIPT_COLUMNS]
    if not unknown:
        return ()
    detail = f"not part of the format: {', '.join(map(repr, unknown))}"
    return (Problem(ProblemKind.UNKNOWN_COLUMN, detail, count=len(unknown)),)


def _is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def _error(kind: ProblemKind, detail: str, count: int = 1) -> TableError:
    return TableError([Problem(kind, detail, count=count)])


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
