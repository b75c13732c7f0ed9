"""What a file format of sessions is, and the one place in which formats are recognised.

Each module of ``ascribe.sessions.formats`` has its ``FORMAT``; other packages add theirs by the
entry point group ``ascribe.formats``.
"""

import pkgutil
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.records import STEPS, Record
from ascribe.sessions.reading.scores import Score
from ascribe.steps.hints import unknown
from ascribe.steps.plugins import PluginError, entry_points, load_point, source
from ascribe.steps.problems import Problem, ProblemKind, TableError

LAST = 9
"""The rank of formats that are tried after those of other packages."""
FORMAT_GROUP = "ascribe.formats"
"""The entry point group of formats in other packages."""


def _reward_field(record: Record) -> list[Score]:
    found = record.get("reward")
    return [Score("", found)] if found else []


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: what ``--format`` calls it.
        title: what messages call it.
        recognises: what its records have, as terms; ``|`` separates alternatives. A term is a path
            of keys, ``0`` for the first entry of a list, ``*`` for any entry, ``_`` for any of an
            object; then nothing if it is there, ``:list``, ``:object`` or ``:set`` for what it is,
            or ``=`` and the regular expression of its value. ``!`` denies a term, ``a/b`` is one of
            two keys.
        reads: the conversations of a record; of all records of a session, if there is ``session``.
        example: a file of this format in the tests.
        rank: formats of a lower rank are tried first: 0 have marks of their own, 1 are told apart
            by what is beside their messages, others by the messages.
        family: formats that one reader reads; a file may have records of each.
        put: writes the advantages of each conversation into the record, if it has a place for them.
        score: the number of a reward.
        continued: whether a trajectory may go on in the next record, if its extra says ``named``.
        session: the name of a record's session, for formats with several records for each. Records
            of different files with the same name are one session. Their conversations have the
            place of their record in ``extra["record"]``, or the step that each belongs to in
            ``extra["steps"]``, and ``scores`` finds the rewards.
        trace: the name of what a record without a session belongs to: its session is the only one
            that records of the same trace name, else the trace itself.
        split: the records in a record, if a line or a file may hold several, or none.
        identity: the field that names a record: those of a session with one name are one record.
        unique: what is equal in records of one name, of whatever session: these are one session,
            of which a copy went on. Empty if sessions may use names again.
        snapshots: whether a record shows a session as it is by then, so that the latest reward is
            the session's, and earlier ones are not rewards of calls.
        scores: the scores that a record gives.
        field: the field of a record that the caller named.
        beside: names of files that the reader opens itself, or that lie beside these and hold no
            session.
    """

    name: str
    title: str
    recognises: str
    reads: Callable[[Any], Iterable[Conversation]]
    example: str = ""
    rank: int = 0
    family: str = ""
    put: Callable[[Any, Iterator[Sequence[float | None]]], None] | None = None
    score: Callable[[Record], float] = Record.number
    continued: bool = False
    session: Callable[[Record], Hashable] | None = None
    trace: Callable[[Record], Hashable] | None = None
    split: Callable[[Record], Iterable[Record]] = lambda record: (record,)
    identity: str = ""
    unique: str = ""
    snapshots: Callable[[Record], bool] = lambda _: False
    scores: Callable[[Record], Iterable[Score]] = _reward_field
    field: Callable[[Record, str], Record] = Record.get
    beside: Sequence[str] = ()

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is of this format."""
        return any(all(_holds(record, *t) for t in each) for each in _terms(self.recognises))


KINDS = {"list": list, "object": dict}


TERM = re.compile(r"(!?)([^:=]+):?([^=]*)=?(.*)")


@cache
def _terms(text: str) -> list[list[tuple[bool, list[list[str]], str, str]]]:
    """The terms of each alternative: whether each is denied, its path, its kind, and its value."""
    found = []
    for terms in text.split(" | "):
        parts = [TERM.findall(term)[0] for term in terms.split()]
        found.append(
            [(bool(no), [s.split("/") for s in p.split(".")], k, v) for no, p, k, v in parts]
        )
    return found


def _holds(record: Any, denied: bool, path: Sequence[Sequence[str]], kind: str, value: str) -> bool:
    there = any(
        isinstance(each, KINDS.get(kind, object))
        and (kind != "set" or bool(each))
        and (not value or re.fullmatch(value, str(each)) is not None)
        for each in _at(record, path)
    )
    return there != denied


def _at(value: Any, path: Sequence[Sequence[str]]) -> Iterator[Any]:
    """The values at a path, each part of which is one key or several."""
    if not path:
        yield value
    elif path[0][0] == "_" and isinstance(value, dict):
        for each in value.values():
            yield from _at(each, path[1:])
    elif isinstance(value, list) and path[0][0] in ("0", "*"):
        for each in value[: None if path[0][0] == "*" else 1]:
            yield from _at(each, path[1:])
    elif isinstance(value, dict):
        for key in value.keys() & set(path[0]):
            yield from _at(value[key], path[1:])


@cache
def formats() -> dict[str, Format]:
    """Ascribe's formats by their names, in the order in which they are tried."""
    package = import_module("ascribe.sessions.formats")
    names = (each.name for each in pkgutil.iter_modules(package.__path__))
    found = [import_module(f"{package.__name__}.{name}").FORMAT for name in names]
    return {each.name: each for each in sorted(found, key=lambda each: each.rank)}


@cache
def others() -> dict[str, Format]:
    """The formats of other packages."""
    points = entry_points(FORMAT_GROUP, formats())
    found = {name: load_point(point) for name, point in points.items()}
    for name, each in found.items():
        if not isinstance(each, Format) or each.name != name:
            what = f"must be a Format with the name {name!r}; repair or uninstall that package"
            raise PluginError(f"{source(points[name])} {what}")
    return found


def named(name: str) -> Format:
    """The format with this name; ``InputError`` if there is none."""
    if found := formats().get(name) or others().get(name):
        return found
    raise unknown("format", name, (*formats(), *others()))


def error(detail: str, first: Record | None = None, given: Path | None = None) -> TableError:
    """The error for files in which there is no session; ``first`` is a record of them.

    ``given`` is the file or the folder that is to be read.
    """
    if first is None or not isinstance(first.value, dict):
        return TableError([Problem(ProblemKind.NO_CONVERSATIONS, detail)])
    from ascribe.sessions.reading.advice import advice, described

    problem = Problem(ProblemKind.NO_CONVERSATIONS, detail, hint=advice(first, given or first.path))
    found = TableError([problem])
    found.fields = described(first)
    return found


def format_of(record: Record, family: str = "", *, generic: bool = True) -> Format | None:
    """The format of a record; None for a row of a table of steps, and for an unknown one.

    A ``generic`` format is one that recognises fields by their usual names.
    """
    value = record.value
    if not isinstance(value, dict) or value.keys() >= STEPS:
        return None
    own = [each for each in formats().values() if family in ("", each.family)]
    found = next((each for each in own if each.rank < LAST and each.fits(value)), None)
    if found or family:
        return found
    last = [each for each in own if each.rank >= LAST] if generic else []
    return next((each for each in (*others().values(), *last) if each.fits(value)), None)
