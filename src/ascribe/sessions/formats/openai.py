"""Chats with a list of ``messages``: OpenAI's, or those of Anthropic and LangChain.

A record is a whole conversation, with a reward. Which messages it has is seen from themselves.
"""

from collections.abc import Iterator, Sequence

from ascribe.sessions.formats import anthropic, langchain
from ascribe.sessions.formats.chats import conversation, with_system
from ascribe.sessions.formats.records import Message, Record, message
from ascribe.sessions.messages import Conversation

RESPONSES = ("response_message", "response", "choices", "completion", "output")


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one record."""
    messages = chat(record)
    for response in (each for each in map(record.get, RESPONSES) if each.value):
        raise response.error("a response beside the messages; read the file with --from gateway")
    yield conversation(record, messages)


def chat(record: Record) -> list[Message]:
    """The messages of a record, or of its ``values``, with the system prompt beside them."""
    state = record.get("values") if langchain.is_state(record.mapping()) else record
    return with_system(record, converted(state.get("messages").items(required=True)))


def converted(records: Sequence[Record]) -> list[Message]:
    """Messages in OpenAI's form."""
    values = [each.value for each in records]
    if langchain.are_messages(values):
        return langchain.messages(records)
    if anthropic.are_messages(values):
        return anthropic.messages(records)
    return [message(each) for each in records]
