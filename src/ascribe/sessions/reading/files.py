"""The JSON records in files of others: lines, documents, tables, and archives of these.

Files are untrusted. Archives are read as streams, and the names in them are never paths.
"""

import ast
import csv
import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, TypeAlias, cast

from ascribe.sessions.reading.format import format_of
from ascribe.sessions.reading.names import GROUPS, MODELS, SESSIONS, TRAJECTORIES, VERSIONS
from ascribe.sessions.reading.nested import RUNS, by_task
from ascribe.sessions.reading.records import STEPS, Record, about_session, parse_json
from ascribe.sessions.reading.shapes import table
from ascribe.steps.files import read_row_groups, readable
from ascribe.steps.lines import (
    LONGEST_LINE,
    LineError,
    expansion_limit,
    json_memory,
    numbered_lines,
)
from ascribe.steps.problems import ProblemKind, TableError, one_line
from ascribe.steps.strict_json import loads

MAX_RECORD = 2**28
"""Bytes of one JSON file or member of an archive."""
MAX_MEMBERS = 100_000
HEADER = "header.json"
"""The member of an archive of Inspect that says what was evaluated."""
ZSTANDARD = 93
"""The number of a compression that ``zipfile`` learned in Python 3.14."""
LINES = (".jsonl", ".ndjson")
DOCUMENTS = (".json", ".traj")
"""Suffixes of files that are parsed as a whole."""
TEXTS = (*LINES, *DOCUMENTS, ".csv", ".tsv")
PACKED = ("", ".gz", ".zst")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")
SUFFIXES = (*(text + packed for text in TEXTS for packed in PACKED), *ARCHIVES, ".eval", ".parquet")
"""Of the files in a folder that are opened."""
DAMAGES = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError),
    *(UnicodeDecodeError, gzip.BadGzipFile),
)
FEW = 3
"""Entries of a list that are looked at to see what it holds."""
FEW_FIELDS = 32
"""Fields of a document that may each hold its tasks."""

OnBad: TypeAlias = Callable[[TableError], None]
"""Called for a record that cannot be read; the next one is read if it returns."""


def _refuse(problem: TableError) -> None:
    raise problem


def read_records(path: Path, bad: OnBad = _refuse) -> Iterator[Record]:
    """The records of a file with one of ``SUFFIXES``.

    Args:
        path: the file.
        bad: called for a line, or a member of an archive, that cannot be read.

    Raises:
        TableError: if the file is damaged, too large or not JSON.
        OSError: if it cannot be opened.
    """
    kind = kind_of(path.name)
    if path.suffix == ".eval":
        yield from _samples(path, bad)
    elif path.suffix == ".parquet":
        yield from _rows(path)
    elif path.name.endswith(ARCHIVES):
        yield from _members(path, bad)
    elif kind in LINES:
        yield from _lines(path, bad)
    else:
        with path.open("rb") as file, unpacked(file, path) as plain:
            try:
                content = _limited(plain, path)
            except (*DAMAGES, OSError) as error:
                detail = f"it cannot be unpacked: {one_line(error)}"
                is_cut = isinstance(error, EOFError)
                problem = ProblemKind.CUT_OFF if is_cut else ProblemKind.BAD_RECORD
                raise Record(None, path).error(detail, problem) from error
        yield from _texts(content, kind, path, bad)


def kind_of(name: str) -> str:
    """The suffix of a name without that of its compression."""
    for packed in PACKED[1:]:
        name = name.removesuffix(packed)
    return PurePosixPath(name).suffix.lower()


def unpacked(file: IO[bytes], path: PurePath) -> IO[bytes]:
    """A file without its compression."""
    if path.suffix in (".gz", ".tgz"):
        return cast("IO[bytes]", gzip.open(file))
    if path.suffix != ".zst":
        return file
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "rb"), "zstd"))


def _limited(file: IO[bytes], path: Path, field: str = "") -> bytes:
    content = file.read(MAX_RECORD + 1)
    if len(content) > MAX_RECORD:
        raise Record(None, path, 0, field).error(f"more than {MAX_RECORD:,} bytes")
    if path.suffix in (".gz", ".zst") and json_memory(content) > expansion_limit(
        path.stat().st_size
    ):
        raise Record(None, path, 0, field).error("it expands too much", hint="decompress it first")
    return content


# Texts.

VALUES = re.compile(rb"}[ \t\r]*\n\s*{")
"""Between two objects, a line break and no comma: text has no line breaks, so one after another."""


def _texts(content: bytes, kind: str, path: Path, bad: OnBad) -> Iterator[Record]:
    """The records of a text of this kind."""
    if kind in (".csv", ".tsv"):
        yield from _cells(content, "\t" if kind == ".tsv" else ",", path)
    elif kind in LINES:
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield from _parsed(line, path, number, bad)
    elif VALUES.search(content):
        yield from _concatenated(content, path)
    else:
        found = list(entries(parse_json(content, path)))
        if len(found) == 1 and kind_of(path.name) == kind and (about := about_session(found[0])):
            found = [found[0].of({"metadata": about, **found[0].mapping()})]
        yield from found


def _parsed(content: bytes, path: Path, line: int, bad: OnBad) -> Iterator[Record]:
    try:
        record = parse_json(content, path, line)
    except TableError as problem:
        bad(problem)
    else:
        yield record


def _concatenated(content: bytes, path: Path) -> Iterator[Record]:
    """Objects one after another, as OpenTelemetry writes them to the console."""
    start, line = 0, 1
    for end in (*(match.start() + 1 for match in VALUES.finditer(content)), len(content)):
        part = content[start:end]
        yield parse_json(part, path, line + part[: len(part) - len(part.lstrip())].count(b"\n"))
        start, line = end, line + part.count(b"\n")


def is_document(path: Path) -> bool:
    """Whether a file of an unknown kind is one JSON document, not lines of JSON objects."""
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(LONGEST_LINE), b"")
        first = next(filter(bytes.strip, lines), b"").strip()
    try:
        value = loads(first)
    except ValueError:  # it goes on in the next line, or the reader says what is wrong
        return first[:1] in (b"[", b"{")
    return isinstance(value, list) or next(entries(Record(value, path))).value is not value


def _lines(path: Path, bad: OnBad) -> Iterator[Record]:
    try:
        for line, content in numbered_lines(path, unpacked=lambda file: unpacked(file, path)):
            yield from _parsed(content, path, line, bad)
    except LineError as error:
        kind = ProblemKind.CUT_OFF if error.cut else ProblemKind.BAD_RECORD
        bad(Record(None, path).error(error.what, kind, error.hint))
    except OSError as error:
        if error.errno is not None:  # it cannot be opened
            raise
        bad(Record(None, path).error(str(error)))


def _cells(content: bytes, delimiter: str, path: Path) -> Iterator[Record]:
    """The rows of a table in text; none of a table of steps."""
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter)
        csv.field_size_limit(MAX_RECORD)
        names = [name.strip() for name in next(rows, [])]
        if set(names) >= STEPS or len(set(names)) < len(names):
            return
        for cells in filter(None, rows):
            if len(cells) != len(names):
                detail = f"it has {len(cells)} values for {len(names)} columns"
                raise Record(None, path, rows.line_num).error(detail)
            record = Record(dict(zip(names, cells, strict=True)), path, rows.line_num)
            yield record.of(with_json(record, numbers=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise Record(None, path).error(f"it is no table: {one_line(error)}") from error


NAMES = {*GROUPS, *TRAJECTORIES, *SESSIONS, *VERSIONS, *MODELS}
"""Columns of names, of which 1.10 is one."""


QUOTED = re.compile(r"[\[{]\s*[\[{]?\s*['\"]")
"""How a list or an object begins that Python wrote."""
LONGEST_LITERAL = 2**20


def with_json(record: Record, *, numbers: bool = False) -> dict[str, Any]:
    """The fields of a record, with lists and objects for those that are JSON texts of such."""
    return {
        key: (_value(value, numbers and key not in NAMES) if isinstance(value, str) else value)
        for key, value in record.mapping().items()
    }


def _value(text: str, numbers: bool) -> Any:
    stripped = text.strip()
    if not stripped:
        return None if numbers else text
    if stripped[0] in "[{" or (numbers and stripped[0] in "-0123456789tfn"):
        try:
            return loads(stripped)
        except ValueError:
            if numbers and QUOTED.match(stripped) and len(stripped) < LONGEST_LITERAL:
                return _literal(stripped)
    return text


def _literal(text: str) -> Any:
    """Lists and objects as Python writes them, such as pandas does in CSV; else the text."""
    try:
        value = ast.literal_eval(text)
        return loads(json.dumps(value, allow_nan=False)) if isinstance(value, list | dict) else text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _rows(path: Path) -> Iterator[Record]:
    """The rows of a Parquet file, a part of a row group at a time; none of a table of steps.

    An entry that is missing in an object cannot be told from a null there, so both are left out.
    """
    import pyarrow.parquet as pq

    with path.open("rb") as opened, readable(path.name):
        file = pq.ParquetFile(opened)
        names, groups = file.schema_arrow.names, range(file.num_row_groups)
        if set(names) >= STEPS:
            return
        limit = room = expansion_limit(path.stat().st_size)
        row = 0
        for table in read_row_groups(opened, names, groups, decode=True):
            room -= table.nbytes
            if room < 0:
                detail = f"it expands to more than {limit:,} bytes"
                raise Record(None, path).error(detail, hint="if you trust it, split it")
            for value in table.to_pylist():
                row += 1
                record = Record(_plain(value), path, row)
                yield record.of(with_json(record))


def _plain(value: Any) -> Any:
    """A value of Arrow as one of JSON; the levels of a Parquet schema are limited."""
    if isinstance(value, dict):
        return {str(k): _plain(each) for k, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


# Entries of a document.


def entries(whole: Record) -> Iterator[Record]:
    """The records of a document: itself, its entries, or those of lists and objects in it."""
    whole = table(whole)
    value = whole.value
    if isinstance(value, list) and not _is_chat(value):
        yield from (_as_record(each) for each in whole.items())
        return
    whole = _as_record(whole)
    few = isinstance(value, dict) and len(value) <= FEW_FIELDS
    inner = [whole.get_key(key) for key in value] if few else []
    for box in (whole, *inner):
        if isinstance(box.value, dict) and (tasks := list(by_task(box))):
            beside = {} if box is whole else {k: v for k, v in value.items() if k != box.field}
            yield from (replace(one, beside=beside) for one in tasks)
            return
    for generic in (False, True):
        if not isinstance(whole.value, dict) or (
            format_of(whole, generic=generic)
            and not (generic and (_by_session(whole) or _has_sets(whole)))
        ):
            break
        found = [each for each in _inside(whole, bare=generic) if _holds(each, generic=generic)]
        if found:
            largest = max(found, key=len)
            name = _holds(largest, generic=generic)
            keys = {each[0].field.partition("[")[0].partition(".")[0] for each in found}
            # Sessions beside each other say nothing of one.
            beside = {k: each for k, each in whole.value.items() if k not in keys}
            beside = {} if largest[0].key else beside
            for each in found:
                if (other := _holds(each, generic=generic)) != name:
                    detail = f"it holds records of two formats, {name} and {other}"
                    raise whole.error(detail, hint="write each in a file of its own")
                yield from (replace(one, beside=beside) for one in each)
            return
    yield whole


def _is_chat(value: Any) -> bool:
    """Whether a value is the messages of one session."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and (
        {"role", "content"} <= first.keys() or {"from", "value"} <= first.keys()
    )


def _as_record(record: Record) -> Record:
    """The record of messages that stand alone."""
    if _is_chat(record.value):
        name = "messages" if "role" in record.value[0] else "conversations"
        return record.of({name: record.value})
    return record


def _by_session(whole: Record) -> bool:
    """Whether all of an object's entries are sessions of their own."""
    keys = list(whole.value)
    whole_ones = len(keys) > 1 and all(isinstance(each, dict) for each in whole.value.values())
    return whole_ones and all(format_of(whole.get_key(key)) for key in keys[:FEW])


def _has_sets(whole: Record) -> bool:
    """Whether an object has a list of sessions, each a record."""
    lists = (whole.value.get(name) for name in RUNS)
    return any(isinstance(v, list) and v and isinstance(v[0], dict) for v in lists)


def _inside(record: Record, depth: int = 2, *, bare: bool) -> Iterator[list[Record]]:
    """The lists and objects of records in an object; ``bare`` ones are messages alone."""
    values = record.mapping()
    inner = [(key, value) for key, value in values.items() if isinstance(value, dict | list)]
    if inner and len(inner) == len(values) and (bare or not any(_is_chat(v) for _, v in inner)):
        yield [_as_record(replace(record.get_key(key), key=key)) for key, _ in inner]
        if _by_session(record):
            return
    for key, value in inner:
        if isinstance(value, list) and value and not _is_chat(value):
            if bare or not _is_chat(value[0]):
                yield [_as_record(each) for each in record.get_key(key).items()]
        elif isinstance(value, dict) and depth > 1:
            yield from _inside(record.get_key(key), depth - 1, bare=bare)


def _holds(records: list[Record], *, generic: bool) -> str:
    """The name of the format of records; empty if they have none."""
    found = (format_of(each, generic=generic) for each in records[:FEW])
    return next((form.name for form in found if form), "")


# Archives.


def _members(path: Path, bad: OnBad) -> Iterator[Record]:
    """The records of the files in an archive, in its order."""
    room, used = expansion_limit(path.stat().st_size), 0
    try:
        for number, (name, file) in enumerate(_files(path, room)):
            if number >= MAX_MEMBERS:
                raise Record(None, path).error(f"more than {MAX_MEMBERS:,} files")
            parts = PurePosixPath(name).parts
            hidden = (
                any(each.startswith(".") and each != ".." for each in parts) or "__MACOSX" in name
            )
            if hidden or not name.endswith(SUFFIXES):
                continue
            member = one_line(name, 200)
            if kind_of(name) not in TEXTS:
                inner = Record(None, path, 0, member)
                bad(inner.error("not read inside of an archive", hint="unpack the archive"))
                continue
            try:
                with unpacked(file, PurePosixPath(name)) as plain:
                    content = _limited(plain, path, member)
                used += json_memory(content)
                if used > room:
                    detail = f"it expands to more than {room:,} bytes"
                    raise Record(None, path).error(detail, hint="if you trust it, unpack it")
                for record in _texts(content, kind_of(name), path, bad):
                    yield replace(record, member=member)
            except TableError as problem:
                if used > room:
                    raise
                bad(problem)
    except DAMAGES as error:
        raise Record(None, path).error(f"it cannot be unpacked: {one_line(error)}") from error


def _files(path: Path, room: int) -> Iterator[tuple[str, IO[bytes]]]:
    """The names of the files in an archive, and their contents."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as file:
                        yield info.filename, file
        return
    with path.open("rb") as raw, unpacked(raw, path) as plain:
        counted = _Counted(plain, path, room)
        with tarfile.open(fileobj=counted, mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                if member.isfile() and (file := tar.extractfile(member)):
                    yield member.name, file


class _Counted:
    """A stream that may have so many bytes, also in members that are passed over."""

    def __init__(self, file: IO[bytes], path: Path, room: int) -> None:
        self.file, self.path, self.room = file, path, room

    def read(self, size: int = -1) -> bytes:
        content = self.file.read(size)
        self.room -= len(content)
        if self.room < 0:
            raise Record(None, self.path).error(
                "it expands too much", hint="if you trust it, unpack it"
            )
        return content


def _samples(path: Path, bad: OnBad) -> Iterator[Record]:
    """The samples of an archive that Inspect wrote: a zip of JSON files."""
    try:
        with zipfile.ZipFile(path) as archive:
            beside = None
            if HEADER in archive.namelist():
                beside = parse_json(_unpacked(archive, archive.getinfo(HEADER), path, HEADER), path)
            names = [info for info in archive.infolist() if info.filename.startswith("samples/")]
            if len(names) > MAX_MEMBERS:
                raise Record(None, path).error(f"more than {MAX_MEMBERS:,} samples")
            room, total = expansion_limit(path.stat().st_size), 0
            for info in sorted(names, key=lambda info: info.filename):
                field = one_line(info.filename)
                if not info.filename.endswith(".json") or info.filename.count("/") > 1:
                    sample, hint = Record(None, path, 0, field), "write the log without chunks"
                    raise sample.error("this sample is stored in chunks", hint=hint)
                content = _unpacked(archive, info, path, field)
                total += json_memory(content)
                if total > room:
                    detail = f"it expands to more than {room:,} bytes"
                    raise Record(None, path).error(detail, hint="write the log as .json")
                try:
                    record = parse_json(content, path, 0, field)
                except TableError as problem:
                    bad(problem)
                    continue
                inside = None if beside is None else beside.value
                yield replace(record, beside=inside if isinstance(inside, dict) else None)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Record(None, path).error(f"it cannot be unpacked: {one_line(error)}") from error


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, field: str) -> bytes:
    if info.compress_type != ZSTANDARD:
        with archive.open(info) as file:
            return _limited(file, path, field)
    import pyarrow as pa

    checksum = info.CRC
    # As if it were stored: ``zipfile`` finds the bytes, Arrow unpacks them.
    info.compress_type, info.file_size, info.CRC = 0, info.compress_size, None  # type: ignore[assignment]
    with archive.open(info) as packed:
        try:
            with pa.CompressedInputStream(pa.PythonFile(packed, "rb"), "zstd") as file:
                content = _limited(file, path, field)
        except (OSError, pa.ArrowException) as error:
            raise zipfile.BadZipFile(f"{field} is damaged") from error
    if zlib.crc32(content) != checksum:
        raise zipfile.BadZipFile(f"{field} is damaged")
    return content
