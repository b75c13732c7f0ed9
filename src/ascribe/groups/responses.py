"""Reading model responses: thoughts, tags and tool calls.

Tags are found in one pass: patterns match single tags, never the text between two, which would take
quadratic time on a response of many opening tags. Case does not matter, and white space may precede
the closing bracket, as in XML.

This is the one reader of tool calls. A call is an object with a ``name`` and with ``arguments`` (or
``parameters``), an object or JSON text of one; OpenAI wraps it in ``function``, and several in
``tool_calls``. The action key ``tool_call`` reads one call and ignores keys that it does not know.
Verifiers compare all calls of a response, so they read strictly: an unknown key might hold
arguments.
"""

import json
import re
from ast import literal_eval
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from ascribe.steps.errors import InputError
from ascribe.steps.strict_json import canonical, loads

ARGUMENTS = ("arguments", "parameters")
"""The keys under which models write the arguments of a call."""
LONGEST_CALL = 65_536
"""Characters of the JSON of a first call."""


def tag_bodies(parts: Iterable[str], *names: str) -> tuple[list[tuple[str, str]], int]:
    """The name and body of each tag that is closed and has no such tag inside; the opening tags.

    Each part is searched by itself: a tag that is opened in one is not closed in another.
    """
    bodies: list[tuple[str, str]] = []
    opened = 0
    for part in parts:
        start: re.Match[str] | None = None
        for tag in _tag(names).finditer(part):
            if not tag["close"]:
                start, opened = tag, opened + 1
            else:
                if start is not None and start["name"].lower() == tag["name"].lower():
                    bodies.append((tag["name"].lower(), part[start.end() : tag.start()]))
                start = None
    return bodies, opened


def split_thoughts(text: str) -> tuple[str | None, list[str]]:
    """The first thought, and the parts of the response that are no thought.

    A thought runs from ``<think>`` to the next ``</think>``. If the first of these tags is a
    closing one, the thought runs from the beginning: some chat templates write ``<think>``
    themselves. A thought that is never closed does not count as one.
    """
    thought: str | None = None
    parts: list[str] = []
    end = 0
    start: re.Match[str] | None = None
    for tag in _tag(("think",)).finditer(text):
        if not tag["close"]:
            start = start or tag
        elif start is not None:
            parts.append(text[end : start.start()])
            thought = text[start.end() : tag.start()] if thought is None else thought
            start, end = None, tag.end()
        elif thought is None:
            thought, end = text[: tag.start()], tag.end()
    return None if thought is None else thought.strip(), [*parts, text[end:]]


@lru_cache(maxsize=64)
def _tag(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(?P<close>/?)(?P<name>{'|'.join(names)})\s*>", re.IGNORECASE | re.ASCII)


# Tool calls.


def name_and_arguments(value: Any, *, strict: bool = True) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call in the form of OpenAI, Hermes, Llama or ShareGPT.

    Args:
        value: the call; one of a name alone has no arguments.
        strict: refuse keys other than the name, the arguments, an ``id`` and a ``type``.

    Raises:
        ValueError: if it is no call.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        # Servers put ids and other keys next to ``function``.
        if strict and not value.keys().isdisjoint({"name", *ARGUMENTS}):
            raise InputError("a part of the call stands outside of its function")
        value = value["function"]
    if not isinstance(value, dict):
        raise InputError("a call is an object")
    keys = [key for key in ARGUMENTS if key in value]
    if strict and len(keys) > 1:
        raise InputError("the arguments are given twice")
    if strict and (unknown := sorted(value.keys() - {"name", "id", "type", *ARGUMENTS})):
        raise InputError(f"the key {unknown[0][:40]!r} belongs to no call")
    name, arguments = value.get("name"), value[keys[0]] if keys else {}
    if isinstance(arguments, str):
        if strict and not arguments.strip():
            arguments = "{}"
        try:
            arguments = loads(arguments)
        except ValueError as error:
            raise InputError(f"the arguments are not JSON: {error}") from None
    if not isinstance(name, str) or not name:
        raise InputError("a call has no name")
    if not isinstance(arguments, dict):
        raise InputError("the arguments are not an object")
    return name, arguments


def first_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """The first tool call of a response: in ``<tool_call>`` tags (Hermes), or as bare JSON.

    Of several tags the first that holds a call counts, of a list of calls the first. Calls inside a
    closed thought do not count. Unknown keys are ignored. None if there is no call.
    """
    for body in _call_texts(text)[0]:
        with suppress(ValueError):
            if len(body) <= LONGEST_CALL and (calls := _listed(loads(body))):
                return name_and_arguments(calls[0], strict=False)
    return None


class Call(NamedTuple):
    """A tool call: the name, and the arguments as canonical JSON."""

    name: str
    arguments: str

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as an object."""
        arguments: dict[str, Any] = loads(self.arguments)
        return arguments


def all_calls(text: str) -> tuple[Call, ...] | None:
    """All tool calls of a response, in order; empty if there are none; None if one is malformed.

    Calls stand in ``<tool_call>`` tags, each of them closed, or the whole response is the JSON of
    one call or of a list. Calls inside a closed thought do not count. Unknown keys are refused.
    """
    bodies, opened = _call_texts(text)
    if opened > len(bodies):
        return None
    try:
        values = [loads(body) for body in bodies]
        if bodies and not opened:
            values = _listed(values[0])
        calls = [name_and_arguments(value) for value in values]
    except ValueError:
        return None if opened else ()
    return tuple(Call(name, canonical(equal_numbers(arguments))) for name, arguments in calls)


def written_calls(text: str) -> tuple[Call, ...]:
    """All tool calls of a response, in order, however their arguments are written.

    Unknown keys are ignored, and so are calls that are malformed. Arguments may also be a Python
    literal, or text in no form, which becomes one argument without a name.
    """
    if '"name"' not in text:
        return ()
    found = []
    plain = text.startswith(("{", "[")) and "<" not in text  # most of them; the rest takes longer
    for body in (text,) if plain else _call_texts(text)[0]:
        with suppress(ValueError, RecursionError):
            value, end = _DECODER.raw_decode(body) if len(body) <= LONGEST_CALL else ([], len(body))
            literal, decimal = _LITERAL.search(body), "." in body
            for each in () if body[end:].strip(" \t\n\r") else _listed(value):
                call = each.get("function", each) if isinstance(each, dict) else None
                call = _with_arguments(call)
                if isinstance(call, dict) and isinstance(name := call.get("name"), str) and name:
                    given: Any = call.get("arguments") or call.get("parameters") or {}
                    if literal or not isinstance(given, dict):
                        given = _as_object(given)
                    if decimal:
                        given = equal_numbers(given)
                    found.append(Call(name, canonical(given)))
    return tuple(found)


_DECODER = json.JSONDecoder()
_LITERAL = re.compile(r"""["']\s*[\[{]""")
"""What JSON has in which a text may hold an object or a list."""


def _as_object(arguments: Any) -> dict[str, Any]:
    """The arguments of a call: an object, or JSON, a Python literal or another text."""
    value = _literals(arguments)
    if isinstance(value, dict):
        return {str(key): each for key, each in value.items()}
    return {"": " ".join(value.split()) if isinstance(value, str) else value}


def _literals(value: Any) -> Any:
    """The value with texts that hold an object or a list, in JSON or Python, replaced by it."""
    if isinstance(value, dict):
        return {str(key): _literals(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_literals(each) for each in value]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        for read in (json.loads, literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError), catch_warnings():
                simplefilter("ignore")  # of Python, for escapes that it does not know
                if isinstance(inside := read(value.strip()), dict | list):
                    return _literals(inside)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def readable(action: str) -> str:
    """The action for people: its calls as ``name(key=value)``, all other text as it is written."""
    if action.lstrip().startswith(("{", "[")):
        return _readable_calls(action) or action
    shown, end, start = "", 0, None
    for tag in _tag(("tool_call",)).finditer(action):
        if not tag["close"]:
            start = tag
        elif start is not None and (calls := _readable_calls(action[start.end() : tag.start()])):
            shown += action[end : start.start()] + calls
            start, end = None, tag.end()
    return shown + action[end:]


def _readable_calls(text: str) -> str:
    """The calls of a JSON text; empty if it holds anything else. Unusual names are quoted."""

    def word(name: str) -> str:
        return name if re.fullmatch(r"[\w.-]+", name) else canonical(name)

    try:
        calls = [name_and_arguments(_with_arguments(value)) for value in _listed(loads(text))]
    except ValueError:
        return ""
    return "; ".join(
        f"{word(name)}({', '.join(f'{word(k)}={canonical(v)}' for k, v in arguments.items())})"
        for name, arguments in calls
    )


def _with_arguments(value: Any) -> Any:
    """The call; one of a name and an object ``input`` or ``args`` alone, with OpenAI's names."""
    if isinstance(value, dict) and len(value) == 2 and "name" in value:
        for key in ("input", "args"):
            if isinstance(value.get(key), dict):
                return {"name": value["name"], "arguments": value[key]}
    return value


def _call_texts(text: str) -> tuple[list[str], int]:
    """The JSON of calls, and the number of opening tags; 0 if the response is JSON as a whole."""
    if "<" not in text:  # as most are
        outside = text.strip()
        return [outside] if outside.startswith(("{", "[")) else [], 0
    _, parts = split_thoughts(text)
    bodies, opened = tag_bodies(parts, "tool_call")
    outside = "\n".join(parts).strip()
    # In whole JSON a tag can only be a part of a string.
    if outside.startswith(("{", "[")) and (not opened or _is_json(outside)):
        return [outside], 0
    return [body.strip() for _, body in bodies], opened


def _listed(value: Any) -> list[Any]:
    """The calls of a JSON value: a call, a list of calls, or a list under ``tool_calls``."""
    if isinstance(value, dict):
        value = value.get("tool_calls", [value])
    return value if isinstance(value, list) else []


def _is_json(text: str) -> bool:
    try:
        return loads(text) is not None
    except ValueError:
        return False


def equal_numbers(value: Any) -> Any:
    """The value with 2 for 2.0: JSON has one type of number."""
    if isinstance(value, dict):
        return {name: equal_numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [equal_numbers(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
