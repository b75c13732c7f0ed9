"""ShareGPT: an object with ``conversations`` on each line, turns of ``from`` and ``value``.

``function_call`` turns hold the JSON of a call, or of a list of calls; ``observation`` turns hold
what a tool answered. ``system`` and ``tools`` may stand beside the conversation.
"""

from typing import Any

from ascribe.pivots.faults import TraceFault
from ascribe.pivots.traces.conversation import Conversation, Unreadable, functions
from ascribe.steps.strict_json import loads

KEY = "conversations"

ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "function_call": "call",
    "observation": "tool",
    "tool": "tool",
    "function_response": "tool",
}
"""Who speaks, by the names that are in use."""


def conversation(row: dict[str, Any]) -> Conversation:
    """The trace of one line.

    Raises:
        Unreadable: if there is no right reading.
    """
    turns = row.get(KEY)
    if not isinstance(turns, list) or not turns:
        raise Unreadable(TraceFault.NO_MESSAGES, "conversations is no list, or an empty one")
    found = Conversation(functions(row.get("tools")))
    if isinstance(row.get("system"), str) and row["system"].strip():
        found.system(row["system"])
    for number, turn in enumerate(turns):
        try:
            _say(found, turn)
        except Unreadable as error:
            raise Unreadable(error.fault, f"turn {number}: {error.detail}") from error
    return found


def _say(found: Conversation, turn: Any) -> None:
    if not isinstance(turn, dict):
        raise Unreadable(TraceFault.BAD_MESSAGE, f"it is {type(turn).__name__}")
    text = turn.get("value")
    role = ROLES.get(turn["from"]) if isinstance(turn.get("from"), str) else None
    if role is None:
        raise Unreadable(TraceFault.UNKNOWN_ROLE, f"from {str(turn.get('from'))[:40]!r}")
    if not isinstance(text, str):
        raise Unreadable(TraceFault.BAD_CONTENT, f"a value is {type(text).__name__}")
    if role == "call":
        found.assistant("", _calls(text))
    elif role == "assistant":
        found.assistant(text)
    else:
        {"system": found.system, "user": found.user, "tool": found.tool}[role](text)


def _calls(text: str) -> list[Any]:
    try:
        value = loads(text)
    except ValueError as error:
        raise Unreadable(TraceFault.BAD_TOOL_CALL, f"it is not JSON: {error}") from error
    return value if isinstance(value, list) else [value]
