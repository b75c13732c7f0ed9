"""ShareGPT conversations, also AgentInstruct's: turns with ``from`` and ``value``.

A ``function_call`` is a step of its own, as JSON with a name and arguments; there is no text beside
it. Turns with ``"loss": false`` are demonstrations.
"""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation, calls_of
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import conversation, with_system
from ascribe.sessions.reading.records import Message, Record, tool_call
from ascribe.steps.strict_json import loads

ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
    "function_response": "tool",
}


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one record."""
    turns = record.get("conversations").items(required=True)
    yield conversation(record, with_system(record, [_message(each) for each in turns]))


def _message(turn: Record) -> Message:
    source, value = turn.get("from").text(), turn.get("value")
    if source not in ROLES:
        raise turn.get("from").error(f"it must be one of {', '.join(ROLES)}")
    message: Message = {"role": ROLES[source], "content": value.text()}
    if source == "function_call":
        with value.refusing():
            parsed = loads(value.text())
            calls = calls_of({"tool_calls": parsed if isinstance(parsed, list) else [parsed]})
        message |= {"content": "", "tool_calls": [tool_call(*call) for call in calls]}
    if message["role"] == "assistant" and turn.get("loss").value is False:
        message["role"] = "demonstration"
    return message


FORMAT = Format(
    "sharegpt",
    "ShareGPT conversations",
    r"conversations.0.from | conversations=\[\]",
    read,
    example="formats/sharegpt.jsonl",
)
