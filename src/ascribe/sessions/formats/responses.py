"""Items of OpenAI's Responses API: ``items``, or ``input`` and ``output``, and ``instructions``.

A turn of the model is a run of its items: reasoning, messages and function calls up to the next
output of a function or message of a user. Records with the same ``session_id`` are calls of one
session. What a call was shown is its ``input``; only turns of the ``output`` are its steps. The
format has no text beside a call, but a summary of the reasoning, which is no part of an action.
"""

from collections.abc import Iterator, Sequence

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.items import prompt, turns
from ascribe.sessions.reading.model_calls import scores, session
from ascribe.sessions.reading.names import (
    GROUPS,
    SESSIONS,
    TRAJECTORIES,
    conversation,
    usual,
    with_system,
)
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.traces import in_session, one_group


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The conversations of a session: one, unless it has a record for each call."""
    named = usual(records[0], (*SESSIONS, *TRAJECTORIES))
    group = one_group(usual(record, GROUPS) for record in records)
    calls = []
    for place, record in enumerate(records):
        call = _call(record)
        alone = call.extra if len(records) == 1 else {}
        calls.append(changed(call, extra={**alone, "record": place}))
    yield from in_session(calls, named.name() if named else records[0].short(), group)


def _call(record: Record) -> Conversation:
    if (before := record.get("previous_response_id")).value:
        raise before.error(
            "its input is elsewhere", hint="write the items of the whole conversation"
        )
    if record.get("items"):
        return conversation(record, with_system(record, turns(record.get("items"))))
    context = with_system(record, prompt(record.get("input")))
    output = turns(record.get("output"))
    cut = bool(record.get("incomplete_details"))
    last = sum(each["role"] == "assistant" for each in output) - 1
    return conversation(
        record,
        [*context, *output],
        context=len(context),
        truncated=cut,
        truncated_turns=[last] if cut else [],
    )


RECORDS = "input output.0.type/role | !output items.0.type/role | !input items.0.type/role"
FORMAT = Format(
    "responses",
    "OpenAI Responses",
    RECORDS,
    read,
    example="formats/responses.jsonl",
    session=session,
    scores=scores,
)
