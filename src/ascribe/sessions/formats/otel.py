"""OpenTelemetry spans of generative AI, and those of OpenInference.

A record is a span (a line, as exporters to a file or the console write them), or a batch of them in
OTLP JSON. Spans that are model calls (operation ``chat``, ``generate_content`` or
``text_completion``; kind ``LLM``) are read; those of agents and tools say who acts, and which call
started whom. The messages are in the attributes, or in those of an event.

A session is a conversation (``gen_ai.conversation.id``, ``session.id``), else a trace. Its reward
is an evaluation (``gen_ai.evaluation.result``, or one of OpenInference), its task an attribute with
a usual name. Few-shot examples in a prompt are not told apart from responses.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading import openinference
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import GROUPS
from ascribe.sessions.reading.records import (
    Message,
    Record,
    canonical,
    content,
    message,
    parse,
    tool_call,
)
from ascribe.sessions.reading.scores import Score
from ascribe.sessions.reading.traces import Chat, Kind, Span, from_spans, seconds

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("chat", "generate_content", "text_completion", "LLM"), "call"),
    **dict.fromkeys(("invoke_agent", "AGENT"), "agent"),
    **dict.fromkeys(("execute_tool", "TOOL"), "tool"),
}
"""Operations, and kinds of OpenInference."""
OPERATIONS = ("gen_ai.operation.name", "openinference.span.kind")
AGENT_NAMES = ("gen_ai.agent.name", "agent.name")
SESSIONS = ("gen_ai.conversation.id", "session.id")
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
SCORE, SCORE_NAME = "gen_ai.evaluation.score.value", "gen_ai.evaluation.name"
EMPTY = (
    "the span of a call has none; record contents, for instance with "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
)


def split(record: Record) -> Iterator[Record]:
    """The spans of a record, in one form."""
    if not record.get("resourceSpans") and not record.get("spans"):
        yield _span(record)
    nested = record.get("spans").items()[::-1]
    while nested:
        span = nested.pop()
        yield _span(span)
        nested += span.get("child_spans").items()[::-1]
    for resource in record.get("resourceSpans").items():
        for scope in resource.get("scopeSpans").items():
            yield from map(_span, scope.get("spans").items())


def _span(record: Record) -> Record:
    """A span with the same keys whoever wrote it, and its attributes as an object."""
    if record.get("span_attributes"):
        return _nested(record)
    ids = record if record.get("traceId") else record.get("context")
    old = ids is not record
    start = record.get("start_time" if old else "startTimeUnixNano")
    events = [
        {"name": each.get("name").value, "attributes": _attributes(each.get("attributes"))}
        for each in record.get("events").items()
    ]
    value = {
        "trace": ids.get("trace_id" if old else "traceId").name(),
        "span": ids.get("span_id" if old else "spanId").name(),
        "parent": record.get("parent_id" if old else "parentSpanId").optional_name(),
        "name": record.get("name").optional_name() or "",
        "time": seconds(start, parts=10**9),
        "attributes": _attributes(record.get("attributes")),
        "events": events,
    }
    return record.of(value)


def _nested(record: Record) -> Record:
    """A span with those that it started in ``child_spans``."""
    value: dict[str, Any] = {
        "trace": record.get("trace_id").name(),
        "span": record.get("span_id").name(),
        "parent": record.get("parent_span_id").optional_name(),
        "name": record.get("span_name").optional_name() or "",
        "time": seconds(record.get("timestamp")),
        "attributes": _attributes(record.get("span_attributes")),
        "events": [],
    }
    return record.of(value)


def _attributes(record: Record) -> dict[str, Any]:
    if not isinstance(record.value, list):
        return dict(record.mapping()) if record else {}
    return {each.get("key").text(): _plain(each.get("value")) for each in record.items()}


def _plain(record: Record) -> Any:
    """A value of OTLP as one of JSON; the depth of a record is limited."""
    for kind, value in record.mapping().items() if record else ():
        inside = record.get(kind)
        if kind == "arrayValue":
            return [_plain(each) for each in inside.get("values").items()]
        if kind == "kvlistValue":
            return _attributes(inside.get("values"))
        if kind == "intValue":  # 64 bits are text in JSON
            short = isinstance(value, str) and len(value) <= 20 and value.lstrip("-").isdecimal()
            return int(value) if short else value
        return value
    return None


def session(record: Record) -> Hashable:
    """The conversation, if the span names it."""
    return _first(record, SESSIONS).optional_name()


def trace(record: Record) -> Hashable:
    """The trace."""
    return str(record.value["trace"])


def field(record: Record, name: str) -> Record:
    """An attribute."""
    return _first(record, (name,))


def _first(record: Record, names: Sequence[str]) -> Record:
    """The first of these attributes; a null if there is none."""
    attributes = record.value["attributes"]
    name = next((each for each in names if attributes.get(each) is not None), names[0])
    place = f"{record.field}.attributes.{name}".removeprefix(".")
    return Record(attributes.get(name), record.path, record.line, place)


def scores(record: Record) -> list[Score]:
    """The values of the evaluations of a span, by name; of one name the last."""
    found = openinference.scores(record.get("attributes")) | {
        field(place, SCORE_NAME).optional_name() or "score": field(place, SCORE)
        for place in (record, *record.get("events").items())
        if field(place, SCORE)
    }
    return [Score(name, value) for name, value in found.items()]


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The calls of a session."""
    spans = [_description(record) for record in records]
    names = {span.id for span in spans}
    # The task of a session is an attribute of a span around the others, if that has one.
    outer_first = sorted(range(len(spans)), key=lambda place: spans[place].parent in names)
    groups = (_first(records[place], GROUPS) for place in outer_first)
    yield from from_spans(
        spans,
        lambda place: _chat(records[place]),
        str(next(filter(None, map(session, records)), trace(records[0]))),
        next((each.name() for each in groups if each), None),
    )


def _description(record: Record) -> Span:
    value, kind = record.value, KINDS.get(str(_first(record, OPERATIONS).value), "")
    places = (value["attributes"], *(each["attributes"] for each in value["events"]))
    written = any(key.startswith((OUTPUT, "llm.output_messages")) for p in places for key in p)
    if kind == "call" and field(record, "error.type") and not written:
        kind = ""  # it failed, so there is no response
    names = ("gen_ai.tool.name", "tool.name") if kind == "tool" else AGENT_NAMES
    name = _first(record, names).optional_name()
    return Span(
        id=value["span"],
        parent=value["parent"],
        kind=kind,
        time=value["time"],
        name=name or (value["name"].removeprefix("invoke_agent ") if kind == "agent" else None),
        called=field(record, "gen_ai.tool.call.id").optional_name(),
    )


def _chat(record: Record) -> Chat:
    """What a call was shown, and each response with whether it was cut."""
    places = [each.get("attributes") for each in (record, *record.get("events").items())]
    place = next((each for each in places if each.get(OUTPUT)), None)
    reasons = field(record, "gen_ai.response.finish_reasons").value
    ends = reasons if isinstance(reasons, list) else [reasons]
    if place is None:
        responses = openinference.messages(places[0], "llm.output_messages")
        if not responses:
            raise places[0].get(OUTPUT).error(EMPTY)
        shown = openinference.messages(places[0], "llm.input_messages")
        return shown, [(response, "length" in ends) for response in responses]
    written = parse(place.get(OUTPUT)).items(required=True)
    if not written:
        raise place.get(OUTPUT).error(EMPTY)
    shown = [m for each in parse(place.get(INPUT)).items() for m in _messages(each)]
    if system := parse(place.get(SYSTEM)).value:
        value = {"role": "system", "parts": system}
        shown = [*_messages(place.get(SYSTEM).of(value)), *shown]
    cuts = ["length" in [each.get("finish_reason").value, *ends] for each in written]
    return shown, [(_messages(each)[-1], cut) for each, cut in zip(written, cuts, strict=True)]


def _messages(record: Record) -> list[Message]:
    """A message of parts in OpenAI's form; each result of a tool is one of its own."""
    if not record.get("parts"):
        return [message(record)]
    role, texts, thoughts = record.get("role").text(), [], []
    calls, results = [], []
    for part in record.get("parts").items():
        kind, name = part.get("type").text(), part.get("id").value
        if kind == "text":
            texts.append(part.get("content").text())
        elif kind == "reasoning":
            thoughts.append(part.get("content").text())
        elif kind == "tool_call":
            calls.append(tool_call(part.get("name").text(), part.get("arguments").value, name))
        elif kind == "tool_call_response":
            text = canonical((part.get("response") or part.get("result")).value)
            results.append({"role": "tool", "content": text, "tool_call_id": str(name or "")})
        elif kind in ("blob", "file", "uri"):
            texts.append(content(part.of([{**part.mapping(), "type": "file"}]))[0])
        else:
            raise part.get("type").error("a part of this type is not read", hint="leave it out")
    if results and not texts and not calls:
        return results
    value = {"role": role, "content": "\n".join(texts), "tool_calls": calls or None}
    turn = message(record.of(value))
    return [*results, turn | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})]


RECORDS = (
    "context.trace_id context.span_id attributes | traceId spanId attributes | "
    "resourceSpans:list | spans.0.span_attributes"
)
FORMAT = Format(
    "otel",
    "OpenTelemetry spans",
    RECORDS,
    read,
    example="sessions/spans.jsonl",
    session=session,
    trace=trace,
    split=split,
    scores=scores,
    field=field,
    identity="span",
    beside=("*.annotations.json",),
)
