"""LangSmith runs, a line each.

Runs of the type ``llm`` are model calls; tools around them say who acts. A session is a thread
(``thread_id``, ``session_id`` or ``conversation_id`` in the metadata), else a trace; the field
``session_id`` of a run is its project. The reward is the mean of a feedback: the only one, or one
of a usual name. The task is the example of a dataset, or an entry of the metadata with a usual
name, else the prompt.
"""

from collections.abc import Hashable, Iterator, Sequence

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import GROUPS, SESSIONS, usual
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.scores import Score
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

KINDS: dict[str, Kind] = {"llm": "call", "tool": "tool"}


def session(record: Record) -> Hashable:
    """The thread, if the run names it."""
    return usual(record.get("extra.metadata"), SESSIONS).optional_name()


def trace(record: Record) -> Hashable:
    """The trace."""
    return record.get("trace_id").optional_name() or record.get("id").name()


def scores(record: Record) -> list[Score]:
    """The mean of each feedback."""
    stats = record.get("feedback_stats")
    means = {name: stats.get(name).get("avg") for name in (stats.mapping() if stats else ())}
    return [Score(name, mean) for name, mean in means.items() if mean]


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The calls of a session."""
    examples = [record.get("reference_example_id") for record in records]
    tasks = [usual(record.get("extra.metadata"), GROUPS) for record in records]
    yield from from_spans(
        [_span(record) for record in records],
        lambda place: _chat(records[place]),
        str(next(filter(None, map(session, records)), trace(records[0]))),
        one_group(tasks) or one_group(examples),
    )


def _span(record: Record) -> Span:
    failed = record.get("error") and not record.get("outputs")  # so there is no response
    kind = "" if failed else KINDS.get(record.get("run_type").text(), "")
    return Span(
        id=record.get("id").name(),
        parent=record.get("parent_run_id").optional_name(),
        kind=kind,
        time=seconds(record.get("start_time")),
        name=record.get("name").optional_name() if kind == "tool" else None,
        called=record.get("extra.tool_call_id").optional_name(),
    )


def _chat(record: Record) -> Chat:
    return chat(record.get("inputs"), "user"), responses(record.get("outputs"))


FORMAT = Format(
    "langsmith",
    "LangSmith runs",
    "id run_type trace_id | id run_type dotted_order",
    read,
    example="sessions/langsmith.jsonl",
    session=session,
    trace=trace,
    scores=scores,
    identity="id",
)
