"""``ToolCall``: an action written as JSON, in the ways that models and servers write it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.agents.agent import Parsed
from ascribe.agents.clean import mend
from ascribe.agents.parsers import AnswerParser, check_longest, in_think
from ascribe.agents.tags import bodies, split_thoughts


@dataclass(frozen=True)
class ToolCall(AnswerParser):
    """A tool call in ``<tool_call>`` tags (Hermes), or as bare JSON (OpenAI's ``tool_calls``).

    Read are ``{"name": ..., "arguments": {...}}``; the same with ``parameters``, as Llama writes,
    or inside ``function``; arguments as an object or as JSON text of one; a list of calls, also
    under ``tool_calls``, of which the first counts. Of several tags the first that holds a call
    counts.

    The action is canonical JSON, ``{"name":...,"arguments":{...}}`` with sorted keys and no spaces:
    calls that mean the same are the same text, and ``ascribe.groups.actions.tool_call`` reads it.

    The JSON is strict: no key twice, no NaN or infinity, no half surrogates.

    Attributes:
        longest: most characters of the JSON.
    """

    longest: int = 65_536

    def __post_init__(self) -> None:
        check_longest(self.longest)

    def _parse(self, text: str) -> Parsed:
        thought, parts = split_thoughts(text)
        tags = bodies(parts, ("tool_call",))
        calls = [body.strip() for _, body in tags.found]
        bare = "\n".join(parts).strip()
        # In whole JSON a tag can only be a part of a string.
        if bare.startswith(("{", "[")) and (not tags.opened or self._is_json(bare)):
            calls = [bare]
        problem = "action_not_closed" if tags.opened else "no_action"
        for number, call in enumerate(calls):
            try:
                return Parsed(self._canonical(call), thought)
            except _NotACall as refusal:
                problem = problem if number else refusal.problem
        return Parsed(None, thought, problem)

    def _render(self, action: str, thought: str | None, /) -> str:
        # In JSON this sign stands in strings alone; escaped, it begins no tag.
        call = action.replace("<", r"\u003c")
        return f"{in_think(thought)}<tool_call>\n{call}\n</tool_call>"

    def _is_json(self, text: str) -> bool:
        try:
            return len(text) <= self.longest and _loads(text) is not None
        except (ValueError, RecursionError):
            return False

    def _canonical(self, call: str) -> str:
        if not call:
            raise _NotACall("empty_action")
        if len(call) > self.longest:
            raise _NotACall("action_too_long")
        try:
            name, arguments = _name_and_arguments(_loads(call))
            action = f'{{"name":{_dumps(name)},"arguments":{_dumps(arguments)}}}'
        except (ValueError, RecursionError):
            raise _NotACall("bad_json") from None
        if mend(action) != action:
            raise _NotACall("bad_json")
        return action


class _NotACall(Exception):  # noqa: N818 (named for what is wrong)
    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _name_and_arguments(value: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(value, dict) and "tool_calls" in value:
        value = value["tool_calls"]
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise _NotACall("not_a_call")
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _loads(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise _NotACall("not_a_call")
    return name, arguments


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)


def _dumps(value: Any) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _NotACall("duplicate_key")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
