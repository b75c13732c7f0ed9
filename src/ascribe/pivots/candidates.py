"""``Candidate``: one assistant turn of a trace, with everything that came before it.

    D_cand = {(s_t, a*_t)}   for every trace and every assistant turn t            (PivotRL, Eq. 3)

The state s is the whole history up to the turn, the action a* is the demonstrated turn, whole. A
candidate is known by a hash of the two, so the same turn is the same candidate in every file, and
copies are found whatever their origin.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ascribe.pivots.lines import NotALine, as_object, numbered, write_objects
from ascribe.steps.strict_json import canonical

Message = dict[str, str]

KINDS = ("pivot candidates", "pivots")
"""What the first line of a file may say that the file holds."""
VERSION = 1


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
class Scene:
    """How to get an environment to where the turn was taken: the reset, and the actions since."""

    seed: int
    task: int | None
    actions: tuple[str, ...]
    state: str
    """The environment's key of the situation there."""


@dataclass(frozen=True)
class Candidate:
    """A turn that might be worth training on."""

    id: str
    """Hash of history, tools and action."""
    messages: tuple[Message, ...]
    """The history, as the policy reads it: system, user and assistant messages."""
    action: str
    """The demonstrated answer, whole; calls stand in it as ``ascribe.pivots.calls`` writes them."""
    origin: Origin
    tools: tuple[str, ...] = ()
    """The functions that could be called, each as JSON."""
    scene: Scene | None = None
    copies: int = 0
    """How many further turns of the traces were the same."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        return asdict(self)


def candidate(
    messages: Sequence[Message],
    action: str,
    origin: Origin,
    tools: Sequence[str] = (),
    scene: Scene | None = None,
) -> Candidate:
    """A candidate with its id."""
    known = identity(messages, action, tools)
    return Candidate(known, tuple(messages), action, origin, tuple(tools), scene)


def identity(messages: Sequence[Message], action: str, tools: Sequence[str]) -> str:
    """The id: 80 bits of a hash of what was read and what was done."""
    return sha256(canonical([list(messages), action, list(tools)]).encode()).hexdigest()[:20]


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each candidate once, where it came first, with the number of its copies."""
    found: dict[str, Candidate] = {}
    copies: dict[str, int] = {}
    for one in candidates:
        found.setdefault(one.id, one)
        copies[one.id] = copies.get(one.id, -1) + 1 + one.copies
    return [replace(one, copies=copies[one.id]) for one in found.values()]


# Files.


@dataclass(frozen=True)
class Turns:
    """What a file of candidates or pivots holds."""

    kind: str
    facts: Mapping[str, Any]
    """What the first line says besides: for pivots the verifier, the model, K and the threshold."""
    candidates: tuple[Candidate, ...]
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For pivots: mean, variance and rewards by id."""


class NotTurns(ValueError):  # noqa: N818 (named for what is wrong)
    """A file that does not hold candidates or pivots."""


def write_turns(
    path: str | Path,
    candidates: Iterable[Candidate],
    kind: str = KINDS[0],
    facts: Mapping[str, Any] | None = None,
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write candidates, or pivots with their profiles, under a first line of facts."""
    head = {"ascribe": kind, "version": VERSION, **(facts or {})}
    rows = (
        one.as_dict() | ({"profile": dict(profiles[one.id])} if profiles else {})
        for one in candidates
    )
    write_objects(Path(path), (row for part in ([head], rows) for row in part))


def read_turns(path: str | Path) -> Turns:
    """Read what ``write_turns`` wrote; a file is read again only if it has changed.

    Raises:
        NotTurns: if the file holds something else, with the line and the reason.
        OSError: if it cannot be opened.
    """
    path = Path(path).resolve()
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> Turns:  # noqa: ARG001
    found: list[Candidate] = []
    profiles: dict[str, Mapping[str, Any]] = {}
    head: dict[str, Any] | None = None
    at = 0
    try:
        for number, line in numbered(path):
            at = number
            row = as_object(line)
            if head is None:
                head = _head(row)
            else:
                profile = row.pop("profile", None)
                one = _candidate(row)
                found.append(one)
                if profile is not None:
                    profiles[one.id] = profile
    except (NotALine, NotTurns, TypeError, KeyError) as error:
        raise NotTurns(
            f"line {at} of {path.name}: {error}; the files of ascribe pivots extract and "
            "select are read, as they were written"
        ) from error
    if head is None:
        raise NotTurns(f"{path.name} is empty; write it with ascribe pivots extract or select")
    ids = {one.id for one in found}
    if len(ids) < len(found):
        raise NotTurns(f"{path.name} holds a turn twice; write it again")
    return Turns(head.pop("ascribe"), head, tuple(found), profiles)


def _head(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("ascribe") not in KINDS:
        raise NotTurns(f"it does not say that the file holds {' or '.join(KINDS)}")
    if row.pop("version", None) != VERSION:
        raise NotTurns("it was written for another version of ascribe")
    return row


def _candidate(row: dict[str, Any]) -> Candidate:
    scene = row["scene"]
    messages = tuple(_message(message) for message in row["messages"])
    one = Candidate(
        _text(row["id"]),
        messages,
        _text(row["action"]),
        Origin(**row["origin"]),
        tuple(_text(tool) for tool in row["tools"]),
        None if scene is None else Scene(**{**scene, "actions": tuple(scene["actions"])}),
        int(row["copies"]),
    )
    if identity(one.messages, one.action, one.tools) != one.id:
        raise NotTurns("the turn is not the one that its id was made of")
    return one


def _message(message: Any) -> Message:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        raise NotTurns("a message has a role and a content, and nothing else")
    return {"role": _text(message["role"]), "content": _text(message["content"])}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotTurns(f"{str(value)[:40]!r} is not text")
    return value
