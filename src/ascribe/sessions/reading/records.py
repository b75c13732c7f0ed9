"""JSON records of files that others wrote, read strictly, with the place of each value.

Files are untrusted. Nothing in them is evaluated or used as a path; sizes are limited before
anything is unpacked. Whatever is wrong is reported with the file, the line and the field.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from json import JSONDecodeError
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ascribe.sessions.messages import calls_of, check_form, split_content
from ascribe.steps.errors import InputError
from ascribe.steps.problems import Problem, ProblemKind, TableError, one_line
from ascribe.steps.strict_json import canonical as to_json
from ascribe.steps.strict_json import loads, without_nan
from ascribe.steps.table import encodable

STEPS = {"group", "trajectory", "step"}
"""Keys that every row of a table of steps has."""

Message: TypeAlias = dict[str, Any]


@dataclass(slots=True)  # frozen ones take four times as long to make
class Record:
    """A JSON value, and where it is: the file, the line (0: the whole file) and the field."""

    value: Any
    path: Path
    line: int = 0
    field: str = ""
    beside: Mapping[str, Any] | None = None
    """Of an entry of a log: what else the log has."""
    key: str = ""
    """Of an entry of an object, its key, which names a session."""
    member: str = ""
    """The name in an archive."""

    @property
    def file(self) -> Path:
        """The file, or a member of an archive as if it were beside it: a name, not to be opened."""
        return Path(self.path.parent, self.member) if self.member else self.path

    def place(self) -> str:
        """The file, the line and the field."""
        line = self.short() if self.line else ""
        parts = (one_line(self.path.name), self.member, line, one_line(self.field, 120))
        return ", ".join(filter(None, parts))

    def short(self) -> str:
        """The line or row, or the whole place in a file without them: a name for the record."""
        word = "row" if self.path.suffix == ".parquet" else "line"
        if self.key:
            return self.key
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
        except InputError as error:
            raise self.error(one_line(error.problem, 300), hint=error.hint) from error
        except ValueError as error:
            raise self.error(one_line(error, 300)) from error

    def of(self, value: Any, field: str | None = None) -> "Record":
        """Another value at this place."""
        place = self.field if field is None else field
        return Record(value, self.path, self.line, place, self.beside, self.key, self.member)

    def get(self, name: str) -> "Record":
        """The entry with this name, or the dotted path of one; a null if there is none."""
        value = self.value
        if "." not in name and (value is None or isinstance(value, dict)):
            field = f"{self.field}.{name}" if self.field else name
            return Record((value or {}).get(name), self.path, self.line, field)
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

    def get_key(self, name: str) -> "Record":
        """The entry with this very name, which may have dots; a null if there is none."""
        field = f"{self.field}.{name}" if self.field else name
        return self.of(self.mapping().get(name), field)

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

    def items(self, *, required: bool = False, start: int = 0) -> list["Record"]:
        """The entries of a list; none if there is no list, unless it is required."""
        values = self._typed("a list", list) if self or required else []
        path, line, field = self.path, self.line, self.field
        return [
            Record(value, path, line, f"{field}[{index}]")
            for index, value in enumerate(values[start:], start)
        ]

    def mapping(self) -> Mapping[str, Any]:
        """The value, which must be an object."""
        value: Mapping[str, Any] = self.value
        return value if type(value) is dict else self._typed("an object", dict)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "missing" if value is None else kinds.get(type(value), "a number")


def canonical(value: Any) -> str:
    """A value of any kind as text: text itself, or canonical JSON."""
    return value if isinstance(value, str) else to_json(value)


SURROGATE = re.compile(
    rb"\\u[dD](?:(?<!\\\\u[dD])[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>[89a-fA-F]))"
)
"""An escaped pair of surrogates; or what may be half of one, or an escaped backslash."""


def parse_json(content: bytes, path: Path, line: int = 0, field: str = "") -> Record:
    """The value of a JSON text at a place."""
    try:
        record = Record(loads(content), path, line, field)
    except ValueError as error:
        detail = one_line(str(error).splitlines()[0], 200)
        cut = ends_early(error) and not field
        kind = ProblemKind.CUT_OFF if cut else ProblemKind.BAD_RECORD
        raise Record(None, path, line, field).error(f"it is not JSON: {detail}", kind) from error
    halved = any(match["half"] for match in SURROGATE.finditer(content))
    if halved and not encodable(to_json(record.value)):
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
    return parse_json(record.value.encode(errors="replace"), record.path, record.line, record.field)


ABOUT = ("meta.json", "metadata.json", "info.json")
"""Files that say of which session the only other file of their folder is."""


def about_session(record: Record) -> dict[str, Any]:
    """What the file about the session says that lies beside its only file; {} if there is none."""
    folder = record.path.parent
    path = next((folder / name for name in ABOUT if (folder / name).is_file()), None)
    if path is None or record.member or path.is_symlink() or path == record.path:
        return {}
    stamp = path.stat()
    return _about(path, record.path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _about(path: Path, beside: Path, _time: int, size: int) -> dict[str, Any]:
    others = {each for each in path.parent.iterdir() if not each.name.startswith(".")}
    if others != {path, beside} or size > 2**20:
        return {}
    value = parse_json(path.read_bytes(), path).value
    return value if isinstance(value, dict) else {}


# Messages.

ROLES = {
    "developer": "system",
    "function": "tool",
    "human": "user",
    "environment": "tool",
    **dict.fromkeys(("model", "ai", "bot", "gpt", "agent"), "assistant"),
}
"""Other names of OpenAI's roles."""


def message(record: Record, *, sampled: bool = True) -> Message:
    """A chat message in OpenAI's form, from that of OpenAI, verifiers, Inspect or rLLM.

    An assistant message that the policy did not sample, such as an example in the prompt, gets the
    role ``demonstration``, so that it is no step. In OpenAI's files such messages have ``weight``
    0.
    """
    value = record.mapping()
    if value.keys() == {"role", "content"} and all(isinstance(v, str) for v in value.values()):
        role = ROLES.get(value["role"], value["role"])  # as most messages are
        if role in ("system", "user", "tool") or (role == "assistant" and sampled):
            return {"role": role, "content": value["content"]}
    with record.refusing():
        check_form({**value, "role": ROLES[value["role"]]} if _is_other(value) else value)
    role = ROLES.get(value["role"], value["role"])
    said = value.get("content")
    text, reasoning = (said, "") if isinstance(said, str) else content(record.get("content"))
    if role == "assistant" and not text and value.get("refusal") is not None:
        text = content(record.get("refusal"))[0]
    converted: Message = {"role": role, "content": text}
    if role == "tool" and value.get("tool_call_id") is not None:
        converted["tool_call_id"] = record.get("tool_call_id").name()
    if role != "assistant":
        return converted
    for name in ("reasoning_content", "reasoning"):
        if value.get(name) is not None:
            reasoning = content(record.get(name))[0]
    if reasoning:
        converted["reasoning_content"] = reasoning
    if calls := calls_of(value):
        converted["tool_calls"] = [tool_call(*call) for call in calls]
    if not sampled or value.get("weight") == 0:
        converted["role"] = "demonstration"
    return converted


def _is_other(value: Mapping[str, Any]) -> bool:
    """Whether a role has another name than those of OpenAI, which are checked as they are."""
    role = value.get("role")
    return isinstance(role, str) and role not in ("developer", "function") and role in ROLES


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
