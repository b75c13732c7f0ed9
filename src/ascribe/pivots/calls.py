"""Tool calls as text: how they are written into a chat, and how they are read out of an answer.

A call is written the way that Hermes and Qwen models write it, one pair of tags for each::

    <tool_call>
    {"name": "search", "arguments": {"query": "ascribe"}}
    </tool_call>

So a chat is plain messages that every policy of Ascribe takes, and an action is one text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ascribe.agents.clean import CHAT_TOKENS, mend, neutralise
from ascribe.agents.parsers import ThinkAction
from ascribe.agents.tags import bodies, split_thoughts
from ascribe.pivots.lines import canonical, strict

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""What a tool's own answer may not hold: it could end its part and call a tool itself."""

ARGUMENTS = ("arguments", "parameters")
"""What models call the arguments of a call."""

_OPENED = re.compile(r"<tool_call\s*>", re.IGNORECASE | re.ASCII)


class NotACall(ValueError):  # noqa: N818 (named for what is wrong)
    """What should be a tool call is none."""


@dataclass(frozen=True)
class Call:
    """A tool call: the name, and the arguments as canonical JSON."""

    name: str
    arguments: str

    @property
    def values(self) -> dict[str, Any]:
        """The arguments."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a model writes it, arguments in the order given."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    # In JSON this sign stands in strings alone; escaped, it begins no tag.
    return "<tool_call>\n" + mend(call).replace("<", r"\u003c") + "\n</tool_call>"


def name_and_arguments(value: Any) -> tuple[str, dict[str, Any]]:
    """What a call in the form of OpenAI, Hermes, Llama or ShareGPT says.

    Arguments are named ``arguments`` or ``parameters``; a call of a name alone has none. Beside
    these stand at most an ``id`` and a ``type``: what has other keys is some other object, or says
    its arguments in a way that is not known here.

    Raises:
        NotACall: if it is none.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        # Servers put ids and the like of their own beside a function.
        if not value.keys().isdisjoint({"name", *ARGUMENTS}):
            raise NotACall("a part of the call stands outside of its function")
        value = value["function"]
    if not isinstance(value, dict):
        raise NotACall("a call is an object")
    name = value.get("name")
    given = [key for key in value if key in ARGUMENTS]
    if len(given) > 1:
        raise NotACall("the arguments are given twice")
    if others := sorted(value.keys() - {"name", "id", "type", *ARGUMENTS}):
        raise NotACall(f"the key {others[0][:40]!r} belongs to no call")
    arguments = value[given[0]] if given else {}
    if isinstance(arguments, str):
        try:
            arguments = strict(arguments) if arguments.strip() else {}
        except ValueError as error:
            raise NotACall(f"the arguments are not JSON: {error}") from None
    if not isinstance(name, str) or not name:
        raise NotACall("a call has no name")
    if not isinstance(arguments, dict):
        raise NotACall("the arguments are not an object")
    return name, arguments


@lru_cache(maxsize=4_096)
def calls_in(answer: str) -> tuple[Call, ...] | None:
    """The calls of an answer, in order; none if it makes none; None if one cannot be read.

    Calls stand in ``<tool_call>`` tags, every one of them closed, or the whole answer is the JSON
    of one or of a list of them. What stands inside a closed thought is only thought of.
    """
    _, parts = split_thoughts(mend(answer))
    tags = bodies(parts, ("tool_call",)).found
    opened = sum(len(_OPENED.findall(part)) for part in parts)
    if opened > len(tags):
        return None
    try:
        values = [strict(body.strip()) for _, body in tags] or _bare("\n".join(parts).strip())
        return tuple(map(_call, values))
    except ValueError:
        return None if opened else ()


def _bare(text: str) -> list[Any]:
    """The calls that the text as a whole is; a text that is no JSON, or other JSON, makes none."""
    if not text.startswith(("{", "[")):
        return []
    value = strict(text)
    if isinstance(value, dict):
        value = value.get("tool_calls", [value])
    return value if isinstance(value, list) else []


def _call(value: Any) -> Call:
    name, arguments = name_and_arguments(value)
    return Call(name, canonical(same_numbers(arguments)))


def same_numbers(value: Any) -> Any:
    """The value with 2 for 2.0: JSON has one kind of number."""
    if isinstance(value, dict):
        return {name: same_numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [same_numbers(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@lru_cache(maxsize=4_096)
def act(answer: str) -> str:
    """What an answer does, in words: the body of its ``<action>`` tag, else all but its thought."""
    found = _ACTION(answer).action
    if found is not None:
        return found
    _, parts = split_thoughts(mend(answer))
    return "\n".join(parts).strip()


_ACTION = ThinkAction(longest=1_000_000)


# Chats.


def safe(text: str) -> str:
    """Text of a trace, safe to put into a chat: no chat tokens, no half surrogates."""
    return neutralise(mend(text), CHAT_TOKENS)


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
