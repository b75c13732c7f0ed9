"""Langfuse traces, each with its observations and scores, or a line for each of these.

Observations of the type ``GENERATION`` are model calls; those around them say who acts. Traces with
one ``sessionId`` are one session, else each trace is. Its reward is its score: the only one, or one
of a usual name; a score of an observation belongs to that call. Scores that are text are not
rewards. The task is a field of the trace or its metadata with a usual name, else the prompt.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ascribe.sessions.formats.calls import (
    Chat,
    Kind,
    Span,
    chat,
    from_spans,
    one_group,
    responses,
    scored,
    seconds,
)
from ascribe.sessions.formats.chats import GROUPS, usual
from ascribe.sessions.formats.records import Record
from ascribe.sessions.messages import Conversation

KINDS: dict[str, Kind] = {"GENERATION": "call", "AGENT": "agent", "TOOL": "tool"}


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether it is a trace with observations, an observation or a score."""
    keys = record.keys()
    score = {"name", "value", "source"}
    lines = ({"traceId", "type", "startTime"}, {"traceId", *score}, {"subject", *score})
    nested = isinstance(record.get("observations"), list) and "id" in record
    return nested or any(keys >= names and "spanId" not in keys for names in lines)


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
    parts = [replace(record, value=whole)]
    owners: dict[str | None, Any] = {}
    for each in nested:
        name = each.get("id").name()
        own = {"trace": trace, "span": name, "key": f"{trace}/{name}", "scores": []}
        parts.append(replace(each, value={**each.mapping(), **own}))
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
        raise subject.get("kind").error(f"it must be one of {', '.join(names)}; leave others out")
    return replace(score, value={**score.mapping(), **names[kind]})


def session(record: Record) -> Hashable:
    """The session, which the trace names."""
    return record.get("sessionId").optional_name()


def trace(record: Record) -> Hashable:
    """The trace."""
    return str(record.get("trace").value)


def reward(records: Sequence[Record], name: str | None) -> list[Record]:
    """The scores of this name, or a field of the trace."""
    if name and not any(name in _scores(record) for record in records):
        return [record.get(name) for record in records]
    found = scored(records, _scores, name)
    # On a line of its own, a score of an observation belongs to that of the observation.
    places = {(trace(each), each.get("span").value): place for place, each in enumerate(records)}
    for place, record in enumerate(records):
        owner = places.get((trace(record), record.get("observationId").value))
        if found[place] and owner is not None:
            found[owner], found[place] = found[place], replace(record, value=None)
    return found


def _scores(record: Record) -> dict[str, Record]:
    scores = record.get("scores").items()
    values = {each.get("name").name(): each.get("value") for each in scores}
    return {name: each for name, each in values.items() if not isinstance(each.value, str | None)}


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
