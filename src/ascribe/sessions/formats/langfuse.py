"""Langfuse traces, each with its observations and scores, or a line for each of these.

Observations of the type ``GENERATION`` are model calls; those around them say who acts. Traces with
one ``sessionId`` are one session, else each trace is. Its reward is its score: the only one, or one
of a usual name, and of several of one name the latest; a score of an observation belongs to that
call. Scores that are text are not rewards. The task is a field of the trace or its metadata with a
usual name, else the prompt.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import GROUPS, usual
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

TIMES = ("timestamp", "updatedAt", "createdAt")
"""When a score was given; of several of one name, the latest counts."""
KINDS: dict[str, Kind] = {"GENERATION": "call", "AGENT": "agent", "TOOL": "tool"}


def split(record: Record) -> list[Record]:
    """The trace alone, and each observation, with the scores of each."""
    if record.get("subject"):
        record = _named(record)
    nested = record.get("observations").items()
    trace = (record.get("traceId") or record.get("id")).name()
    is_span = bool(record.get("traceId") and record.get("startTime"))
    is_score = bool(record.get("traceId")) and not is_span
    whole = {key: value for key, value in record.mapping().items() if key != "observations"}
    name = record.get("id").optional_name() or ""
    whole |= {"trace": trace, "span": name if is_span else "", "key": f"{trace}/{name}"}
    whole["scores"] = [record.value] if is_score else []
    parts = [record.of(whole)]
    owners: dict[str | None, Any] = {}
    for each in nested:
        name = each.get("id").name()
        own = {"trace": trace, "span": name, "key": f"{trace}/{name}", "scores": []}
        parts.append(each.of({**each.mapping(), **own}))
        owners[name] = parts[-1].value
    for score in record.get("scores").items():
        owner = owners.get(score.get("observationId").optional_name() or "", whole)
        owner["scores"].append(score.value)
    return parts


def _named(score: Record) -> Record:
    """A score of the newer API, whose ``subject`` says what it is of, in the older form."""
    subject, own = score.get("subject"), score.get("id").optional_name()
    kind, name = subject.get("kind").optional_name() or "", subject.get("id").name()
    names: dict[str, dict[str, str | None]] = {
        "trace": {"traceId": name},
        "observation": {"traceId": subject.get("traceId").optional_name(), "observationId": name},
        "session": {"traceId": own, "sessionId": name},
    }
    if kind not in names:
        raise subject.get("kind").error(
            f"it must be one of {', '.join(names)}", hint="leave others out"
        )
    return score.of({**score.mapping(), **names[kind]})


def session(record: Record) -> Hashable:
    """The session, which the trace names."""
    return record.get("sessionId").optional_name()


def trace(record: Record) -> Hashable:
    """The trace."""
    return str(record.get("trace").value)


def scores(record: Record) -> Iterator[Score]:
    """The scores of an observation, of a trace, or on a line of its own; none that is text."""
    for each in record.get("scores").items():
        value, own = each.get("value"), each.get("observationId").optional_name()
        observation = own or record.get("span").optional_name()
        name = trace(record) if not observation else f"{trace(record)}/{observation}"
        given = next(filter(None, (each.get(time) for time in TIMES)), each.get(TIMES[0]))
        if not isinstance(value.value, str | None):
            yield Score(each.get("name").name(), value, name, seconds(given))


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The calls of a session."""
    names = (session(record) for record in records)
    yield from from_spans(
        [_span(record) for record in records],
        lambda place: _chat(records[place]),
        str(next(filter(None, names), trace(records[0]))),
        one_group(usual(record, GROUPS) for record in records if not record.get("span").value),
    )


def _span(record: Record) -> Span:
    prefix, parent = record.get("trace").text(), record.get("parentObservationId")
    failed = record.get("level").value == "ERROR" and not record.get("output")
    kind = "" if failed else KINDS.get(str(record.get("type").value), "")
    return Span(
        id=f"{prefix}/{record.get('span').text()}",
        parent=f"{prefix}/{parent.name()}" if parent else None,
        kind=kind,
        time=seconds(record.get("startTime")),
        name=None if kind == "call" else record.get("name").optional_name(),
    )


def _chat(record: Record) -> Chat:
    return chat(record.get("input"), "user"), responses(record.get("output"))


RECORDS = (
    "observations:list id | "
    "!spanId traceId type startTime | "
    "!spanId traceId name value source | "
    "!spanId subject name value source"
)
FORMAT = Format(
    "langfuse",
    "Langfuse traces",
    RECORDS,
    read,
    example="sessions/langfuse.jsonl",
    session=session,
    trace=trace,
    split=split,
    scores=scores,
    identity="key",
)
