"""Chats with a list of ``messages``: OpenAI's, or those of Anthropic and LangChain.

A record is a whole conversation, with a reward. Which messages it has is seen from themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading import anthropic, langchain
from ascribe.sessions.reading.names import conversation, with_system
from ascribe.sessions.reading.records import Message, Record, message
from ascribe.steps.hints import option

RESPONSES = ("response_message", "response", "choices", "completion", "output")


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one record."""
    messages = chat(record)
    for response in (each for each in map(record.get, RESPONSES) if each.value):
        how = option("form", "gateway")
        raise response.error("a response beside the messages", hint=f"read the file with {how}")
    yield conversation(record, messages)


def chat(record: Record, read: list[tuple[Any, list[Message]]] | None = None) -> list[Message]:
    """The messages of a record, or of its ``values``, with the system prompt beside them.

    ``read`` holds those of the call before, each with what it became; it gets those of this one.
    Most messages of a call were in the one before it, and are not converted again.
    """
    state = record.get("values") if langchain.is_state(record.mapping()) else record
    found = state.get("messages")
    if read is None:
        return with_system(record, converted(found.items(required=True)))
    same = 0
    if isinstance(found.value, list):
        pairs = zip(found.value, read, strict=False)
        differ = (place for place, (value, known) in enumerate(pairs) if value != known[0])
        same = next(differ, min(len(found.value), len(read)))
    items = found.items(required=True, start=same)
    read[same:] = [(each.value, converted([each])) for each in items]
    return with_system(record, [each for _, turn in read for each in turn])


def converted(records: Sequence[Record]) -> list[Message]:
    """Messages in OpenAI's form."""
    values = [each.value for each in records]
    if langchain.are_messages(values):
        return langchain.messages(records)
    if anthropic.are_messages(values):
        return anthropic.messages(records)
    return [message(each) for each in records]
