"""OpenAI's chat format: an object with ``messages`` on each line, tool calls in the messages.

``tools`` (or the older ``functions``) may describe the tools. A message of the assistant with
``weight`` 0 is part of the history and not demonstrated, as in OpenAI's files for fine-tuning.
"""

from typing import Any

from ascribe.pivots.faults import TraceFault
from ascribe.pivots.traces.conversation import Conversation, Unreadable, functions, text_of

KEY = "messages"


def conversation(row: dict[str, Any]) -> Conversation:
    """The trace of one line.

    Raises:
        Unreadable: if there is no right reading.
    """
    messages = row.get(KEY)
    if not isinstance(messages, list) or not messages:
        raise Unreadable(TraceFault.NO_MESSAGES, "messages is no list, or an empty one")
    found = Conversation(functions(row.get("tools", row.get("functions"))))
    for number, message in enumerate(messages):
        try:
            _say(found, message)
        except Unreadable as error:
            raise Unreadable(error.fault, f"message {number}: {error.detail}") from error
    return found


def _say(found: Conversation, message: Any) -> None:
    if not isinstance(message, dict):
        raise Unreadable(TraceFault.BAD_MESSAGE, f"it is {type(message).__name__}")
    role, text = message.get("role"), text_of(message.get("content"))
    if role in ("system", "developer"):
        found.system(text)
    elif role == "user":
        found.user(text)
    elif role in ("tool", "function"):
        found.tool(text)
    elif role == "assistant":
        found.assistant(text, _calls(message), demonstrated=message.get("weight") != 0)
    else:
        raise Unreadable(TraceFault.UNKNOWN_ROLE, f"the role {str(role)[:40]!r}")


def _calls(message: dict[str, Any]) -> list[Any]:
    calls, old = message.get("tool_calls"), message.get("function_call")
    if calls is None:
        return [] if old is None else [old]
    if not isinstance(calls, list):
        raise Unreadable(TraceFault.BAD_TOOL_CALL, "tool_calls is no list")
    return calls
