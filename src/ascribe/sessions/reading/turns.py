"""Turns in the forms that people use, as messages: roles, steps with actions, teams of agents.

In a team each speaker is an agent.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ascribe.groups.responses import name_and_arguments
from ascribe.sessions.messages import calls_of
from ascribe.sessions.reading import items
from ascribe.sessions.reading.chats import converted
from ascribe.sessions.reading.names import worth
from ascribe.sessions.reading.records import Message, Record, canonical, tool_call
from ascribe.steps.strict_json import loads

ALIASES = {
    **dict.fromkeys(("user", "human", "customer", "client", "instruction", "question"), "user"),
    **dict.fromkeys(("user_message", "user_input", "human_message", "task_start", "task"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "gpt", "model", "chatbot", "llm"), "assistant"),
    **dict.fromkeys(("assistant_message", "aimessage", "agent", "response"), "assistant"),
    **dict.fromkeys(("llm_response", "llm_output", "llm_call", "model_response"), "assistant"),
    **dict.fromkeys(("model_output", "agent_message", "ai_message", "policy"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "environment", "env", "ipython"), "tool"),
    **dict.fromkeys(("tool_result", "tool_response", "function_response", "terminal"), "tool"),
    **dict.fromkeys(("tool_output", "tool_message", "function_result", "env_response"), "tool"),
    **dict.fromkeys(("system", "developer", "demonstration"), "system"),
}
SPEAKERS = (
    *("role", "from", "speaker", "author", "sender", "source", "type", "agent", "name", "event"),
)
CONTENTS = ("content", "value", "text", "message", "body", "utterance", "parts", "output", "data")
ACTION = (
    *("action", "command", "agent_action", "model_action", "tool_call", "tool_calls", "cmd"),
    *(
        "tool",
        "tool_name",
        "act",
        "response",
        "model_response",
        "completion",
        "assistant",
        "output",
    ),
)
ARGUMENTS = (
    *("action_input", "tool_input", "tool_args", "arguments", "args", "parameters", "kwargs"),
    "input",
)
OBSERVATION = (
    *("observation", "obs", "tool_output", "tool_response", "tool_result", "env_response"),
    *("result", "environment", "feedback", "output", "user", "prompt", "state", "response"),
    *("observations", "stdout", "returned", "env_output", "execution_result", "observed", "input"),
)
RESULTS = {*OBSERVATION} - {"environment", "feedback", "user", "prompt", "state", "input"}
"""What a call returned."""
THOUGHT = ("thought", "thoughts", "reasoning", "rationale", "reasoning_content")
SAID = {*CONTENTS, "tool_calls"}
TURN = (*SPEAKERS[:5], *ACTION[:10])
"""Fields of which a turn has one."""
KINDS = ("type", "event", "kind", "event_type", "source")
"""What says the kind of an event, if not who speaks."""
DATA = ("data", "payload", "body")
"""What an event says, if it is an object."""
SPOKEN = {*SPEAKERS, *CONTENTS}
ELSEWHERE = SPOKEN - {"role", "content"}
"""Where messages in a form of their own say who speaks and what."""
NO_AGENT = re.compile(
    r".*(terminal|executor|environment|proxy|human)\w*|user|tool|system|customer|admin", re.I
)
"""Speakers in a team that are no agents."""


def is_turn(value: Any) -> bool:
    """Whether a value looks like a message, or a step with an action."""
    if isinstance(value, list):
        return len(value) == 2 and isinstance(value[1], str)
    if not isinstance(value, dict):
        return False
    spoken = not (value.keys().isdisjoint(SPEAKERS) or SAID.isdisjoint(value))
    return spoken or any(value.get(name) is not None for name in ACTION) or is_event(value)


def is_call(value: Any) -> bool:
    """Whether an entry is a call of a tool by its name, with its arguments and what it returned.

    With an ``input`` it may as well be a call of a model.
    """
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and value["name"].lower() not in ALIASES
        and value.keys().isdisjoint(TURN)
        and not value.keys().isdisjoint(ARGUMENTS[:-1])
        and not value.keys().isdisjoint(RESULTS)
    )


def messages_of(turns: Record) -> list[Message]:
    """The messages of a list of turns."""
    if are_items(turns.value):
        return items.turns(turns)
    messages: list[Message] = []
    said: list[tuple[int, str, str | None]] = []  # place, role, and the name beside it
    unknown = False
    for each in turns.items():
        if isinstance(each.value, list):
            each = _pair(each)  # noqa: PLW2901 (the same turn)
        elif is_event(each.value):
            messages += _event(each)
            continue
        elif is_call(each.value):
            messages += _step(each.of({"tool": each.value["name"], **each.value}))
            continue
        speaker = _speaker(each)
        if speaker is None:
            messages += _step(each)
            continue
        role = ALIASES.get(speaker.lower().replace(" ", "_"))
        called = each.value.get("name")
        name = called if isinstance(called, str) else None
        unknown |= role is None
        if role is None or (role == "assistant" and name is None and speaker != "assistant"):
            name = re.sub(r"\s*\(.*\)$", "", speaker)
        turn = converted([_plain(each, role or "assistant")])
        if role is None or role in ("user", "assistant"):
            said.append((len(messages), role or "", name))
        messages += turn
    for place, name, acts in _team(said, unknown=unknown):
        messages[place] |= {"role": "assistant" if acts else "user", "name": name}
    roles = [each["role"] for each in messages]
    if {*roles} == {"user", "system"} and "system" in roles[roles.index("user") :]:
        # In dialogues with a system, what it says is the response.
        return [e | {"role": "assistant"} if e["role"] == "system" else e for e in messages]
    return [*_with_written_calls(messages)]


RETURNED = "API output: "
"""What tau-bench writes before the result of a call."""


def _with_written_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages, with calls that end a text as ``Action:`` and JSON, and what they returned.

    So tau-bench's agents ``act`` and ``react`` write them; ``respond`` is what they call a reply.
    """
    called = False
    for message in messages:
        text = message.get("content")
        if called and message["role"] == "user" and isinstance(text, str):
            message = {**message, "role": "tool", "content": text.removeprefix(RETURNED)}  # noqa: PLW2901
        called = False
        if message["role"] == "assistant" and isinstance(text, str) and "Action:" in text:
            said, _, written = text.rpartition("Action:")
            with suppress(ValueError):
                name, arguments = name_and_arguments(loads(written))
                called = name != "respond" and not message.get("tool_calls")
        if called:
            yield {**message, "content": said.strip(), "tool_calls": [tool_call(name, arguments)]}
        else:
            yield message


def are_items(turns: Sequence[Any]) -> bool:
    """Whether turns are items of OpenAI's Responses API, of which calls are some."""
    return any(isinstance(e, dict) and e.get("type") == "function_call" for e in turns)


def _team(
    said: Sequence[tuple[int, str, str | None]], *, unknown: bool
) -> Iterator[tuple[int, str, bool]]:
    """The place and the name of what each speaker of a team said, and whether it is an agent."""
    names = {name for _, _, name in said if name}
    roles = {(role, name) for _, role, name in said}
    other = {name for name in names if NO_AGENT.fullmatch(name)}
    single = len(roles) == len({role for role, _ in roles})
    if not names - other:
        return
    if unknown:
        yield from ((place, name, name not in other) for place, role, name in said if name)
    elif len(names) > 1 and all(n for *_, n in said) and (other or not single):
        yield from ((place, str(name), name not in other) for place, _, name in said)
    else:
        yield from ((place, n, True) for place, role, n in said if n and role == "assistant")


def is_event(value: Any) -> bool:
    """Whether a turn says what kind of event it is, and the rest in an object of its own."""
    return (
        isinstance(value, dict)
        and "role" not in value
        and isinstance(_first(value, KINDS), str)
        and isinstance(_first(value, DATA), dict)
        and not _first(value, DATA).keys() & {"content", "role"}
    )


def kind_of(value: Any) -> str:
    """The kind of an event."""
    return str(_first(value, KINDS))


def _first(value: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _event(event: Record) -> list[Message]:
    """What an event says; nothing if its kind is none of a session's turns."""
    role = ALIASES.get(kind_of(event.value).lower())
    data = _first(event.value, DATA)
    if role is None or not data:
        return []
    if role == "assistant" and _first(data, ACTION[:9]) is not None:
        return _step(event.of(data))
    names = (*CONTENTS, *OBSERVATION) if role == "assistant" else (*OBSERVATION, *CONTENTS)
    said = _first(data, names)
    return [{"role": role, "content": canonical(data if said is None else said)}]


def left_out(turns: Record) -> list[str]:
    """The kinds of events that are none of a session's turns."""
    kinds = {kind_of(each) for each in turns.value if is_event(each)}
    return sorted(kind for kind in kinds if kind.lower() not in ALIASES)


def acts(turn: Record) -> bool:
    """Whether a turn has an action, and so is a step."""
    value = turn.value
    if not isinstance(value, dict):
        return bool(value) and ALIASES.get(str(value[0]).lower()) == "assistant"
    if is_call(value):
        return True
    speaker = kind_of(value) if is_event(value) else _speaker(turn)
    return speaker is None or ALIASES.get(speaker.lower().replace(" ", "_")) == "assistant"


def step_rewards(turns: Record, messages: Sequence[Message]) -> list[float | None] | None:
    """The rewards of steps, if they have some and each is a turn."""
    if are_items(turns.value):
        return None
    found = [
        worth(
            _first(each.value, ("reward", "step_reward")) if isinstance(each.value, dict) else None
        )
        for each in turns.items()
        if acts(each)
    ]
    steps = sum(each["role"] == "assistant" for each in messages)
    return found if len(found) == steps and any(each is not None for each in found) else None


def agents_of(messages: Sequence[Message]) -> dict[str, Any]:
    """Who acts, as fields of a conversation: one agent, or that of each step of a team."""
    names = [each.get("name") for each in messages if each["role"] == "assistant"]
    if len(set(names)) > 1:
        return {"agents": names}
    return {"agent": names[0]} if names and names[0] else {}


def _pair(turn: Record) -> Record:
    """A role and a text as a message."""
    role, text = turn.value if len(turn.value) == 2 else (None, None)
    return turn.of({"role": role, "content": text})


def _speaker(turn: Record) -> str | None:
    """Who says a turn; None for a step."""
    value = turn.mapping()
    for name in SPEAKERS:
        said = value.get(name)
        if name == "author" and isinstance(said, dict):
            said = said.get("role")
        known = name in SPEAKERS[:5] or (isinstance(said, str) and said.lower() in ALIASES)
        if known and isinstance(said, str) and not SAID.isdisjoint(value):
            return said
    if isinstance(turn.value.get("message"), dict):
        return _speaker(turn.get("message"))
    kind = str(value.get("type")).lower()
    if "lc" in value or kind.removesuffix("chunk").removesuffix("message") in ALIASES:
        return "ai"
    return None if any(value.get(name) is not None for name in ACTION) else _refuse(turn)


def _refuse(turn: Record) -> str:
    raise turn.error("it is no turn: it has neither a role nor an action")


def _plain(turn: Record, role: str) -> Record:
    """A turn as a message with a role and a content."""
    value = turn.mapping()
    plain = value.get("role") == role and value.keys().isdisjoint(ELSEWHERE)
    if plain and "content" in value and isinstance(value["content"], str | None):
        return turn  # as most are
    if isinstance(value.get("message"), dict) and "content" not in value:
        return _plain(turn.get("message"), role)
    if "lc" in value or ("role" not in value and "data" in value):  # LangChain's
        return turn
    name = next((each for each in CONTENTS if value.get(each) is not None), "content")
    said = value.get(name)
    if isinstance(said, dict) and "parts" in said:
        said = said["parts"]
    if isinstance(said, dict):
        said = said.get("text", canonical(said))
    if isinstance(said, int | float):
        said = canonical(said)
    known = {key: each for key, each in value.items() if key not in SPOKEN}
    return turn.of({**known, "role": role, "content": said})


def _step(step: Record) -> list[Message]:
    """What was done and what was observed, in the order of the fields."""
    value = step.mapping()
    done = next(name for name in ACTION if value.get(name) is not None)
    named = done in ACTION[:10]  # so that what has the name of arguments is no observation
    shows = (name for name in OBSERVATION if name != done and not (named and name in ARGUMENTS))
    seen = next((name for name in shows if value.get(name) is not None), None)
    turn: Message = {"role": "assistant", "content": ""}
    action = value[done]
    arguments = _first(value, ARGUMENTS) if named else None
    if isinstance(action, str) and isinstance(arguments, dict | list):
        turn["tool_calls"] = [tool_call(action, arguments)]
    elif isinstance(action, str):
        turn["content"] = action if arguments is None else f"{action} {canonical(arguments)}"
    else:
        try:
            calls = calls_of({"tool_calls": action if isinstance(action, list) else [action]})
            turn["tool_calls"] = [tool_call(*call) for call in calls]
        except ValueError:
            turn["content"] = canonical(action)
    thought = next((value[n] for n in (*THOUGHT, "text") if isinstance(value.get(n), str)), None)
    if thought:
        turn["reasoning_content"] = thought
    if seen is None:
        return [turn]
    role = "user" if seen in ("user", "prompt") else "tool"
    shown: Message = {"role": role, "content": canonical(value[seen])}
    order = list(value)
    return [turn, shown] if order.index(done) < order.index(seen) else [shown, turn]
