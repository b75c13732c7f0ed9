"""Tool calls as text: how they are written into a chat, and how they are read out of an answer.

A call is written the way that Hermes and Qwen models write it, one pair of tags for each::

    <tool_call>
    {"name": "search", "arguments": {"query": "ascribe"}}
    </tool_call>

So a chat is plain messages that every policy of Ascribe takes, and an action is one text.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ascribe.agents.clean import CHAT_TOKENS, neutralise, replace_surrogates
from ascribe.agents.parsers import ThinkAction
from ascribe.groups.responses import Call, all_calls, split_thoughts

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""What a tool's own answer may not hold: it could end its part and call a tool itself."""


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a model writes it, arguments in the order given."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    # In JSON this sign stands in strings alone; escaped, it begins no tag.
    return "<tool_call>\n" + replace_surrogates(call).replace("<", r"\u003c") + "\n</tool_call>"


@lru_cache(maxsize=4_096)
def calls_in(answer: str) -> tuple[Call, ...] | None:
    """The calls of an answer, in order; none if it makes none; None if one cannot be read."""
    return all_calls(replace_surrogates(answer))


@lru_cache(maxsize=4_096)
def act(answer: str) -> str:
    """What an answer does, in words: the body of its ``<action>`` tag, else all but its thought."""
    found = _ACTION(answer).action
    if found is not None:
        return found
    _, parts = split_thoughts(replace_surrogates(answer))
    return "\n".join(parts).strip()


_ACTION = ThinkAction(longest=1_000_000)


# Chats.


def safe(text: str) -> str:
    """Text of a trace, safe to put into a chat: no chat tokens, no half surrogates."""
    return neutralise(replace_surrogates(text), CHAT_TOKENS)


def response(text: str) -> str:
    """What a tool answered, as a part of a user message."""
    return f"<tool_response>\n{neutralise(safe(text), TAGS)}\n</tool_response>"


def tools_told(tools: Sequence[str]) -> str:
    """What the system message says of tools; ``tools`` are the JSON texts of their functions."""
    listed = "\n".join(neutralise(safe(tool), (*TAGS, "<tools>", "</tools>")) for tool in tools)
    return (
        "You can call these tools. Each is described by a JSON object:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "To call one, write its name and its arguments as JSON between tags:\n"
        '<tool_call>\n{"name": "...", "arguments": {}}\n</tool_call>'
    )
