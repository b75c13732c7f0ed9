"""Anthropic messages: contents of blocks, with results of tools in messages of the user.

A message of the assistant is a step, and each ``tool_result`` a message of the role ``tool``. Where
a tool ran on the server, the message has its result, too: what was written after it is a step of
its own. Thoughts are no part of an action; those that are encrypted are left out.
"""

import re
from collections.abc import Sequence
from typing import Any

from ascribe.sessions.messages import calls_of
from ascribe.sessions.reading.records import (
    Message,
    Record,
    canonical,
    content,
    message,
    tool_call,
)

CALL = re.compile(r"(\w+_)?tool_use|server_tool_call")  # the latter is LangChain's name
RESULT = re.compile(r"(\w+_)?tool_result")
THOUGHTS = ("thinking", "redacted_thinking")
BLOCKS = "|".join((CALL.pattern, RESULT.pattern, *THOUGHTS))
"""Types of blocks that OpenAI's messages do not have."""
REPEATED = ("tool_use", "tool_call", "invalid_tool_call", "function_call", "input_json_delta")
"""Blocks that repeat calls which stand beside the content."""


def are_messages(values: Sequence[Any]) -> bool:
    """Whether a message has a block that OpenAI's do not have."""
    kinds = {
        str(block.get("type"))
        for each in values
        if isinstance(each, dict) and isinstance(inside := each.get("content"), list)
        for block in inside
        if isinstance(block, dict)
    }
    return any(re.fullmatch(BLOCKS, kind) for kind in kinds)


def messages(records: Sequence[Record]) -> list[Message]:
    """Messages of Anthropic's form in OpenAI's."""
    converted: list[Message] = []
    for record in records:
        role, inside = record.get("role").value, record.get("content")
        if role not in ("user", "assistant") or not isinstance(inside.value, list):
            converted.append(message(record))
            continue
        with record.refusing():
            calls = [tool_call(*call) for call in calls_of(record.mapping())]
        converted += blocks(inside.items(), role, calls)
    return converted


def blocks(records: Sequence[Record], role: str, calls: Sequence[Message] = ()) -> list[Message]:
    """The messages of one content: a result of a tool is one, what is around it another.

    ``calls`` stand beside the content, which may repeat them.
    """
    converted: list[Message] = []
    parts: list[Record] = []
    for block in records:
        kind = _kind(block)
        if RESULT.fullmatch(kind):
            converted += [_message(parts, role)] if parts else []
            parts = []
            call = block.get("tool_use_id") or block.get("tool_call_id")
            text = _result(block.get("content") or block.get("output"))
            name = call.optional_name() or ""
            converted.append({"role": "tool", "content": text, "tool_call_id": name})
        elif not calls or kind not in REPEATED:
            parts.append(block)
    if parts or calls or not converted:
        converted.append(_message(parts, role, calls))
    return converted


def _kind(block: Record) -> str:
    return "text" if isinstance(block.value, str) else block.get("type").text()


def _message(parts: Sequence[Record], role: str, more: Sequence[Message] = ()) -> Message:
    """Blocks between two results as one message, with more calls."""
    calls, texts, thoughts = [], [], []
    for block in parts:
        kind = _kind(block)
        if CALL.fullmatch(kind):
            if role != "assistant":
                raise block.error(
                    f"a {kind} is the assistant's", hint="write it in a message of its role"
                )
            name, arguments = block.get("name").text(), block.get("input") or block.get("args")
            calls.append(tool_call(name, arguments.value, block.get("id").value))
        elif kind in THOUGHTS:
            thoughts.append(content(block.get("thinking"))[0])
        else:
            text, thought = content(block.of([block.value]))
            texts.append(text)
            thoughts.append(thought)
    turn: Message = {"role": role, "content": "\n".join(texts)}
    if any(thoughts):
        turn["reasoning_content"] = "\n".join(filter(None, thoughts))
    return turn | {"tool_calls": [*calls, *more]} if calls or more else turn


def _result(record: Record) -> str:
    """The text of a tool's result; of another form, its JSON without what is encrypted."""
    values = record.value if isinstance(record.value, list) else [record.value]
    kinds = {str(each.get("type", "text")) for each in values if isinstance(each, dict)}
    if kinds <= {"text", "image", "document"}:
        return content(record)[0]
    return canonical([_without_encrypted(each) for each in values])


def _without_encrypted(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: part for key, part in value.items() if not key.startswith("encrypted_")}
