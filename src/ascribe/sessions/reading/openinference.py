"""Attributes of OpenInference: ``llm.input_messages.0.message.role`` and so on, and evaluations."""

import re
from typing import Any

from ascribe.sessions.reading.records import Message, Record, message

SCORE = re.compile(r"(\w+\.)?evaluations\.\d+\.evaluation\.score")
ROLES = {"tool-call": "assistant", "tool-response": "tool"}
"""Roles of smolagents."""
DEEPEST = 12
"""Dots in an attribute's name that lead into objects."""


def messages(attributes: Record, prefix: str) -> list[Message]:
    """The messages under a prefix, in OpenAI's form."""
    root: dict[str, Any] = {}
    for key, value in attributes.mapping().items():
        if key.startswith(f"{prefix}."):
            *path, last = key.removeprefix(f"{prefix}.").split(".", DEEPEST)
            node = root
            for part in path:
                node = node.setdefault(part, {})
                if not isinstance(node, dict):
                    raise attributes.get(key).error("a value is where it needs an object")
            node[last] = value
    converted = []
    for each in attributes.of(_lists(root), prefix).items():
        inside = each.get("message")
        parts = [part.get("message_content").value for part in inside.get("contents").items()]
        calls = [call.get("tool_call").value for call in inside.get("tool_calls").items()]
        kept = {key: value for key, value in inside.mapping().items() if key != "contents"}
        kept["role"] = ROLES.get(str(kept.get("role")), kept.get("role"))
        kept |= {"content": kept.get("content") or parts, "tool_calls": calls}
        converted.append(message(inside.of(kept)))
    return converted


def scores(attributes: Record) -> dict[str, Record]:
    """The scores of evaluations, of a session or a span, by name."""
    found = {}
    for key in attributes.mapping():
        if SCORE.fullmatch(key):
            name = attributes.get(f"{key.removesuffix('score')}name").optional_name()
            found[name or "score"] = attributes.get(key)
    return found


def _lists(node: Any) -> Any:
    """Objects with the keys 0, 1, 2 and so on as lists; their depth is at most ``DEEPEST``."""
    if not isinstance(node, dict):
        return node
    if all(key.isdecimal() for key in node):
        return [_lists(node[key]) for key in sorted(node, key=lambda key: (len(key), key))]
    return {key: _lists(value) for key, value in node.items()}
