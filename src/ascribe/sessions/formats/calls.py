"""What formats share in which several records, or parts of one, are the calls of a session."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ascribe.sessions.formats.chats import prompt_name
from ascribe.sessions.formats.records import Message, Record, message, parse
from ascribe.sessions.messages import Conversation
from ascribe.steps.problems import TableError

SCORES = ("reward", "success", "score")
"""Of several scores, the one with the first of these names is the reward."""


def call(shown: Sequence[Message], response: Message, **fields: Any) -> Conversation:
    """A model call; ``in_session`` says of which session."""
    return Conversation(
        group="", trajectory="", messages=[*shown, response], context=len(shown), **fields
    )


def in_session(
    calls: Sequence[Conversation], name: str, group: str | None
) -> Iterator[Conversation]:
    """The calls of a session; without a name for the task, the prompt of the first call is it."""
    if calls and not group:
        first = min(calls, key=lambda each: (each.time or 0.0, len(each.messages)))
        group = prompt_name(first.messages)
    for each in calls:
        yield replace(each, group=group or "", trajectory=name)


def scored(
    records: Sequence[Record], scores: Callable[[Record], Mapping[str, Record]], name: str | None
) -> list[Record]:
    """The score of this name of each record; by default the only one, or one of ``SCORES``."""
    of_records = [scores(record) for record in records]
    names = list({each: None for found in of_records for each in found})
    if name is None and len(names) > 1:
        name = next((each for each in SCORES if each in names), None)
        if name is None:
            detail = f"there are several scores: {', '.join(sorted(names)[:12])}"
            raise records[-1].error(f"{detail}; name the one that is the reward with --reward")
    name = name or next(iter(names), "")
    return [
        found.get(name, replace(record, value=None))
        for found, record in zip(of_records, records, strict=True)
    ]


def nearest(parents: Sequence[int], wanted: Sequence[bool]) -> list[int]:
    """The nearest node above each node of a forest that is wanted; -1 if there is none.

    Raises:
        ValueError: if the parents form a cycle.
    """
    unknown, current = -3, -2
    found = [unknown] * len(parents)
    for start in range(len(parents)):
        path, node = [], start
        while node >= 0 and found[node] == unknown:
            found[node] = current
            path.append(node)
            node = parents[node]
        if node >= 0 and found[node] == current:
            raise ValueError("its parents form a cycle; each must be before it")
        above = -1 if node < 0 else node if wanted[node] else found[node]
        for node in reversed(path):
            found[node] = above
            above = node if wanted[node] else above
    return found


def seconds(record: Record, *, unit: float = 1.0) -> float | None:
    """A time in seconds, from a number of units, its text, or a date of ISO 8601."""
    if not isinstance(record.value, str):
        return record.number() * unit if record else None
    text = record.value
    try:
        if text.isdecimal() and len(text) <= 30:
            return int(text) * unit
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise record.error("it must be a number or a date like 2026-01-31T12:00:00Z") from error


def one_group(fields: Iterable[Record]) -> str | None:
    """The task that records of a session name, if any does; it must be one."""
    names = [each for each in fields if each]
    for other in (each for each in names if each.name() != names[0].name()):
        detail = f"{names[0].place()} of the same session names another task: give it one"
        raise other.error(detail)
    return names[0].name() if names else None


def chat(record: Record, role: str) -> list[Message]:
    """The messages of an input or an output: a list of them, one, or text that this role wrote.

    They may be JSON text, and in ``messages``, in ``choices`` or in one more list.
    """
    if isinstance(record.value, str):
        try:
            inside = parse(record)
        except TableError:
            inside = record
        parts = inside.value if isinstance(inside.value, list) else [inside.value]
        if not parts or not all(isinstance(each, dict) and "role" in each for each in parts):
            return [{"role": role, "content": record.value}]
        record = inside
    if isinstance(record.value, dict) and record.value.keys() & {"messages", "choices"}:
        record = record.get("messages") or record.get("choices")
    if not isinstance(record.value, list):
        record = replace(record, value=[{"role": role, **record.mapping()}])
    items = record.items()
    if items and isinstance(items[0].value, list):
        items = items[0].items()
    return [message(each.get("message") if "message" in each.mapping() else each) for each in items]
