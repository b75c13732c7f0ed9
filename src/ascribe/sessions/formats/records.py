"""JSON records of files that others wrote, read strictly, with the place of each value.

Files are untrusted. Nothing in them is evaluated or used as a path; sizes are limited before
anything is unpacked. Whatever is wrong is reported with the file, the line and the field.
"""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from json import JSONDecodeError
from math import isfinite
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from ascribe.sessions.messages import calls_of, check_form, split_content
from ascribe.steps.errors import InputError
from ascribe.steps.files import read_row_groups, readable
from ascribe.steps.lines import (
    LONGEST_LINE,
    LineError,
    expansion_limit,
    json_memory,
    numbered_lines,
)
from ascribe.steps.problems import Problem, ProblemKind, TableError, one_line
from ascribe.steps.strict_json import canonical as to_json
from ascribe.steps.strict_json import loads, without_nan
from ascribe.steps.table import encodable

MAX_RECORD = 2**28
"""Bytes of one JSON file or member of an archive."""
MAX_MEMBERS = 100_000
INSIDE = {"samples": "eval", "simulations": "tasks"}
"""Lists of records in a log of Inspect and in results of tau2, and a key beside each."""
HEADER = "header.json"
"""The member of an archive of Inspect that says what was evaluated."""
ZSTANDARD = 93
"""The number of a compression that ``zipfile`` learned in Python 3.14."""

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A JSON value, and where it is: the file, the line (0: the whole file) and the field."""

    value: Any
    path: Path
    line: int = 0
    field: str = ""
    beside: Mapping[str, Any] | None = None
    """Of an entry of a log: what else the log has."""

    def place(self) -> str:
        """The file, the line and the field."""
        line = self.short() if self.line else ""
        return ", ".join(filter(None, (one_line(self.path.name), line, one_line(self.field, 120))))

    def short(self) -> str:
        """The line or row, or the whole place in a file without them: a name for the record."""
        word = "row" if self.path.suffix == ".parquet" else "line"
        return f"{word} {self.line}" if self.line else self.place()

    def error(
        self, detail: str, kind: ProblemKind = ProblemKind.BAD_RECORD, hint: str = ""
    ) -> TableError:
        """The error that names the file, the line and the field."""
        rows = np.array([self.line - 1] if self.line else [], dtype=np.int64)
        return TableError([Problem(kind, f"{self.place()}: {detail}", rows, hint=hint)])

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Report a ``ValueError`` as the error of this place."""
        try:
            yield
        except TableError:
            raise
        except ValueError as error:
            what, hint = (error.what, error.hint) if isinstance(error, InputError) else (error, "")
            raise self.error(one_line(what, 300), hint=hint) from error

    def get(self, name: str) -> "Record":
        """The entry with this name, or the dotted path of one; a null if there is none."""
        record, rest = self, name
        while True:
            value = record.value
            if value is not None and not isinstance(value, dict):
                raise record.error(f"it must be an object, not {_kind(value)}")
            whole = value is not None and rest in value  # names of attributes have dots
            part, _, rest = (rest, "", "") if whole else rest.partition(".")
            field = f"{record.field}.{part}" if record.field else part
            record = Record((value or {}).get(part), self.path, self.line, field)
            if not rest:
                return record

    def __bool__(self) -> bool:
        return self.value is not None

    def _typed(self, expected: str, *kinds: type) -> Any:
        if not isinstance(self.value, kinds) or (isinstance(self.value, bool) != (bool in kinds)):
            raise self.error(f"it must be {expected}, not {_kind(self.value)}")
        return self.value

    def text(self) -> str:
        """The value, which must be text."""
        return str(self._typed("text", str))

    def name(self) -> str:
        """Text, an integer, or a JSON value of any kind as its text: the name of something."""
        if isinstance(self.value, str | int) and not isinstance(self.value, bool):
            return str(self.value)
        return canonical(self._typed("a name", dict, list))

    def number(self) -> float:
        """The value, which must be a finite number; true and false count as 1 and 0."""
        value = self.value if isinstance(self.value, bool) else self._typed("a number", int, float)
        try:
            if isfinite(value):
                return float(value)
        except OverflowError:
            pass
        raise self.error("the number is too large")

    def integer(self) -> int:
        """The value, which must be an integer of at most 64 bits."""
        if type(self.value) is int and not -(2**63) <= self.value < 2**63:
            raise self.error("the number is too large")
        return int(self._typed("an integer", int))

    def optional_name(self) -> str | None:
        """The name, or None if there is none."""
        return self.name() if self else None

    def optional_number(self) -> float | None:
        """The number, or None if there is none."""
        return self.number() if self else None

    def flag(self) -> bool:
        """The value, which must be true or false; false if there is none."""
        return bool(self._typed("true or false", bool)) if self else False

    def items(self, *, required: bool = False) -> list["Record"]:
        """The entries of a list; none if there is no list, unless it is required."""
        values = self._typed("a list", list) if self or required else []
        return [
            Record(value, self.path, self.line, f"{self.field}[{index}]")
            for index, value in enumerate(values)
        ]

    def mapping(self) -> Mapping[str, Any]:
        """The value, which must be an object."""
        value: Mapping[str, Any] = self._typed("an object", dict)
        return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "missing" if value is None else kinds.get(type(value), "a number")


def canonical(value: Any) -> str:
    """A value of any kind as text: text itself, or canonical JSON."""
    return value if isinstance(value, str) else to_json(value)


# Files.


OnBad: TypeAlias = Callable[[TableError], None]
"""Called for a record that cannot be read; the next one is read if it returns."""


def _refuse(problem: TableError) -> None:
    raise problem


def read_records(path: Path, bad: OnBad = _refuse) -> Iterator[Record]:
    """The records of a ``.jsonl``, ``.jsonl.gz``, ``.json``, ``.eval`` or ``.parquet`` file.

    Args:
        path: the file.
        bad: called for a line, or a member of an archive, that cannot be read.

    Raises:
        TableError: if the file is damaged, too large or not JSON.
        OSError: if it cannot be opened.
    """
    if path.suffix == ".eval":
        yield from _members(path, bad)
    elif path.suffix == ".parquet":
        yield from _rows(path)
    elif path.suffix in (".json", ".traj"):
        with path.open("rb") as file:
            content = _limited(file, path)
        if VALUES.search(content):
            yield from _concatenated(content, path)
            return
        whole = _parse(content, path)
        inside = _inside(whole.value)
        if isinstance(whole.value, list):
            yield from whole.items()
        elif inside:
            beside = {key: value for key, value in whole.value.items() if key != inside}
            for each in whole.get(inside).items():
                yield replace(each, beside=beside)
        else:
            yield whole
    else:
        yield from _lines(path, bad)


VALUES = re.compile(rb"}[ \t\r]*\n\s*{")
"""Between two objects, a line break and no comma: text has no line breaks, so one after another."""


def _concatenated(content: bytes, path: Path) -> Iterator[Record]:
    """Objects one after another, as OpenTelemetry writes them to the console."""
    start, line = 0, 1
    for end in (*(match.start() + 1 for match in VALUES.finditer(content)), len(content)):
        part = content[start:end]
        yield _parse(part, path, line + part[: len(part) - len(part.lstrip())].count(b"\n"))
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
    return isinstance(value, list) or bool(_inside(value))


def _inside(value: Any) -> str | None:
    """The key of the list of records in a file."""
    keys = value.keys() if isinstance(value, dict) else set()
    return next((name for name, beside in INSIDE.items() if keys >= {name, beside}), None)


def _lines(path: Path, bad: OnBad) -> Iterator[Record]:
    try:
        for line, content in numbered_lines(path):
            try:
                record = _parse(content, path, line)
            except TableError as problem:
                bad(problem)
                continue
            yield record
    except LineError as error:
        kind = ProblemKind.CUT_OFF if error.cut else ProblemKind.BAD_RECORD
        bad(Record(None, path).error(error.what, kind, error.hint))
    except OSError as error:
        if error.errno is not None:  # it cannot be opened
            raise
        bad(Record(None, path).error(str(error)))


STEPS = {"group", "trajectory", "step"}
"""Keys that every row of a table of steps has."""
CHATS = ("messages", "conversations")
"""Columns of a Parquet file that may hold lists as JSON text."""


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
                for column in CHATS:
                    if isinstance(text := record.value.get(column), str):
                        inside = _parse(text.encode(errors="surrogatepass"), path, row, column)
                        record.value[column] = inside.value
                yield record


def _plain(value: Any) -> Any:
    """A value of Arrow as one of JSON; the levels of a Parquet schema are limited."""
    if isinstance(value, dict):
        return {str(k): _plain(each) for k, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def _limited(file: IO[bytes], path: Path, field: str = "") -> bytes:
    content = file.read(MAX_RECORD + 1)
    if len(content) > MAX_RECORD:
        raise Record(None, path, 0, field).error(f"more than {MAX_RECORD:,} bytes")
    return content


def _parse(content: bytes, path: Path, line: int = 0, field: str = "") -> Record:
    try:
        record = Record(loads(content), path, line, field)
    except ValueError as error:
        detail = one_line(str(error).splitlines()[0], 200)
        cut = ends_early(error) and not field
        kind = ProblemKind.CUT_OFF if cut else ProblemKind.BAD_RECORD
        raise Record(None, path, line, field).error(f"it is not JSON: {detail}", kind) from error
    if b"\\ud" in content.lower() and not encodable(to_json(record.value)):
        raise record.error("a text is not valid Unicode: it holds half of a surrogate pair")
    return record


SAID_ONCE = 30.0
"""Minus the logarithm of a probability with which no two of a thousand million attempts agree."""


def digest(values: Any) -> str:
    """A hash of log-probabilities too low to occur twice, else nothing: words have their own."""
    if _improbability(values) < SAID_ONCE:
        return ""
    return blake2b(to_json(without_nan(values)).encode(), digest_size=16).hexdigest()


def _improbability(values: Any) -> float:
    """Minus the sum of log-probabilities, without those of what else could have been said."""
    if isinstance(values, dict):
        return sum(_improbability(v) for name, v in values.items() if not name.startswith("top_"))
    if isinstance(values, list):
        return sum(map(_improbability, values))
    return max(0.0, -values) if isinstance(values, float) and isfinite(values) else 0.0


def ends_early(error: ValueError) -> bool:
    """Whether a text is not JSON because it ends in the middle of a value."""
    if not isinstance(error, JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())


def parse(record: Record) -> Record:
    """The value of JSON text in a record; another value is itself."""
    if not isinstance(record.value, str):
        return record
    return _parse(record.value.encode(errors="replace"), record.path, record.line, record.field)


def _members(path: Path, bad: OnBad) -> Iterator[Record]:
    """The samples of an archive that Inspect wrote: a zip of JSON files."""
    try:
        with zipfile.ZipFile(path) as archive:
            beside = None
            if HEADER in archive.namelist():
                beside = _parse(_unpacked(archive, archive.getinfo(HEADER), path, HEADER), path)
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
                    record = _parse(content, path, 0, field)
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


# Messages.

ROLES = {"developer": "system", "function": "tool"}
"""Other names of OpenAI's roles."""


def message(record: Record, *, sampled: bool = True) -> Message:
    """A chat message in OpenAI's form, from that of OpenAI, verifiers, Inspect or rLLM.

    An assistant message that the policy did not sample, such as an example in the prompt, gets the
    role ``demonstration``, so that it is no step. In OpenAI's files such messages have ``weight``
    0.
    """
    value = record.mapping()
    with record.refusing():
        check_form(value)
    role = ROLES.get(value["role"], value["role"])
    text, reasoning = content(record.get("content"))
    if role == "assistant" and not text and record.get("refusal"):
        text = content(record.get("refusal"))[0]
    converted: Message = {"role": role, "content": text}
    if role == "tool" and (call := record.get("tool_call_id")):
        converted["tool_call_id"] = call.name()
    if role != "assistant":
        return converted
    for name in ("reasoning_content", "reasoning"):
        if record.get(name):
            reasoning = content(record.get(name))[0]
    if reasoning:
        converted["reasoning_content"] = reasoning
    if calls := calls_of(value):
        converted["tool_calls"] = [tool_call(*call) for call in calls]
    if not sampled or record.get("weight").value == 0:
        converted["role"] = "demonstration"
    return converted


def content(record: Record) -> tuple[str, str]:
    """The text of a content, and the reasoning in it."""
    if not isinstance(record.value, list):
        return (record.text() if record else ""), ""
    with record.refusing():
        return split_content(record.value)


def tool_call(name: str, arguments: Any, call: Any = None) -> Message:
    """A tool call in OpenAI's form."""
    function = {"name": name, "arguments": canonical(arguments if arguments is not None else {})}
    return {"id": "" if call is None else str(call), "type": "function", "function": function}
