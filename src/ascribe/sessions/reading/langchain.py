"""LangChain messages: as ``messages_to_dict``, ``model_dump`` or ``dumpd`` write them.

They are in the record, or in its ``values``: a state of LangGraph, whose thread is the session.
Contents may be blocks, also Anthropic's. The artifact of a tool is not read: no model is shown it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ascribe.sessions.messages import calls_of
from ascribe.sessions.reading import anthropic
from ascribe.sessions.reading.records import Message, Record, content, tool_call

ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}


_KIND = f"(?i:({'|'.join(ROLES)})(message)?(chunk)?)"
MARKS = (
    "messages.0.lc | messages.0.type=(?i:chat(message)?(chunk)?) | "
    f"messages.0.type={_KIND} !messages.0.role"
)
"""How a format recognises them."""


def are_messages(values: Sequence[Any]) -> bool:
    """Whether the first message has a type of LangChain and no role."""
    first = values[0] if values and isinstance(values[0], dict) else {}
    if "type" not in first:
        return "lc" in first
    kind = _short(str(first["type"]))
    return "lc" in first or kind == "chat" or ("role" not in first and kind in ROLES)


def is_state(record: Mapping[str, Any]) -> bool:
    """Whether a record is a state of LangGraph, with messages in it."""
    values = record.get("values")
    return isinstance(values, dict) and isinstance(values.get("messages"), list)


def messages(records: Sequence[Record]) -> list[Message]:
    """Messages of LangChain's form in OpenAI's."""
    return [each for record in records for each in _message(record)]


def _short(kind: str) -> str:
    """The type of a message, which may be given by the name of its class."""
    return kind.removesuffix("Chunk").removesuffix("Message").lower()


def _message(record: Record) -> list[Message]:
    """A message in OpenAI's form; one with results of a server's tools in it is several."""
    fields, kind = record, record.get("type")
    if record.get("lc"):
        fields = record.get("kwargs")
        names = record.get("id").items() or [record.get("id")]
        kind = fields.get("type") or names[-1]
    elif record.get("data"):
        fields = record.get("data")
    short = _short(kind.text())
    role = fields.get("role").text() if short == "chat" else ROLES.get(short)
    if role not in {*ROLES.values(), "developer"}:
        raise kind.error(f"it must be one of {', '.join(ROLES)}")
    inside, calls = fields.get("content"), _calls(fields) if role == "assistant" else []
    if isinstance(inside.value, list) and role in ("user", "assistant"):
        turn = anthropic.blocks(inside.items(), role, calls)
    else:
        turn = [{"role": role, "content": content(inside)[0]}]
        turn[0] |= {"tool_calls": calls} if calls else {}
    if role == "tool" and (call := fields.get("tool_call_id")):
        turn[0]["tool_call_id"] = call.name()
    if (thought := fields.get("additional_kwargs").get("reasoning_content")).value:
        turn[0]["reasoning_content"] = thought.text()
    if fields.get("example").flag():
        turn = [{**each, "role": "demonstration"} for each in turn]
    return turn


def _calls(fields: Record) -> list[Message]:
    """The calls of a message, and those that LangChain could not read."""
    calls = [
        tool_call(call.get("name").text(), call.get("args").value, call.get("id").value)
        for call in fields.get("tool_calls").items()
    ]
    calls += [
        tool_call(
            call.get("name").optional_name() or "invalid_tool_call",
            call.get("args").value,
            call.get("id").value,
        )
        for call in fields.get("invalid_tool_calls").items()
    ]
    raw = fields.get("additional_kwargs")
    if calls or not raw:
        return calls
    with raw.refusing():
        return [tool_call(*call) for call in calls_of(raw.mapping())]
