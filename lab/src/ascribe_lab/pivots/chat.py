"""How traces are written as plain chats, which every policy takes.

Tool calls are written into the assistant's text the way that Hermes and Qwen models write them, one
pair of tags for each::

    <tool_call>
    {"name": "search", "arguments": {"query": "ascribe"}}
    </tool_call>

The output of tools becomes a user message in ``<tool_response>`` tags, and the tools are described
at the end of the system message. ``ascribe.groups.responses`` reads the calls back.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents.clean import neutralise, safe

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Texts that a tool's output must not hold: it could end its part and call a tool itself."""


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a model writes it, arguments in the given order."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    return tag_call(replace_surrogates(call))


def tool_output(text: str) -> str:
    """The output of a tool as a part of a user message."""
    return f"<tool_response>\n{neutralise(safe(text), TAGS)}\n</tool_response>"


def describe_tools(tools: Sequence[str]) -> str:
    """The part of the system message about tools; ``tools`` are the JSON texts of functions."""
    listed = "\n".join(neutralise(safe(tool), (*TAGS, "<tools>", "</tools>")) for tool in tools)
    return (
        "You can call these tools. Each is described by a JSON object:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "To call one, write its name and its arguments as JSON between tags:\n"
        '<tool_call>\n{"name": "...", "arguments": {}}\n</tool_call>'
    )


def tag_call(call: str) -> str:
    """The JSON of a call inside its tags, as a model writes it."""
    # In JSON this character stands in strings alone; escaped, it begins no tag.
    return "<tool_call>\n" + call.replace("<", r"\u003c") + "\n</tool_call>"
