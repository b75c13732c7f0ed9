"""Step tables in Arrow, Parquet and JSON lines: the readers and the writers.

The format is written down in ``docs/format.md``. Parquet files carry checksums of their pages and a
seal over everything, which are verified when read, so that a damaged file is refused and not half
believed. pyarrow is imported inside the functions, to keep ``import ascribe`` light.
"""

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from operator import eq
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ascribe.steps.columns import (
    FLAG_COLUMNS,
    KNOWN_COLUMNS,
    REQUIRED_COLUMNS,
    TEXT_COLUMNS,
    checked_fingerprints,
    columns_from_rows,
    encodable,
    missing_columns,
    table_from_columns,
)
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.table import MISSING_STEP, Coded, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_KEY = b"ascribe.step_table"
FORMAT_VERSION = b"1"

CREDIT_COLUMNS = ("advantage", "reason")
"""The columns that ``ascribe credit`` adds, besides those that begin so with an underscore after.

A reader of rollouts keeps them apart: crediting a file again replaces them.
"""

TRANSCRIPT_COLUMNS = (
    "observation",
    "prompt",
    "response",
    "prompt_ids",
    "response_ids",
    "logprobs",
    "finish",
    "problem",
    "won",
)
"""What ``ascribe rollout`` adds: what was seen, said and sampled. No recipe reads these columns."""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")

SEAL_MARK = b"ascribe sealed 1"
SEAL_SIZE = len(SEAL_MARK) + 16
"""The seal of a Parquet file: the mark, and a digest of all other bytes of the file.

Parquet protects its pages, not the footer that says where they are and how many rows they hold: one
bit there can lose rows silently. The seal lies between the last page and the footer, where readers
do not look, so that it ends with the file: a copy written by another tool has none, and needs none.
"""

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
    """Write an Arrow table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.

    Raises:
        TableError: if the format cannot hold a column; nothing is written then.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    if not _is_jsonl(path):
        _write_parquet(table, path)
        return
    if strange := [field for field in table.schema if not _fits_json(field.type)]:
        names = ", ".join(f"{field.name!r} is {field.type}" for field in strange)
        detail = f"JSON has no such type ({names}); write .parquet instead"
        raise TableError([Problem(ProblemKind.WRONG_TYPE, detail, count=len(strange))])
    with _open(path, "wb") as file:
        for batch in _json_ready(table).to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def table_from_arrow(table: "pa.Table") -> StepTable:
    """A ``StepTable`` from the known columns of an Arrow table.

    Raises:
        TableError: with every problem of every column.
    """
    if repeated := _repeated_columns(table.column_names):
        raise TableError(repeated)
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


# Parquet and Arrow.


def _read_parquet(path: Path, progress: Progress) -> Rollouts:
    with path.open("rb") as opened:
        if is_broken(opened):
            detail = f"{path.name} is not as it was written: its seal is broken"
            raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail)])
        try:
            arrow = _arrow_from_parquet(opened, progress)
        # pyarrow reports damage by many exception types, some of them plain ones.
        except Exception as error:
            detail = f"{path.name} cannot be read as Parquet: {_first_line(error)}"
            raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail)]) from error
    if repeated := _repeated_columns(arrow.column_names):
        raise TableError(repeated)
    unknown, credit = _unknown(arrow.column_names)
    if damaged := _damaged_columns(arrow.select(unknown + credit)):
        raise TableError(damaged)
    carried, earlier = arrow.select(unknown), arrow.select(credit)
    return Rollouts(table_from_arrow(arrow), carried, earlier, _unknown_note(unknown))


def _arrow_from_parquet(opened: IO[bytes], progress: Progress) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.ParquetFile(opened).schema_arrow
    text = [f.name for f in schema if f.name in TEXT_COLUMNS and pa.types.is_string(f.type)]
    file = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=text)
    parts = []
    for number in range(file.num_row_groups):
        parts.append(file.read_row_group(number))
        progress((number + 1) / file.num_row_groups)
    arrow = pa.concat_tables(parts) if parts else file.read()
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
        raise TableError([Problem(ProblemKind.WRONG_TYPE, detail)]) from error
    whole = memoryview(buffer.getvalue())
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    with path.open("wb") as file:
        file.write(whole[:footer])
        file.write(SEAL_MARK + _digest(whole[footer:], [whole[:footer]]))
        file.write(whole[footer:])


def is_broken(file: IO[bytes]) -> bool:
    """Whether a Parquet file has a seal that does not fit its other bytes."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    footer = size - 8 - int.from_bytes(file.read(4), "little")
    start = footer - SEAL_SIZE
    if start < 0:
        return False
    file.seek(start)
    mark, digest = file.read(len(SEAL_MARK)), file.read(SEAL_SIZE - len(SEAL_MARK))
    # Damage may reach the mark too. Six of its bytes in their places are no accident.
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


def _repeated_columns(names: list[str]) -> list[Problem]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if not repeated:
        return []
    detail = f"column {', '.join(map(repr, repeated))} appears twice"
    return [Problem(ProblemKind.DUPLICATE_KEY, detail, count=len(repeated))]


def _damaged_columns(table: "pa.Table") -> list[Problem]:
    """Problems of columns that are carried along: text that is no text, offsets to nowhere."""
    problems = []
    for name in table.column_names:
        try:
            table.column(name).validate(full=True)
        except ValueError as error:
            detail = f"column {name!r} is damaged: {_first_line(error)}"
            problems.append(Problem(ProblemKind.UNREADABLE_FILE, detail))
    return problems


def _wrong_version(table: "pa.Table") -> list[Problem]:
    version = (table.schema.metadata or {}).get(FORMAT_KEY, FORMAT_VERSION)
    if version == FORMAT_VERSION:
        return []
    detail = f"the file has format {version!r}; this ascribe reads {FORMAT_VERSION!r}"
    return [Problem(ProblemKind.UNKNOWN_FORMAT, detail)]


def _arrow_column(name: str, column: "pa.ChunkedArray", problems: list[Problem]) -> Any:
    """One column as numpy or ``Coded``; what is wrong with it is appended to ``problems``."""
    import pyarrow as pa

    if name in TEXT_COLUMNS:
        return _arrow_text(name, column, problems)
    if name in FLAG_COLUMNS:
        return _arrow_flag(name, column, problems)
    if name == "fingerprint":
        return _arrow_fingerprint(column, problems)
    kind = column.type
    if name == "step":
        fits, wanted = pa.types.is_integer(kind) and not pa.types.is_uint64(kind), "an integer"
    else:
        fits, wanted = pa.types.is_floating(kind) or pa.types.is_integer(kind), "a number"
    if not fits and not pa.types.is_null(kind):
        detail = f"column {name} must be {wanted}, not {kind}"
        problems.append(Problem(ProblemKind.WRONG_TYPE, detail, count=len(column)))
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
        problems.append(Problem(ProblemKind.WRONG_TYPE, detail, count=len(column)))
        return None
    if column.null_count:
        rows = np.flatnonzero(column.is_null().to_numpy())
        detail = f"column {name} is empty in some rows"
        problems.append(Problem(ProblemKind.PARTIAL_FLAG, detail, rows, int(rows.size)))
        return None
    return column.to_numpy().astype(np.bool_)


def _arrow_fingerprint(column: "pa.ChunkedArray", problems: list[Problem]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count == len(column):
        return None  # given nowhere is the same as absent
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    nested = nested or pa.types.is_fixed_size_list(kind)
    if not nested or not (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        detail = f"column fingerprint must be lists of numbers, not {kind}"
        problems.append(Problem(ProblemKind.WRONG_TYPE, detail, count=len(column)))
        return None
    array = column.combine_chunks()
    widths = pc.unique(pc.list_value_length(array).drop_null()).to_pylist()
    flat = array.drop_null().flatten()
    if len(widths) > 1 or widths == [0] or flat.null_count:
        return checked_fingerprints(np.empty(len(column)), problems)
    numbers = flat.to_numpy(zero_copy_only=False)
    matrix = np.zeros((len(column), widths[0]), dtype=numbers.dtype)
    matrix[array.is_valid().to_numpy(zero_copy_only=False)] = numbers.reshape(-1, matrix.shape[1])
    return checked_fingerprints(matrix, problems)


def _arrow_text(name: str, column: "pa.ChunkedArray", problems: list[Problem]) -> Coded | None:
    import pyarrow as pa

    coded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if coded else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    text = text or pa.types.is_string_view(kind)
    if not (text or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        detail = f"column {name} must be text, not {kind}"
        problems.append(Problem(ProblemKind.WRONG_TYPE, detail, count=len(column)))
        return None
    if not coded:
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            column = column.cast(pa.large_string())
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    try:
        array.validate(full=True)
    except ValueError as error:
        rows = np.flatnonzero(np.isin(codes, _not_utf8(array.dictionary)))
        if rows.size:
            detail = f"column {name} holds text that is not valid UTF-8"
            problems.append(Problem(ProblemKind.MALFORMED_TEXT, detail, rows, int(rows.size)))
        else:
            detail = f"column {name} is damaged: {_first_line(error)}"
            problems.append(Problem(ProblemKind.UNREADABLE_FILE, detail))
        return None
    distinct = array.dictionary.cast(pa.large_string()).to_numpy(zero_copy_only=False)
    return _tidy(codes, distinct.astype(object))


def _not_utf8(texts: "pa.Array") -> list[int]:
    """Places of texts whose bytes are not UTF-8."""
    import pyarrow as pa

    broken = []
    for place, text in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        try:
            (text or b"").decode()
        except UnicodeDecodeError:
            broken.append(place)
    return broken


def _tidy(codes: Any, values: Any) -> Coded:
    """A dictionary may hold a value twice, a null, or what no row has: one code per text, used."""
    distinct = set(values)
    if len(distinct) < len(values) or None in distinct:
        again = Coded.encode(list(values))
        codes, values = np.append(again.codes, -1)[codes], again.values
    return Coded(codes, values).used()


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
        raise TableError(_by_kind(problems))
    names = list(dict.fromkeys(name for row in rows for name in row))
    if broken := [name for name in names if not encodable(name)]:
        detail = f"not valid Unicode: the name of column {', '.join(map(repr, broken))}"
        raise TableError([Problem(ProblemKind.MALFORMED_TEXT, detail, count=len(broken))])
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
        return Problem(ProblemKind.DUPLICATE_KEY, detail, where), None
    except (ValueError, RecursionError) as error:
        return Problem(
            ProblemKind.BAD_LINE, f"{said} is not JSON: {_first_line(error)}", where
        ), None
    if not isinstance(row, dict):
        detail = f"{said} is a JSON {type(row).__name__}, not an object"
        return Problem(ProblemKind.BAD_LINE, detail, where), None
    return None, row


def _by_kind(problems: list[Problem]) -> list[Problem]:
    """One problem for each kind, with all lines that show it and the words of the first."""
    merged = []
    for kind in dict.fromkeys(problem.kind for problem in problems):
        of_kind = [problem for problem in problems if problem.kind is kind]
        more = f", and {len(of_kind) - 1:,} lines more" if len(of_kind) > 1 else ""
        rows = np.concatenate([problem.rows for problem in of_kind])
        merged.append(Problem(kind, of_kind[0].detail + more, rows, len(of_kind)))
    return merged


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
            raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail)]) from error


def _carry(rows: list[dict[str, Any]], names: list[str]) -> "pa.Table":
    """The unknown keys of JSON rows as Arrow columns; as JSON text where Arrow would alter them.

    Arrow has one type for a column: objects gain the keys of other rows, and mixed types have none.
    """
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = _as_given(values)
        except RecursionError as error:
            detail = f"column {name!r} is nested too deeply"
            raise TableError([Problem(ProblemKind.BAD_LINE, detail)]) from error
    return pa.table(columns)


def _as_given(values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    try:
        array = pa.array(values)
        # Parquet cannot hold an object without keys.
        altered = "struct<>" in str(array.type)
        if not altered and (not pa.types.is_nested(array.type) or array.to_pylist() == values):
            return array
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    texts = [None if value is None else json.dumps(value) for value in values]
    return pa.array(texts, type=pa.string())


def _json_ready(table: "pa.Table") -> "pa.Table":
    """The table with what JSON cannot say in another form: no NaN, no half precision."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
        elif field.name == "fingerprint" and pa.types.is_fixed_size_list(field.type):
            column = column.cast(pa.list_(pa.float32(), field.type.list_size))
        elif pa.types.is_nested(field.type):
            column = pa.array([_finite(value) for value in column.to_pylist()], field.type)
        table = table.set_column(place, field.name, column)
    return table


def _finite(value: Any) -> Any:
    """The value with null for every number in it that JSON cannot say."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finite(entry) for entry in value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fits_json(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return all(_fits_json(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return _fits_json(kind.value_type)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_text = is_text or pa.types.is_string_view(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_text or is_number or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def _unknown(names: list[str]) -> tuple[list[str], list[str]]:
    """The names outside the format: those that are carried along, and those of a credit."""
    outside = [name for name in names if name not in KNOWN_COLUMNS]
    begin = tuple(f"{name}_" for name in CREDIT_COLUMNS)
    credit = [name for name in outside if name in CREDIT_COLUMNS or name.startswith(begin)]
    return [name for name in outside if name not in credit], credit


def _unknown_note(names: list[str]) -> tuple[Problem, ...]:
    strange = [name for name in names if name not in TRANSCRIPT_COLUMNS]
    if not strange:
        return ()
    detail = f"not part of the format: {', '.join(map(repr, strange))}"
    return (Problem(ProblemKind.UNKNOWN_COLUMN, detail, count=len(strange)),)


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
