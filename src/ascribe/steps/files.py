"""Step tables in Arrow, Parquet and JSON lines: the one reader and the one writer.

``docs/format.md`` describes the format. Every column, from whatever source, passes the checks of
``ascribe.steps.table.read_columns``. Parquet files carry checksums of their pages and a seal over
the whole file; both are verified, so that a damaged file is refused. pyarrow is imported inside the
functions, to keep ``import ascribe`` light.
"""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from io import BytesIO
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascribe.steps.arrays import Bools, Brief, Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.balance import Balance
from ascribe.steps.errors import InputError
from ascribe.steps.hints import option, unknown
from ascribe.steps.lines import LineError, expansion_limit, numbered_lines
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.strict_json import DuplicateKeyError, unique_keys, without_nan
from ascribe.steps.table import (
    INPUT_COLUMNS,
    KNOWN_COLUMNS,
    MISSING_STEP,
    REQUIRED_COLUMNS,
    TEXT_COLUMNS,
    Coded,
    Column,
    StepTable,
    column_error,
    encodable,
    read_column,
    read_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_KEY = "ascribe.step_table"
FORMAT_VERSION = "1"
"""In the metadata of Parquet files, and in the first row and the last line of JSON lines.

The last line also has the number of ``rows``, so that a file that was cut short is refused. JSON
lines of other tools have neither, and need neither.
"""

CREDIT_COLUMNS = ("advantage", "reason")
"""The columns that ``ascribe credit`` adds, with ``advantage_TERM`` and ``reason_TERM``.

The reader keeps them apart, because crediting a file again replaces them.
"""

TRANSCRIPT_COLUMNS = (
    *("observation", "prompt", "response", "prompt_ids", "response_ids", "logprobs"),
    *("finish", "problem", "won", "messages", "rewritten"),
)
"""The columns that ``ascribe rollout`` and ``ascribe import`` add. No recipe reads them."""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")

SYNONYMS = {
    "group": ("task", "task_id", "prompt_id", "question", "uid", "problem"),
    "trajectory": ("episode", "traj", "trajectory_id", "episode_id", "rollout", "rollout_id"),
    "step": ("turn", "t", "timestep", "step_id", "index"),
    "state": ("observation", "obs", "prompt", "context"),
    "action": ("response", "completion", "output", "act"),
    "reward": ("score", "reward", "return", "r"),
}
"""What files call the columns that every table must have."""

SMALL_ROWS, SMALL_BYTES = 1 << 21, 128 << 20
"""Largest row group that ``read_row_groups`` reads at once."""
WIDE_ROWS, WIDE_BYTES = 1 << 15, 16 << 20
"""What it reads at a time otherwise, as the file counts bytes."""
PART_BYTES = 32 << 20
"""Of text, that ``read_parts`` reads at a time."""

SEAL_MARK = b"ascribe sealed 1"
SEAL_SIZE = len(SEAL_MARK) + 16
"""The seal of a Parquet file: the mark, and a digest of all other bytes of the file.

Parquet has checksums for its pages, but not for the footer that says where they are and how many
rows they hold: one wrong bit there can lose rows silently. The seal is between the last page and
the footer, where readers do not look. A copy written by another tool has no seal, and needs none.
"""

TEXT = ("string", "large_string", "string_view")
BYTES = ("binary", "large_binary", "binary_view", *TEXT)
NUMBER = ("integer", "floating")
LIST = ("list", "large_list", "fixed_size_list")
"""Kinds of Arrow types, as ``pyarrow.types`` names them."""

Progress = Callable[[float], None]
"""Called from time to time with the share of the work that is done."""


@dataclass(frozen=True, eq=False, repr=False)
class Rollouts(Brief):
    """A table read from a file, with the other columns of the file.

    Example:
        >>> ascribe.write_table(table, "steps.parquet")
        >>> ascribe.read("steps.parquet").table
        StepTable(5 rows, 1 group, 3 trajectories, 3 states)
    """

    table: StepTable
    carried: "pa.Table"
    """Columns that are not part of the format, in the same row order."""
    credit: "pa.Table"
    """Columns of an earlier credit; none in a plain file of rollouts."""
    notes: tuple[Problem, ...] = ()
    """Problems that do not affect the table, such as unknown columns."""
    balance: Balance | None = None
    """What was seen, used and left out on the way in; None for a table of steps."""

    def to_arrow(self) -> "pa.Table":
        """The columns of the format, and those that were carried along."""
        table = table_to_arrow(self.table)
        for name in self.carried.column_names:
            table = table.append_column(name, self.carried.column(name))
        return table

    def flag(self, name: str) -> Bools | None:
        """A carried column of true and false, or 0 and 1, an empty cell being false; or None."""
        if name not in self.carried.column_names:
            return None
        column = self.carried.column(name)
        if str(column.type) not in ("bool", "int64"):
            return None
        flags: Bools = column.cast("bool").fill_null(False).to_numpy()
        return flags


def read_table(path: str | Path, columns: Mapping[str, str] | None = None) -> StepTable:
    """The step table of a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file.

    ``columns`` says what the file calls a column of the format: ``{"reward": "score"}``.

    Raises:
        TableError: if the file cannot be read as a step table, with every reason found.
        OSError: if the file cannot be opened.

    Example:
        >>> ascribe.write_table(table, "steps.parquet")
        >>> ascribe.read("steps.parquet").table
        StepTable(5 rows, 1 group, 3 trajectories, 3 states)
    """
    return read(path, wanted=KNOWN_COLUMNS.__contains__, columns=columns).table


def write_table(table: StepTable, path: str | Path) -> None:
    """Write a step table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.

    Example:
        >>> ascribe.write_table(table, "steps.jsonl")
        >>> ascribe.read("steps.jsonl").table.to_dicts() == table.to_dicts()
        True
    """
    write(table_to_arrow(table), path)


def read(
    path: str | Path,
    progress: Progress = lambda _: None,
    wanted: Callable[[str], bool] = lambda _: True,
    columns: Mapping[str, str] | None = None,
) -> Rollouts:
    """Read a ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.csv`` file of steps, or an archive.

    Args:
        path: the file, or a folder with parts in Parquet.
        progress: called with the share that has been read.
        wanted: whether to read the column of this name; all by default.
        columns: what the file calls a column of the format: ``{"reward": "score"}``.

    Raises:
        TableError: if the file cannot be read as a step table, with every reason found.
        OSError: if the file cannot be opened.
    """
    path, columns = Path(path), columns or {}
    if path.is_dir():
        return _read_folder(path, progress, wanted, columns)
    # A column that another one stands for gets a mark.
    rename = {name: f"{name} of the file" for name in columns}
    rename |= {own: name for name, own in columns.items()}
    if _is_jsonl(path):
        rows, names = _read_objects(path, progress)
        _check_renamed(columns, names)
        if columns:
            names = [rename.get(name, name) for name in names]
            rows = [{rename.get(name, name): value for name, value in row.items()} for row in rows]
        kept = list(filter(wanted, names))
        present = [name for name in kept if name in KNOWN_COLUMNS] if rows else REQUIRED_COLUMNS
        with _guessing(names):
            table = read_columns({name: [row.get(name) for row in rows] for name in present})
        others, credit = _other_columns(kept)
        return Rollouts(table, _carry(rows, others), _carry(rows, credit), unknown_note(names))
    if path.suffix == ".csv":
        arrow = _read_csv(path, columns)
        names = arrow.column_names
    else:
        arrow, names = _read_parquet(path, progress, lambda name: wanted(rename.get(name, name)))
    _check_renamed(columns, names)
    if columns:  # renaming drops the version of the format
        check_columns(arrow.schema)
        names = [rename.get(name, name) for name in names]
        arrow = arrow.rename_columns([rename.get(name, name) for name in arrow.column_names])
    arrow = arrow.select([name for name in arrow.column_names if wanted(name)])
    others, credit = _other_columns(arrow.column_names)
    with _guessing(names):
        table = table_from_arrow(arrow)
    return Rollouts(table, arrow.select(others), arrow.select(credit), unknown_note(names))


def _read_folder(
    folder: Path, progress: Progress, wanted: Callable[[str], bool], columns: Mapping[str, str]
) -> Rollouts:
    """The parts of an archive, by name, as one table."""
    import pyarrow as pa

    paths = sorted(folder.glob("*.parquet"))
    parts = []
    for number, path in enumerate(paths):
        parts.append(read(path, wanted=wanted, columns=columns))
        progress((number + 1) / len(paths))
    if not parts:
        raise _error(ProblemKind.EMPTY_TABLE, f"the folder {folder.name} holds no .parquet file")
    whole, carried, credit = (
        pa.concat_tables(tables, promote_options="default")
        for tables in (
            [table_to_arrow(part.table) for part in parts],
            [part.carried for part in parts],
            [part.credit for part in parts],
        )
    )
    return Rollouts(table_from_arrow(whole), carried, credit, parts[0].notes)


def read_rows(path: str | Path, columns: Collection[str], rows: Ints) -> "pa.Table":
    """Columns outside the format at these rows of a file, in the order of ``rows``.

    Of a Parquet file, one row group is in memory at a time.
    """
    import pyarrow as pa

    path, wanted = Path(path), frozenset(columns).__contains__
    if path.suffix == ".csv":
        arrow = _read_csv(path, {})
        return arrow.select(list(filter(wanted, arrow.column_names))).take(pa.array(rows))
    if not _is_jsonl(path):
        return _read_parquet(path, lambda _: None, wanted, rows)[0]
    objects, names = _read_objects(path, lambda _: None)
    return _carry(objects, list(filter(wanted, names))).take(pa.array(rows))


def read_parts(
    path: str | Path, progress: Progress = lambda _: None, part_bytes: int = PART_BYTES
) -> "Iterator[pa.Table]":
    """The rows of a ``.jsonl``, ``.jsonl.gz`` or ``.csv`` file of steps, a part at a time.

    Objects are JSON text, since their keys may differ from part to part.

    Args:
        path: the file.
        progress: called with the share that has been read.
        part_bytes: about how many bytes of the file to read at a time.

    Raises:
        TableError: if a part cannot be read as a step table; rows are those of the file.
        OSError: if the file cannot be opened.
    """
    path = Path(path)
    parts = _jsonl_parts if _is_jsonl(path) else _csv_parts
    for table, others in parts(path, progress, part_bytes):
        yield Rollouts(table, others, others.select([])).to_arrow()


def write(table: "pa.Table", path: str | Path) -> None:
    """Write an Arrow table as ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.

    Raises:
        TableError: if the format cannot hold a column; nothing is written then.
        OSError: if the file cannot be written.

    Example:
        >>> from ascribe.steps.files import write
        >>> write(credit.to_table(table), "credited.parquet")
        >>> ascribe.read("credited.parquet").credit.column_names[:3]
        ['advantage', 'reason', 'advantage_episode']
    """
    path = Path(path)
    if _is_jsonl(path):
        _write_jsonl(table, path)
        return
    write_parquet(buffer := BytesIO(), [table])
    with replacing(path) as file:
        file.write(buffer.getbuffer())


def table_from_arrow(table: "pa.Table") -> StepTable:
    """A step table from the known columns of an Arrow table.

    Raises:
        TableError: with every problem of every column.

    Example:
        >>> ascribe.table_from_arrow(ascribe.table_to_arrow(table))
        StepTable(5 rows, 1 group, 3 trajectories, 3 states)
    """
    check_columns(table.schema)
    return read_columns(dict(zip(table.column_names, table.columns, strict=True)), _from_arrow)


def table_to_arrow(table: StepTable) -> "pa.Table":
    """An Arrow table in the documented schema; text columns are dictionary-coded.

    Example:
        >>> ascribe.table_to_arrow(table).column("action").to_pylist()[:2]
        ['go to kitchen', 'take apple']
    """
    import pyarrow as pa

    columns = {name: _to_arrow(name, column) for name, column in table.columns().items()}
    return pa.table(columns, metadata={FORMAT_KEY: FORMAT_VERSION})


def _to_arrow(name: str, column: Any) -> "pa.Array":
    import pyarrow as pa

    if isinstance(column, Coded):
        used = column.used()
        codes = pa.array(used.codes, type=pa.int32(), mask=used.codes < 0)
        values = pa.array(used.values, type=pa.string())
        return pa.DictionaryArray.from_arrays(codes, values)
    if name in ("step", "parent"):
        return pa.array(column, mask=column == MISSING_STEP)
    if name == "without" or name in INPUT_COLUMNS:
        return pa.array(column, mask=np.isnan(column))
    if name == "fingerprint":
        flat = pa.array(np.ascontiguousarray(column).ravel())
        return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
    return pa.array(column)


def check_columns(schema: "pa.Schema") -> None:
    """Raise ``TableError`` for another version of the format, or a column that appears twice."""
    _refuse_repeated(schema.names)
    version = (schema.metadata or {}).get(FORMAT_KEY.encode(), FORMAT_VERSION.encode())
    _check_version(version.decode("latin-1"))


def _check_version(version: object) -> None:
    if version != FORMAT_VERSION:
        detail = f"the file has format {version!r}; this ascribe reads {FORMAT_VERSION!r}"
        raise _error(ProblemKind.UNKNOWN_FORMAT, detail)


# Arrow columns.


def _from_arrow(name: str, column: "pa.ChunkedArray") -> Column:
    """An Arrow column as coded text, numpy or Python values."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if _is(kind, TEXT) and name != "fingerprint":
        return _text_from_arrow(name, column)
    _refuse_damage(name, column)
    if name == "fingerprint":
        fits = _is(kind, ["null"]) or (_is(kind, LIST) and _is(kind.value_type, NUMBER))
    else:
        fits = _is(kind, (*NUMBER, "boolean", "null"))
    if not fits:
        detail = f"column {name} has the type {kind}, which the format does not list for it"
        raise column_error(ProblemKind.WRONG_TYPE, detail, np.arange(len(column)))
    if _is(kind, LIST):
        return _vectors_from_arrow(column)
    column = column.cast(kind)  # of a dictionary, its values
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64()).fill_null(float("nan"))
    values: Column = column.to_pylist() if column.null_count else column.to_numpy()
    return values


def coded(column: "pa.ChunkedArray") -> Coded:
    """A column of any type as text, without a copy of a text for each row."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if _is(kind, TEXT):
        return _text_from_arrow("", column)
    return Coded.encode([value and str(value) for value in column.to_pylist()])


def _text_from_arrow(name: str, column: "pa.ChunkedArray") -> Coded:
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    try:
        _refuse_damage(name, array)
        values = array.dictionary.cast(pa.large_string()).to_numpy(zero_copy_only=False)
    except TableError:
        # Bytes that are not UTF-8 become half surrogates, which the checks of text refuse.
        raw = array.dictionary.cast(pa.large_binary()).to_pylist()
        texts = [None if one is None else one.decode(errors="surrogateescape") for one in raw]
        if all(encodable(text or "") for text in texts):
            raise
        values = np.array([*texts, None], dtype=object)[:-1]
    names = array.dictionary
    merged = len(names) > max((len(each.dictionary) for each in column.chunks), default=0)
    if names.null_count or (not merged and len(names.unique()) < len(names)):
        # A dictionary that is not merged of others may hold a text twice; any, a null.
        recoded = Coded.encode(list(values))
        codes, values = np.append(recoded.codes, -1)[codes], recoded.values
    return Coded(codes, values.astype(object)).used()


def without_unused(table: "pa.Table") -> "pa.Table":
    """Part of a table, without the values of dictionaries that are in the other parts alone."""
    import pyarrow as pa

    def compact(array: pa.DictionaryArray) -> pa.DictionaryArray:
        if len(array) >= len(array.dictionary):  # which may all be used
            present = np.zeros(len(array.dictionary), dtype=np.bool_)
            present[array.indices.drop_null().to_numpy()] = True
            if present.all():
                return array
        used = array.indices.dictionary_encode()  # in the order in which they appear
        values = array.dictionary.take(used.dictionary)
        return pa.DictionaryArray.from_arrays(used.indices, values)

    columns = [
        pa.chunked_array(map(compact, column.chunks), column.type)
        if pa.types.is_dictionary(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, table.column_names)


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


def _refuse_damage(name: str, column: Any) -> None:
    """Raise ``TableError`` for text that is not UTF-8, or offsets or codes out of range."""
    try:
        column.validate(full=True)
    except ValueError as error:
        detail = f"column {name} is damaged: {_first_line(error)}"
        raise _error(ProblemKind.UNREADABLE_FILE, detail) from error


def _refuse_repeated(names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        detail = f"column {', '.join(map(repr, repeated))} appears twice"
        raise _error(ProblemKind.DUPLICATE_KEY, detail, count=len(repeated))


def _is(kind: "pa.DataType", names: Iterable[str]) -> bool:
    """Whether an Arrow type is of one of these kinds, by the names of ``pyarrow.types``."""
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(kind) for name in names)


# Parquet.


def _read_parquet(
    path: Path, progress: Progress, wanted: Callable[[str], bool], rows: Ints | None = None
) -> "tuple[pa.Table, list[str]]":
    """Columns of a Parquet file, and the names of all its columns.

    With ``rows``, these rows alone, in their order.
    """
    import pyarrow as pa

    with path.open("rb") as opened, readable(path.name):
        check_seal(opened, path.name)
        file, schema, room = _open_parquet(opened)
        _refuse_repeated(schema.names)
        names = list(filter(wanted, schema.names))
        others = [name for name in names if name not in KNOWN_COLUMNS]
        tables, start = [], 0
        for index in range(file.num_row_groups):
            row_group = file.metadata.row_group(index)
            stop = start + row_group.num_rows
            inside = None if rows is None else np.sort(rows[(rows >= start) & (rows < stop)])
            if inside is None or inside.size:
                cells = sum(chunk.num_values for chunk in _chunks(file, index, schema.names))
                room = _take_room(room, row_group.total_byte_size + 8 * cells)
                table = file.read_row_group(index, columns=names)
                for name in others:
                    _refuse_damage(repr(name), table.column(name))
                    room = _take_room(room, _text_size(table.column(name)))
                table = _decoded(table, schema, others)
                tables.append(table if inside is None else table.take(pa.array(inside - start)))
            start = stop
            progress((index + 1) / file.num_row_groups)
        tables = tables or [schema.empty_table().select(names)]
        arrow = pa.concat_tables(tables, promote_options="permissive")
        if rows is not None:
            order = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
            arrow = arrow.take(pa.array(order))
        elif arrow.num_rows != file.metadata.num_rows:
            raise InputError(f"{arrow.num_rows:,} rows found, {file.metadata.num_rows:,} announced")
        return arrow, schema.names


def _open_parquet(opened: Any) -> "tuple[Any, pa.Schema, int]":
    """A Parquet file, its schema, and how many bytes of memory its contents may take.

    Text is read as a dictionary: one that repeats a million times is in memory once.
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(opened)
    leaves = map(file.schema.column, range(len(file.schema)))
    text = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    schema, room = file.schema_arrow, expansion_limit(opened.seek(0, 2), 100)
    options = {"page_checksum_verification": True, "read_dictionary": text}
    return pq.ParquetFile(opened, **options), schema, room


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Report damage of the Parquet file of this name as a ``TableError``."""
    try:
        yield
    except TableError:
        raise
    # pyarrow reports damage by many exception types, some of them plain ones.
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        detail = f"{name} cannot be read as Parquet: {_first_line(error)}"
        hint = "" if name.endswith(".parquet") else "if it holds JSON lines, name it NAME.jsonl"
        raise _error(ProblemKind.UNREADABLE_FILE, detail, hint=hint) from error


def read_row_groups(
    opened: Any, columns: Collection[str], groups: Iterable[int], *, decode: bool
) -> "Iterator[pa.Table]":
    """Columns of row groups of a Parquet file, a limited number of rows at a time.

    Columns of the format that hold text are dictionary-coded. A row group is read at once if it
    is small, but for fingerprints, which take many times as much while they are read, and columns
    that are not the format's. Of these the text is dictionary-coded, too, unless they are to be
    decoded: then there are fewer rows at a time where it expands.
    """
    import pyarrow as pa

    file, schema, room = _open_parquet(opened)
    names = [name for name in schema.names if name in columns]
    flat = [name for name in names if name in KNOWN_COLUMNS and name != "fingerprint"]
    wide = [name for name in names if name not in flat]
    for index in groups:
        group = file.metadata.row_group(index)
        size, wide_size = group.total_byte_size, 1
        if size > SMALL_BYTES:
            size = sum(chunk.total_uncompressed_size for chunk in _chunks(file, index, flat))
        for chunk in _chunks(file, index, wide) if wide else ():
            wide_size += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
        small = size <= SMALL_BYTES and group.num_rows <= SMALL_ROWS
        fit = group.num_rows * WIDE_BYTES // wide_size
        step = SMALL_ROWS if small and not wide else min(fit + 1, WIDE_ROWS)
        if small:
            whole = file.read_row_group(index, flat, use_threads=False)
            rows = group.num_rows  # without a column, a slice has as many rows as one asks for
            starts = range(0, rows, step)
            parts = (whole.slice(start, min(step, rows - start)) for start in starts)
        else:
            batches = file.iter_batches(step, [index], flat, use_threads=False)
            parts = (pa.Table.from_batches([batch]) for batch in batches)
        if not wide:
            yield from parts
            continue
        batches = file.iter_batches(step, [index], wide, use_threads=False)
        for part, batch in zip(parts, batches, strict=True):
            table = part
            for name in wide:
                column = pa.chunked_array([batch.column(name)])
                _refuse_damage(repr(name), column)
                table = table.append_column(name, column)
            yield from _decoded_pieces(table, schema, wide, room) if decode else [table]


def _chunks(file: Any, index: int, names: Collection[str]) -> list[Any]:
    """What a Parquet file says of each chunk of these columns in a row group.

    A chunk whose statistics are damaged ends the process if pyarrow is asked for it, but raises if
    rows are read. So the first row is read before.
    """
    next(file.iter_batches(1, [index], names, use_threads=False), None)
    group, inside = file.metadata.row_group(index), tuple(f"{name}." for name in names)
    paths = [f"{file.schema.column(number).path}." for number in range(group.num_columns)]
    return [group.column(n) for n, path in enumerate(paths) if path.startswith(inside)]


def _decoded_pieces(
    table: "pa.Table", schema: "pa.Schema", names: list[str], room: int
) -> "Iterator[pa.Table]":
    """The rows with these columns decoded, so many at a time that they are of limited size."""
    import pyarrow as pa

    size = sum(map(_text_size, table.select(names).columns))
    if size > PART_BYTES and table.num_rows > 1:
        for rows in np.array_split(np.arange(table.num_rows), 2):
            # Not a slice: what its lists hold would be decoded as a whole.
            yield from _decoded_pieces(table.take(pa.array(rows)), schema, names, room)
        return
    _take_room(room, size)
    yield _decoded(table, schema, names)


def as_written(table: "pa.Table", absent: Collection[str], width: int) -> "pa.Table":
    """Rows of a file in the types in which a step table is written, with the file's other columns.

    Args:
        table: the rows; columns of an earlier credit are left out.
        absent: columns of the format that are empty in every row of the file.
        width: numbers of a fingerprint; rows without one have zeros.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in KNOWN_COLUMNS:
        if name not in table.column_names or name in absent:
            continue
        column, kind = table.column(name), pa.dictionary(pa.int32(), pa.string())
        if name in TEXT_COLUMNS:
            if not pa.types.is_dictionary(column.type):
                column = column.cast(pa.string()).dictionary_encode()
            columns[name] = column.cast(kind)
        else:
            values = read_column(name, _from_arrow(name, column))
            if values is None and name == "parent":  # no row of this part has one
                values = np.full(len(column), MISSING_STEP)
            elif values is None:
                values = np.zeros((len(column), width), dtype=np.float32)
            columns[name] = _to_arrow(name, values)
    others, _ = _other_columns(table.column_names)
    columns |= {name: table.column(name) for name in others}
    return pa.table(columns, metadata={FORMAT_KEY: FORMAT_VERSION})


def _take_room(room: int, size: int) -> int:
    """The bytes that are left of ``room``; ``ValueError`` if there are too few."""
    if size > room:
        raise InputError("it is small and would fill the memory", hint="if you trust it, split it")
    return room - size


def _text_size(column: Any) -> int:
    """Bytes of dictionary-coded text in a column, or inside it, once it is decoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, parts = column.type, []
    if isinstance(column, pa.ChunkedArray):
        parts = column.chunks
    elif pa.types.is_dictionary(kind) and _is(kind.value_type, BYTES):
        return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    elif pa.types.is_map(kind):
        start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        parts = [each.slice(start, stop - start) for each in (column.keys, column.items)]
    elif pa.types.is_struct(kind) or _is(kind, LIST):
        parts = column.flatten() if pa.types.is_struct(kind) else [column.flatten()]
    return sum(map(_text_size, parts))


def _decoded(table: "pa.Table", schema: "pa.Schema", names: Iterable[str]) -> "pa.Table":
    """Columns as their file has them, not as dictionaries; long texts with 64-bit offsets."""
    import pyarrow as pa

    for name in names:
        column, kind = table.column(name), schema.field(name).type
        is_short = _is(kind, ("string", "binary")) and _text_size(column) < 2**31
        if column.type != kind and _is(kind, BYTES) and not is_short:
            kind = pa.large_string() if _is(kind, TEXT) else pa.large_binary()
        table = table.set_column(table.column_names.index(name), name, column.cast(kind))
    return table


def write_parquet(file: Any, tables: "Iterable[pa.Table]") -> None:
    """Write tables, one after another, as one sealed Parquet file.

    Args:
        file: empty, and opened for reading and writing.
        tables: at least one, all of the same types; each is a row group, or several.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    try:
        for table in tables:
            if writer is None:
                options = {"compression": "zstd", "write_page_checksum": True}
                writer = pq.ParquetWriter(file, table.schema, **options, **_encodings(table))
            writer.write_table(table)
        writer.close()
    except pa.ArrowException as error:
        if isinstance(error, OSError):
            raise
        detail = f"Parquet cannot hold these columns: {_first_line(error)}"
        raise _error(ProblemKind.WRONG_TYPE, detail) from error
    size = file.seek(0, 2)
    file.seek(size - 8)
    footer = size - 8 - int.from_bytes(file.read(4), "little")
    file.seek(footer)
    tail = file.read()
    digest = _digest(tail, file, footer)
    file.seek(footer)
    file.write(SEAL_MARK + digest + tail)


def _encodings(table: "pa.Table") -> dict[str, list[str]]:
    """Columns of a Parquet file that get statistics, and those that get a dictionary.

    Texts and lists get no statistics, nor fingerprints a dictionary: both take longer to write than
    the values, and make nothing smaller.
    """
    import pyarrow.parquet as pq

    pq.write_table(table.schema.empty_table(), buffer := BytesIO())
    schema = pq.ParquetFile(buffer).schema
    leaves = [schema.column(number) for number in range(len(schema))]
    flat = [leaf for leaf in leaves if "." not in leaf.path and leaf.physical_type != "BYTE_ARRAY"]
    return {
        "write_statistics": [leaf.path for leaf in flat],
        "use_dictionary": [e.path for e in leaves if not e.path.startswith("fingerprint.")],
    }


def check_seal(file: Any, name: str) -> None:
    """Raise ``TableError`` if a Parquet file has a seal that does not fit its other bytes."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    footer = size - 8 - int.from_bytes(file.read(4), "little")
    start = footer - SEAL_SIZE
    if start < 0:
        return
    file.seek(start)
    mark, digest = file.read(len(SEAL_MARK)), file.read(SEAL_SIZE - len(SEAL_MARK))
    # The mark may be damaged too: six of its bytes in their places show that it was there.
    if sum(map(eq, mark, SEAL_MARK)) >= 6 and digest != _digest(file.read(), file, start):
        detail = f"{name} is not as it was written: its seal is broken"
        raise _error(ProblemKind.UNREADABLE_FILE, detail)


def _digest(tail: bytes, file: Any, end: int) -> bytes:
    """The digest of the end of a file, and of what comes before it."""
    digest = blake2b(tail, digest_size=SEAL_SIZE - len(SEAL_MARK))
    file.seek(0)
    while block := file.read(min(2**20, end - file.tell())):
        digest.update(block)
    return digest.digest()


# CSV and JSON lines.


def _read_csv(path: Path, columns: Mapping[str, str]) -> "pa.Table":
    """The columns of a CSV file with a head; columns that hold text in the format are text here."""
    import pyarrow as pa

    types = {columns.get(name, name): pa.string() for name in TEXT_COLUMNS}
    return pa.concat_tables(_csv_tables(path, types, 1 << 30, lambda _: None))


def _csv_parts(
    path: Path, progress: Progress, part_bytes: int
) -> "Iterator[tuple[StepTable, pa.Table]]":
    """Parts of a CSV file; the types of other columns are those of the first part."""
    import pyarrow as pa

    types = dict.fromkeys(TEXT_COLUMNS, pa.string())
    types |= {"reward": pa.float64(), "without": pa.float64()}
    start = 0
    for arrow in _csv_tables(path, types, part_bytes, progress):
        if not arrow.num_rows:
            continue
        with _guessing(arrow.column_names, start):
            table = table_from_arrow(arrow)
        yield table, arrow.select([n for n in arrow.column_names if n not in KNOWN_COLUMNS])
        start += len(table)


def _csv_tables(
    path: Path, types: "dict[str, pa.DataType]", part_bytes: int, progress: Progress
) -> "Iterator[pa.Table]":
    """Parts of a CSV file, at first one without rows."""
    import pyarrow as pa
    from pyarrow import csv

    options = {
        "read_options": csv.ReadOptions(block_size=part_bytes),
        "parse_options": csv.ParseOptions(newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    }
    try:
        with path.open("rb") as opened, csv.open_csv(opened, **options) as file:
            yield file.schema.empty_table().select(file.schema.names)  # which must be UTF-8
            for batch in file:
                yield pa.Table.from_batches([batch])
                progress(opened.tell() / path.stat().st_size)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        detail = f"{path.name} cannot be read as CSV: {_first_line(error)}"
        raise _error(ProblemKind.UNREADABLE_FILE, detail) from error


def _check_renamed(columns: Mapping[str, str], names: Collection[str]) -> None:
    """Raise ``TableError`` if a column that is to be renamed is not there."""
    for name, own in columns.items():
        if own not in names:
            problem = unknown("column", own, names)
            raise _error(ProblemKind.MISSING_COLUMN, f"{problem.what} (for {name}): {problem.hint}")


def columns_meant(names: Collection[str]) -> dict[str, str]:
    """The columns of a file that may be meant where one of the format is missing."""
    others = [name for name in names if name not in KNOWN_COLUMNS]
    own = [name for name in names if name not in REQUIRED_COLUMNS]
    guesses = {}
    for name in REQUIRED_COLUMNS:
        known = [other for other in own if other.lower().removesuffix("s") in SYNONYMS[name]]
        if name not in names and (known or (known := get_close_matches(name, others, 1))):
            guesses[name] = known[0]
    return guesses


@contextmanager
def _guessing(names: Collection[str], start: int = 0) -> Iterator[None]:
    """Name the columns of a file that may be meant where one of the format is missing.

    Rows are those of the file, of which a part begins at row ``start``.
    """
    try:
        yield
    except TableError as error:
        missing = [name for name in REQUIRED_COLUMNS if name not in names]
        guesses = columns_meant(names)
        meant = ", ".join(f"{own} for {name}" for name, own in guesses.items())
        plain = {name: own for name, own in guesses.items() if own.isidentifier()}
        named = "".join(" " + option("columns", {name: own}) for name, own in plain.items())
        hint = f"; did you mean {meant}?" if guesses else ""
        if {"messages", "conversations"} & set(names) and "step" in missing:
            hint = "; conversations are read from JSON lines: write one on a line, then import them"
        to_add = [name for name in missing if name not in guesses]
        todo = [f"add {' and '.join(to_add)}"] if to_add else []
        todo += [f"name yours with{named}"] if named else []
        if to_add == ["group"]:
            todo += [f"or take what a session begins with for its task: {option('form', 'rows')}"]
        raise TableError(
            replace(problem, detail=f"{problem.detail}{hint}", hint=", ".join(todo))
            if problem.kind is ProblemKind.MISSING_COLUMN
            else replace(problem, rows=problem.rows + start)
            for problem in error.problems
        ) from None


def _jsonl_parts(
    path: Path, progress: Progress, part_bytes: int
) -> "Iterator[tuple[StepTable, pa.Table]]":
    """Parts of a file of JSON lines, each with the columns of earlier ones."""
    rows, names = list[dict[str, Any]](), dict[str, None]()
    size = start = 0
    for row, length in itertools.chain(_objects(path, progress), [(None, part_bytes)]):
        if row is not None:
            rows.append(row)
        size += length
        if size >= part_bytes and rows:
            names |= dict.fromkeys(_names(rows))
            known = {n: [row.get(n) for row in rows] for n in names if n in KNOWN_COLUMNS}
            others = [name for name in names if name not in KNOWN_COLUMNS]
            with _guessing(names, start):
                table = read_columns(known)
            yield table, _carry(rows, others, objects=False)
            rows, size, start = [], 0, start + len(rows)


def _read_objects(path: Path, progress: Progress) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a file of JSON lines, and the names of its columns."""
    rows = [row for row, _ in _objects(path, progress)]
    return rows, _names(rows)


def _names(rows: list[dict[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if broken := [name for name in names if not encodable(name)]:
        detail = f"not valid Unicode: the name of column {', '.join(map(repr, broken))}"
        raise _error(ProblemKind.MALFORMED_TEXT, detail, count=len(broken))
    return names


def _objects(path: Path, progress: Progress) -> Iterator[tuple[dict[str, Any], int]]:
    """The rows of a file of JSON lines, without the marks of ``_write_jsonl``, and their bytes.

    The rows are counted. Several such files in one, end to end, are counted one by one.
    """
    kept = counted = 0
    marked, wrong = False, ""
    try:
        for row, size in _parse_lines(numbered_lines(path, progress)):
            if FORMAT_KEY in row:
                marked = True
                _check_version(row.pop(FORMAT_KEY))
                if row.keys() == {"rows"}:
                    if row["rows"] != kept - counted:
                        found = f"{kept - counted:,} rows, and its end mark says {row['rows']!r}"
                        wrong = wrong or f"{path.name} has {found}"
                    counted = kept
                    continue
            kept += 1
            yield row, size
    except LineError as error:
        detail = f"{path.name} cannot be read: {_first_line(error)}"
        raise _error(ProblemKind.UNREADABLE_FILE, detail) from error
    if marked and counted < kept:
        wrong = wrong or f"{path.name} ends without its end mark, after {kept - counted:,} rows"
    if wrong:
        raise _error(ProblemKind.UNREADABLE_FILE, wrong)


def _parse_lines(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects of lines, and their bytes; in the end, ``TableError`` for all broken lines."""
    broken = dict[ProblemKind, tuple[str, list[int]]]()
    for number, line in lines:
        try:
            row = json.loads(line.decode(), object_pairs_hook=unique_keys)
            if isinstance(row, dict):
                yield row, len(line)
                continue
            kind, detail = ProblemKind.BAD_LINE, f"is a JSON {type(row).__name__}, not an object"
        except DuplicateKeyError as error:
            kind, detail = ProblemKind.DUPLICATE_KEY, f"is ambiguous: {error}"
        except (ValueError, RecursionError) as error:
            kind, detail = ProblemKind.BAD_LINE, f"is not JSON: {_first_line(error)}"
        broken.setdefault(kind, (f"line {number} {detail}", []))[1].append(number - 1)
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


def _carry(rows: list[dict[str, Any]], names: list[str], *, objects: bool = True) -> "pa.Table":
    """The unknown keys of JSON rows as Arrow columns; objects as such, or as long JSON text.

    What Arrow or Parquet cannot hold as it is becomes JSON text, too. Arrow has one type for a
    column: objects gain the keys of other rows, and mixed types have none. Parquet cannot hold an
    object without keys.
    """
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            try:
                array = pa.array(values)
                altered = pa.types.is_nested(array.type) and array.to_pylist() != values
                keep = not altered and ("struct<>" if objects else "struct") not in str(array.type)
            except (pa.ArrowException, ValueError, OverflowError):
                keep = False
            if not keep:
                texts = [None if value is None else json.dumps(value) for value in values]
                array = pa.array(texts, type=pa.string() if objects else pa.large_string())
        except RecursionError as error:
            detail = f"column {name!r} is nested too deeply"
            raise _error(ProblemKind.BAD_LINE, detail) from error
        columns[name] = array
    return pa.table(columns)


def _write_jsonl(table: "pa.Table", path: Path) -> None:
    if unsupported := [field for field in table.schema if not _fits_json(field.type)]:
        names = ", ".join(f"{field.name!r} is {field.type}" for field in unsupported)
        detail = f"JSON has no such type ({names}); write .parquet instead"
        raise _error(ProblemKind.WRONG_TYPE, detail, count=len(unsupported))
    if FORMAT_KEY in table.column_names:
        detail = f"JSON lines cannot hold a column {FORMAT_KEY!r}; write .parquet, or rename it"
        raise _error(ProblemKind.DUPLICATE_KEY, detail)
    rows = (row for b in table.to_batches(max_chunksize=10_000) for row in b.to_pylist())
    with replacing(path) as file:
        mark = {FORMAT_KEY: FORMAT_VERSION}
        for index, row in enumerate(rows):
            line = row if index else mark | row
            file.write(json.dumps(without_nan(line), ensure_ascii=False).encode() + b"\n")
        file.write(json.dumps(mark | {"rows": table.num_rows}).encode() + b"\n")


def _fits_json(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return all(_fits_json(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return _fits_json(kind.value_type)
    return _is(kind, (*TEXT, *NUMBER, "boolean", "null"))


def is_credit_column(name: str) -> bool:
    """Whether ``ascribe credit`` writes columns of this name."""
    return name in CREDIT_COLUMNS or name.startswith(tuple(f"{c}_" for c in CREDIT_COLUMNS))


def _other_columns(names: list[str]) -> tuple[list[str], list[str]]:
    """The names outside the format: those that are carried along, and those of a credit."""
    others = [name for name in names if name not in KNOWN_COLUMNS]
    credit = [name for name in others if is_credit_column(name)]
    return [name for name in others if not is_credit_column(name)], credit


def unknown_note(names: list[str]) -> tuple[Problem, ...]:
    """The note about columns of these names that are not part of the format."""
    unknown = [name for name in _other_columns(names)[0] if name not in TRANSCRIPT_COLUMNS]
    if not unknown:
        return ()
    detail = f"not part of the format: {', '.join(map(repr, unknown))}"
    return (Problem(ProblemKind.UNKNOWN_COLUMN, detail, count=len(unknown)),)


def _is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def _error(kind: ProblemKind, detail: str, count: int = 1, hint: str = "") -> TableError:
    return TableError([Problem(kind, detail, count=count, hint=hint)])


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
