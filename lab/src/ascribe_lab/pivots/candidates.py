"""``Candidate``: one assistant turn of a trace, with everything that came before it.

    D_cand = {(s_t, a*_t)}   for every trace and every assistant turn t            (PivotRL, Eq. 3)

The state s is the whole history up to the turn, the action a* is the demonstrated turn, whole. A
candidate is identified by a hash of the two, so the same turn is the same candidate in every file,
and copies are found whatever their origin.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ascribe.steps.atomic import replacing
from ascribe.steps.errors import InputError
from ascribe.steps.lines import numbered_lines
from ascribe.steps.strict_json import canonical
from ascribe_lab.agents.prompts import is_chat
from ascribe_lab.json_journal import parse_object

Message = dict[str, str]

KINDS = ("pivot candidates", "pivots")
"""What a file of turns may hold, as its first line says."""
END = "end"
"""In place of the kind, in the last line."""
VERSION = 1
MOST_COPIES = 1_000_000


@dataclass(frozen=True)
class Origin:
    """Where a turn comes from."""

    file: str
    trace: str
    """The trace's own name where it has one, else its line."""
    turn: int
    """The number of the assistant turn in its trace, from 0."""
    turns: int
    """How many assistant turns the trace has."""


@dataclass(frozen=True)
class ReplayPoint:
    """How to bring an environment to the situation of a turn: the reset, and the actions since."""

    seed: int
    task: int | None
    actions: tuple[str, ...]
    state: str
    """The environment's state key there."""


@dataclass(frozen=True)
class Candidate:
    """A turn that might be worth training on."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    """Hash of history, tools and action."""
    messages: tuple[Message, ...]
    """The history, as the policy reads it: system, user and assistant messages."""
    action: str
    """The demonstrated turn, whole; ``ascribe_lab.pivots.chat`` describes how calls are written."""
    origin: Origin
    tools: tuple[str, ...] = ()
    """The functions that could be called, each as JSON."""
    scene: ReplayPoint | None = None
    copies: Annotated[int, Field(ge=0, le=MOST_COPIES)] = 0
    """How many further turns of the traces were the same."""


_ADAPTER = TypeAdapter(Candidate)


def candidate(
    messages: Sequence[Message],
    action: str,
    origin: Origin,
    tools: Sequence[str] = (),
    scene: ReplayPoint | None = None,
) -> Candidate:
    """A candidate with its id: 80 bits of a hash of history, action and tools."""
    text = canonical([list(messages), action, list(tools)])
    identity = sha256(text.encode()).hexdigest()[:20]
    return Candidate(identity, tuple(messages), action, origin, tuple(tools), scene)


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each candidate once, where it came first, with the number of its copies."""
    first: dict[str, Candidate] = {}
    copies: dict[str, int] = {}
    for one in candidates:
        first.setdefault(one.id, one)
        copies[one.id] = copies.get(one.id, -1) + 1 + one.copies
    return [replace(one, copies=copies[one.id]) for one in first.values()]


# Files.


@dataclass(frozen=True)
class TurnFile:
    """The contents of a file of candidates or pivots."""

    kind: str
    facts: Mapping[str, Any]
    """The rest of the first line: for pivots the verifier, the model, K and the threshold."""
    candidates: tuple[Candidate, ...]


def write_turns(
    path: str | Path,
    candidates: Iterable[Candidate],
    kind: str = KINDS[0],
    facts: Mapping[str, Any] | None = None,
    profiles: Iterable[dict[str, Any]] = repeat({}),
) -> None:
    """Write candidates, or pivots and what else to say of each, under a first line of facts.

    The last line has the number of turns, so that a file that was cut short is refused.
    """
    head = {"ascribe": kind, "version": VERSION, **(facts or {})}
    rows = (asdict(one) | profile for one, profile in zip(candidates, profiles, strict=False))
    with replacing(path) as file:
        file.write(_line(head))
        count = 0
        for count, row in enumerate(rows, start=1):  # noqa: B007 (the last one is the number)
            file.write(_line(row))
        file.write(_line({"ascribe": END, "turns": count}))


def read_turns(path: str | Path) -> TurnFile:
    """Read what ``write_turns`` wrote; a file is read again only if it has changed.

    Raises:
        ValueError: if the file holds something else, with the line and the reason.
        OSError: if it cannot be opened.
    """
    path = Path(path).resolve()
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> TurnFile:  # noqa: ARG001
    candidates: dict[str, Candidate] = {}
    head: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    place = "a line"
    try:
        for number, line in numbered_lines(path):
            place = f"line {number}"
            row = parse_object(line)
            if head is None:
                head = row
                if head.get("ascribe") not in KINDS:
                    raise InputError(f"it does not say that the file holds {' or '.join(KINDS)}")
                if head.pop("version", None) != VERSION:
                    raise InputError("it was written for another version of ascribe")
                continue
            if end is not None:
                raise InputError("it comes after the end mark")
            if row.get("ascribe") == END:
                end = row
                continue
            one = _candidate(row)
            if one.id in candidates:
                raise InputError("the turn is in the file twice")
            candidates[one.id] = one
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{place} of {path.name}: {error}",
            hint="give a file of ascribe pivots extract or select, unchanged",
        ) from error
    if head is None:
        raise InputError(
            f"{path.name} is empty", hint="write it with ascribe pivots extract or select"
        )
    if end is None or end.get("turns") != len(candidates):
        mark = "no end mark" if end is None else f"an end mark for {end.get('turns')!r}"
        raise InputError(
            f"{path.name} has {len(candidates):,} turns and {mark}", hint="write it again"
        )
    return TurnFile(head.pop("ascribe"), head, tuple(candidates.values()))


def _line(row: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(row, ensure_ascii=False)}\n".encode()


def _candidate(row: dict[str, Any]) -> Candidate:
    """The candidate of a line, every value of the type that it must have."""
    row.pop("profile", None)  # of pivots; only people read it
    try:
        one = _ADAPTER.validate_json(json.dumps(row), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not is_chat(list(one.messages)):
        raise InputError("the messages are no list of messages with a role and a content")
    if candidate(one.messages, one.action, one.origin, one.tools).id != one.id:
        raise InputError("the turn does not match its id")
    return one
