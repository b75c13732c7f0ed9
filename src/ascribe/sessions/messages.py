"""Conversations: messages in OpenAI's form, and the actions in them.

The action of a step is its tool calls if it has any, else its text. Parallel calls are one step.
Reasoning is no part of the action: neither ``reasoning_content`` nor what stands in ``<think>``
tags. Call ids take no part either: servers draw them at random, so no state would ever recur.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ascribe.groups.events import reported
from ascribe.groups.responses import (
    ARGUMENTS,
    all_calls,
    equal_numbers,
    name_and_arguments,
    split_thoughts,
)
from ascribe.steps.errors import InputError
from ascribe.steps.problems import one_line
from ascribe.steps.strict_json import canonical, loads, without_nan

State: TypeAlias = Literal["observation", "tool", "history", "key"]
"""What counts as the state of a step.

``observation``: all that the model was shown since its last turn. ``tool``: the results of tools in
it; the whole observation where there are none. ``history``: everything up to the step, as a hash.
``key``: what the caller supplies for each step.
"""

Message: TypeAlias = Mapping[str, Any]
"""A message of OpenAI's chat format."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "demonstration")
TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal")
MEDIA = re.compile("(input_)?(image|audio|video|file)(_url|_file|_pil|_embeds)?|document|data")
"""Types of the parts of a content that are read: texts, and pictures, sounds and files."""
KNOWN = re.compile(
    "role|content|refusal|tool_calls|function_call|annotations|(reasoning|thinking|provider).*|"
    "(.*_)?(id|ids|at|reason|timestamp)|name|type|source|model|function|error|usage|metadata"
)
"""Keys of messages and calls that are read, or say nothing of what was done."""
PLAIN = {
    *("role", "content", "tool_call_id", "reasoning_content", "tool_calls", "function_call", "id"),
    *("refusal", "annotations", "name", "type", "function", "timestamp", "usage", "error"),
}
"""Of these keys, those that most messages and calls have."""
CALLS = re.compile("(tool|function)_?(call|use|invocation)s?|additional_kwargs|parts", re.I)
"""Keys of other formats that hold calls; the last one is Gemini's."""
ADVICE = "write OpenAI messages, with tool_calls and results in the role tool"


@dataclass(kw_only=True)  # frozen ones take four times as long to make
class Conversation:
    """One context with the model's responses in it: a model call, or a whole chat.

    Those with the same group and trajectory are one session: calls, sub-agents, a compacted
    history.

    Attributes:
        group: the task; sessions of one group are compared.
        trajectory: the name of the session, unique within its group.
        messages: OpenAI chat messages with ``role``, ``content``, ``tool_calls``, ``tool_call_id``,
            ``reasoning_content``, as plain data.
        reward: the session's final reward, for its last step. Conversations of a session have the
            same, or None.
        rewards: the reward of each step, if there are such; None counts as 0.
        terminated: whether the environment ended the episode.
        truncated: whether a limit cut the episode; then it does not count as terminated.
        agent: who acts, in a team or as a sub-agent.
        agents: who acts in each step of a team, if the conversation is that of all.
        version: the policy's version.
        states: a key for each step, for ``state="key"``.
        context: how many of the first messages are history alone: what a call was shown, or turns
            that another conversation of the session holds too.
        truncated_turns: numbers of the steps whose response a limit on tokens cut.
        id: a name for the conversation, unique in its session, to which ``parent`` refers.
        parent: the conversation that spawned this one or came before it, if the file says so.
        parent_step: the number of the step in it; by default its last.
        time: when it began, in seconds. Conversations of a session are in the order of their times
            if all have one, else in the order given.
        task: the name of the task, if its benchmark gives it one: attempts at it are compared
            however they begin.
        identity: what names the session in all files of its kind; of two with one, one is a copy.
        times: when its parts were written, as the file says it; and a digest of its
        logprobs: log-probabilities. Two sessions do not have the same.
        crashed: whether the file says that the session crashed.
        excluded: why the session does not count, if the file says so.
        path: the file.
        extra: what else an importer found.

    Example:
        >>> from ascribe.sessions import Conversation
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> Conversation(group="greet", trajectory="0", messages=chat, reward=1.0).steps
        [1]
    """

    group: str
    trajectory: str
    messages: Sequence[Message]
    reward: float | None = None
    rewards: Sequence[float | None] | None = None
    terminated: bool = True
    truncated: bool = False
    agent: str | None = None
    agents: Sequence[str | None] | None = None
    version: str | None = None
    states: Sequence[str | None] | None = None
    context: int = 0
    truncated_turns: Sequence[int] = ()
    id: str | None = None
    parent: str | None = None
    parent_step: int | None = None
    time: float | None = None
    task: str | None = None
    identity: str | None = None
    times: Sequence[str | float] = ()
    logprobs: str = ""
    crashed: bool = False
    excluded: str = ""
    path: Path | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def steps(self) -> list[int]:
        """The places in ``messages`` of the messages that are steps."""
        places = range(self.context, len(self.messages))
        return [place for place in places if self.messages[place].get("role") == "assistant"]

    @cached_property
    def _actions(self) -> dict[int, str]:
        return {}

    def action(self, place: int) -> str:
        """The action of the assistant's message at a place, which is read once."""
        if (known := self._actions.get(place)) is None:
            known = self._actions[place] = action_of(self.messages[place])
        return known

    def check(self, checked: set[int] | None = None) -> None:
        """Raise ``ValueError`` for a message that is not read, with its place.

        ``checked`` has the identities of messages that other conversations share and that were
        checked before; it gets those of this one.
        """
        known = set() if checked is None else checked
        for place, message in enumerate(self.messages):
            if id(message) in known:
                continue
            known.add(id(message))
            try:
                check_form(message)
                text_of(message.get("content"))
            except ValueError as error:
                where = f"conversation {self.group}/{self.trajectory}, message {place}"
                if isinstance(error, InputError):
                    raise error.within(where) from None
                raise InputError(str(error), where) from None

    def step_rewards(self) -> list[float] | None:
        """The reward of each step, if there are such; ``ValueError`` if one is missing."""
        if self.rewards is None or all(reward is None for reward in self.rewards):
            return None
        if len(self.rewards) != len(self.steps):
            raise InputError(
                f"conversation {self.group}/{self.trajectory} has {len(self.rewards)} rewards for "
                f"{len(self.steps)} messages of the assistant",
                hint="give one for each, None where there is none",
            )
        return [0.0 if reward is None else float(reward) for reward in self.rewards]


def changed(conversation: Conversation, **values: Any) -> Conversation:
    """The conversation with other values of some fields; ``replace`` takes ten times as long."""
    copy = object.__new__(Conversation)
    copy.__dict__ = vars(conversation) | values
    if "messages" in values or "context" in values:
        vars(copy).pop("steps", None)
        vars(copy).pop("_actions", None)
    return copy


def check_form(message: Any) -> None:
    """Raise ``ValueError`` for a message in another form, or with calls that are not read."""
    if type(message) is not dict and not isinstance(message, Mapping):
        raise InputError(
            f"it is a {type(message).__name__}, not a mapping", hint="give it as plain data"
        )
    if (role := message.get("role")) not in ROLES:
        raise InputError(f"its role is {role!r}", hint=f"there are: {', '.join(ROLES)}")
    keys, calls = _unknown(message), calls_of(message)
    if keys:
        empty = not calls and role == "assistant" and not action_of(message)
        if calls or not (empty or message.get("content") is None):
            keys = [key for key in keys if CALLS.fullmatch(key)]
    if keys:
        form = ": these are Gemini contents" if "parts" in keys else ""
        raise InputError(f"its {', '.join(keys)} would be left unread{form}", hint=ADVICE)


def _unknown(values: Mapping[str, Any]) -> list[str]:
    """The keys of texts, lists and objects that are not known."""
    if values.keys() <= PLAIN:
        return []
    more = ((key, value) for key, value in values.items() if value and key not in PLAIN)
    keys = [str(key) for key, value in more if isinstance(value, (str, list, Mapping))]
    is_known = [_is_known(key) if len(key) < 40 else KNOWN.fullmatch(key) for key in keys]
    return [one_line(key, 40) for key, known in zip(keys, is_known, strict=True) if not known]


@lru_cache(maxsize=1024)
def _is_known(key: str) -> bool:
    return KNOWN.fullmatch(key) is not None


def calls_of(message: Message) -> list[tuple[str, Any, Any]]:
    """The name, the arguments and the id of each call; ``ValueError`` if one is not read."""
    calls = message.get("tool_calls")
    if not calls:
        calls = [call] if (call := message.get("function_call")) else []
    if not isinstance(calls, list):
        raise InputError(
            f"its tool_calls are a {type(calls).__name__}", hint="give a list of calls"
        )
    return [_read_call(call) for call in calls]


def _plain_call(call: Any) -> tuple[str, Any, Any] | None:
    """A call with a name and arguments, as most are written; None for another one."""
    if type(call) is dict:
        whole = call.get("function") or call
        if type(whole) is dict and type(name := whole.get("name")) is str:
            arguments = whole.get("arguments")
            return (name, arguments, call.get("id")) if name and arguments else None
    return None


def _read_call(value: Any) -> tuple[str, Any, Any]:
    """A call as OpenAI, verifiers and Inspect write it, or JSON text of one."""
    if plain := _plain_call(value):
        return plain
    call = loads(value) if isinstance(value, str) else value
    call = call if isinstance(call, Mapping) else {}
    function = call.get("function")
    whole = {**call, **function} if isinstance(function, Mapping) else call
    name = whole.get("name") or function  # Inspect has the name there
    keys = _unknown(whole) if all(whole.get(key) is None for key in ARGUMENTS) else []
    if keys or not name or not isinstance(name, str):
        there = ", ".join(one_line(key, 40) for key in whole) or "nothing"
        raise InputError(f"a call needs a name and arguments, and has {there}", hint=ADVICE)
    return name, next((whole[key] for key in ARGUMENTS if whole.get(key)), {}), call.get("id")


def action_of(message: Message) -> str:
    """The action of a message of the assistant: its calls as JSON, else its text.

    One call is an object with a name and arguments, several are a list of such.
    """
    if calls := calls_of(message):
        return _written([_call(name, arguments) for name, arguments, _ in calls])
    return action_of_text(text_of(message.get("content")))


def action_of_text(text: str) -> str:
    """The action in a response as text: the calls in it as JSON, else what is no thought of it."""
    if "<" not in text and not (plain := text.strip()).startswith(("{", "[")):
        return plain
    if calls := all_calls(text):
        return _written([_as_json(call.name, call.arguments) for call in calls])
    return "".join(split_thoughts(text)[1]).strip()


def _written(calls: Sequence[str]) -> str:
    return calls[0] if len(calls) == 1 else f"[{','.join(calls)}]"


def _as_json(name: str, arguments: str) -> str:
    """A call as canonical JSON, of which the arguments are."""
    return f'{{"arguments":{arguments},"name":{canonical(name)}}}'


def _call(name: str, arguments: Any) -> str:
    """A call as canonical JSON; arguments that cannot be read stay as written."""
    call = {"name": name, "arguments": arguments}
    try:
        values = equal_numbers(name_and_arguments(call, strict=False)[1])
    except ValueError:
        values = arguments
    parsed = isinstance(arguments, str)  # and then there is no NaN
    return _as_json(name, canonical(values if parsed else without_nan(values)))


def text_of(content: Any) -> str:
    """The text of a message: text, nothing, or parts; of a picture or file, its kind and hash.

    Raises:
        ValueError: for a part that is not read, such as Anthropic's ``tool_use``.
    """
    return content if isinstance(content, str) else split_content(content)[0]


def split_content(content: Any) -> tuple[str, str]:
    """The text of a content, as ``text_of`` returns it, and the reasoning in it."""
    if content is None or isinstance(content, str):
        return content or "", ""
    texts, thoughts = [], []
    for place, part in enumerate(content if isinstance(content, list) else [content]):
        each = {"text": part} if isinstance(part, str) else part
        kind = each.get("type", "text") if isinstance(each, Mapping) else type(each).__name__
        if kind == "reasoning":
            thoughts.append(str(each.get("reasoning") or each.get("summary") or ""))
        elif kind in TEXTS and isinstance(text := each.get("text", each.get(kind)), str):
            texts.append(text)
        elif MEDIA.fullmatch(str(kind)) and isinstance(each, Mapping):
            digest = blake2b(canonical(without_nan(each)).encode(errors="replace"), digest_size=8)
            texts.append(f"[{kind} {digest.hexdigest()}]")
        else:
            shown = one_line(kind, 40)
            raise InputError(
                f"part {place} of the content is {shown!r}, which is not read", hint=ADVICE
            )
    return "\n".join(texts), "\n".join(thoughts)


def errors_at_end(messages: Sequence[Message]) -> list[bool]:
    """Whether each result after the last response reports an error, in the order of its calls."""
    roles = [each["role"] for each in messages]
    if "tool" not in roles or "assistant" not in roles:
        return []
    response = len(roles) - 1 - roles[::-1].index("assistant")
    calls = messages[response].get("tool_calls") or []
    order = {str(each.get("id")): place for place, each in enumerate(calls)}
    after = [each for each in messages[response:] if each["role"] == "tool"]
    after.sort(key=lambda each: order.get(str(each.get("tool_call_id")), 0))
    return [any(reported(f"tool: {text_of(each.get('content'))}")) for each in after]
