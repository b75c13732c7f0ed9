"""Logs of a gateway, a line for each model call; fields of rllm-model-gateway 0.1.0.

A line has ``messages`` (what the model was shown) and its response, as ``response_message`` or in
one of the usual other places. Lines with the same ``session_id`` in files of one folder are one
session, so that a log may be rotated; different folders are different runs, which may use the same
names again. A line with a ``session_id`` and no response is a chat that holds its responses; those
that several chats of a session repeat count once.

The task is a field with a usual name, or the session's name before its last colon (``task1:0``),
else the prompt.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading import names
from ascribe.sessions.reading.chats import RESPONSES, chat, converted
from ascribe.sessions.reading.names import RUNS, SESSIONS, usual
from ascribe.sessions.reading.nested import asked_in
from ascribe.sessions.reading.records import Message, Record, digest
from ascribe.sessions.reading.scores import Score
from ascribe.sessions.reading.traces import in_session, one_group, seconds


def opened(record: Record) -> Iterator[Record]:
    """A call with what its request has at the top, and its response beside it."""
    value = record.value
    name = next((each for each in ("request", "input") if _asks(value.get(each))), "")
    if not name or isinstance(value.get("messages"), list):
        yield record
        return
    request = value[name] if isinstance(value[name], dict) else {"messages": value[name]}
    yield record.of({**request, **{key: each for key, each in value.items() if key != name}})


def _asks(request: Any) -> bool:
    """Whether a request has messages, or is a list of them."""
    if isinstance(request, list):
        return bool(request) and isinstance(request[0], dict) and "role" in request[0]
    return isinstance(request, dict) and isinstance(request.get("messages"), list)


def session(record: Record) -> Hashable:
    """The folder and the name of the session; None for a line without one."""
    name = _name(record)
    if not name or name.field not in RUNS:
        return (str(record.file.parent), name.name()) if name else None
    return str(record.file.parent), name.name(), asked_in(record.value)


def _name(record: Record) -> Record:
    """The name of the session; a run's where the call has a response, so that it is one of it."""
    named = usual(record, SESSIONS)
    if named or snapshots(record) or record.get("id"):  # then a run may be that of many sessions
        return named
    return usual(record, RUNS)


def scores(record: Record) -> list[Score]:
    """The reward of a call, or of its session, in a field with a usual name."""
    found = usual(record, names.REWARDS)
    return [Score(names.last_name(found), found)] if found else []


def snapshots(record: Record) -> bool:
    """Whether a record is a whole chat, or a state, and no call with its response."""
    return not (_choices(record) or any(map(record.value.get, RESPONSES)))


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The calls of a session; each choice of a response is one."""
    named = _name(records[0])
    if named and named.field in RUNS and len(records) > 1:
        alone = [each for each in records if not _answered(each)]
        if len(alone) > 1:
            what = f"{alone[0].place()} of this {named.field} begins with the same prompt"
            raise alone[1].error(what, hint="give each session an own session_id")
    name = named.name() if named else records[0].short()
    group = one_group(usual(record, names.GROUPS) for record in records)
    calls = []
    converted_before: list[tuple[Any, list[Message]]] = []
    for place, record in enumerate(records):
        trace = record.get("trace_id").optional_name()
        choices = _choices(record)
        ends = [each.get("finish_reason").value for each in (record, *choices)]
        for choice, (messages, context) in enumerate(_chats(record, choices, converted_before)):
            call = Conversation(
                group="",
                trajectory=name,
                messages=messages,
                context=context,
                truncated="length" in ends or usual(record, ("truncated", "is_truncated")).flag(),
                agent=usual(record, ("agent", "agent_name")).optional_name(),
                version=names.version(record),
                times=names.times(record),
                logprobs=digest(_logprobs(record, choices)),
                id=f"{trace}/{choice}" if trace and choice else trace,
                time=seconds(record.get("timestamp")),
            )
            cut = [len(call.steps) - 1] if "length" in ends else []
            extra: dict[str, Any] = {"record": place}
            if not named:
                value = next((each.value for each in scores(record)), None)
                whole = changed(call, reward=value.optional_number() if value else None)
                extra |= names.ends(whole, group)
            elif named.field not in SESSIONS:
                extra["fields"] = {"session": named.field}
            calls.append(changed(call, truncated_turns=cut, extra=extra))
    yield from in_session(calls, name, group or (name.rpartition(":")[0] if named else None))


def _answered(record: Record) -> bool:
    """Whether a call was shown an earlier response."""
    return any(each["role"] == "assistant" for each in chat(record))


def _logprobs(record: Record, choices: Sequence[Record]) -> Any:
    """The log-probabilities of a response, where gateways keep them."""
    places = ("logprobs", "response_logprobs", "completion_logprobs")
    found = [*map(record.value.get, places), names.at(record, "response.logprobs").value]
    return [*found, *(each.get("logprobs").value for each in choices)]


def _choices(record: Record) -> list[Record]:
    """The choices of a response in OpenAI's form."""
    if record.value.get("choices"):
        return record.get("choices").items()
    response = record.value.get("response")
    if isinstance(response, dict) and response.get("choices"):
        return record.get("response").get("choices").items()
    return []


def _chats(
    record: Record, choices: Sequence[Record], before: list[tuple[Any, list[Message]]]
) -> Iterator[tuple[list[Message], int]]:
    """The messages of each choice, and how many of them the call was shown."""
    shown = chat(record, before)
    responses = [each.get("message") or each.get("text") for each in choices]
    if not responses:
        responses = [record.get(name) for name in RESPONSES if record.value.get(name)][:1]
    for response in responses:
        value = response.value
        value = {"content": value} if isinstance(value, str) else response.mapping()
        # A response may lack its role, which goes without saying.
        turn = converted([response.of({"role": "assistant", **value})])
        if turn[-1]["role"] != "assistant":
            raise response.get("role").error(
                "a response must be the assistant's", hint="leave it out"
            )
        yield [*shown, *turn], len(shown)
    if not responses:
        if "response_message" in record.mapping():
            raise record.get("response_message").error(
                "the call has no response", hint="leave it out"
            )
        yield shown, 0
