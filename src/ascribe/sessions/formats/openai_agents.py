"""Traces of the OpenAI Agents SDK: a line for each trace and each span.

Spans of the type ``generation`` are model calls; ``agent`` and ``function`` spans around them say
who acts. Traces with one ``group_id`` are one session, else each trace is. The reward and the task
are entries of a trace or its metadata with usual names. Spans of the type ``response`` are read if
they have an input and an output; the SDK's own exporter leaves these out.
"""

from collections.abc import Hashable, Iterator, Sequence

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading import items
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.model_calls import scores
from ascribe.sessions.reading.names import GROUPS, usual
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.traces import (
    Chat,
    Kind,
    Span,
    chat,
    from_spans,
    one_group,
    responses,
    seconds,
)

KINDS: dict[str, Kind] = {
    "generation": "call",
    "response": "call",
    "agent": "agent",
    "function": "tool",
}
EMPTY = "it has no messages; write the input and the output of responses into their spans"


def split(record: Record) -> list[Record]:
    """The entries of a batch, or the record."""
    return record.get("data").items() if isinstance(record.get("data").value, list) else [record]


def session(record: Record) -> Hashable:
    """The group of traces, which a trace names."""
    return record.get("group_id").optional_name()


def trace(record: Record) -> Hashable:
    """The trace."""
    return (record.get("trace_id") or record.get("id")).name()


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The calls of a session."""
    yield from from_spans(
        [_span(record) for record in records],
        lambda place: _chat(records[place].get("span_data")),
        str(next(filter(None, map(session, records)), trace(records[0]))),
        one_group(usual(record, GROUPS) for record in records),
    )


def _span(record: Record) -> Span:
    failed = record.get("error") and not record.get("span_data.output")
    kind = "" if failed else KINDS.get(str(record.get("span_data.type").value), "")
    return Span(
        id=record.get("id").name(),
        parent=record.get("parent_id").optional_name(),
        kind=kind,
        time=seconds(record.get("started_at")),
        name=record.get("span_data.name").optional_name() if kind in ("agent", "tool") else None,
    )


def _chat(data: Record) -> Chat:
    for each in map(data.get, ("input", "output")):
        if not each.value:
            raise each.error(EMPTY)
    if data.get("type").value == "response":
        turn = items.turns(data.get("output"))
        return items.prompt(data.get("input")), [(each, False) for each in turn]
    return chat(data.get("input"), "user"), responses(data.get("output"))


FORMAT = Format(
    "openai-agents",
    "OpenAI Agents traces",
    r"data.0.object=trace(\.span)? | object=trace(\.span)?",
    read,
    example="sessions/openai_agents.jsonl",
    session=session,
    trace=trace,
    split=split,
    scores=scores,
    identity="id",
)
