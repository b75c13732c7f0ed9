"""Records with fields of usual names: messages, or actions with observations."""

from collections.abc import Iterator, Mapping
from typing import Any

from ascribe.sessions.reading.fields import ACTIONS, MESSAGES, Fields
from ascribe.sessions.reading.format import LAST, Format
from ascribe.sessions.reading.nested import RUNS, spread
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.rows import NUMBERS
from ascribe.sessions.reading.shapes import plain
from ascribe.sessions.reading.turns import ALIASES, KINDS, TURN, is_call

CHAT, SETS = "/".join(MESSAGES), "/".join(RUNS)
EVENT = (
    f"{'/'.join(KINDS)}={'|'.join(name for name, role in ALIASES.items() if role == 'assistant')}"
)
DONE = (
    *(f"{CHAT}.0.{'/'.join(TURN)}", f"{CHAT}.0.0", f"{'/'.join(ACTIONS)}.0", f"{CHAT}.*.{EVENT}"),
)
LEVELS = ("", "_.", "_._.", f"{SETS}.0.", f"_.{SETS}.0.", f"{SETS}.0.{SETS}.0.")


class _InAnyShape(Format):
    """The format of records whose turns may be in other shapes."""

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is of this format."""
        calls = record.get("calls")
        called = isinstance(calls, list) and any(map(is_call, calls[:3]))
        whole = record.keys().isdisjoint((*TURN, *NUMBERS))  # no message or row with calls
        return (called and whole) or super().fits(plain(record))


def split(record: Record) -> Iterator[Record]:
    """The sessions in a record."""
    yield from spread(record.of(plain(record.value)))


FORMAT = _InAnyShape(
    "fields",
    "sessions with usual fields",
    " | ".join((*(f"{level}{path}" for level in LEVELS for path in DONE), f"{SETS}.0.0.role/from")),
    Fields(),
    example="formats/fields.json",
    rank=LAST,
    split=split,
)
