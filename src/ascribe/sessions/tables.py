"""Conversations to tables of steps: every message of the assistant is a step."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, get_args

import numpy as np

from ascribe.sessions.forest import MAIN, Forest, Position, link, message_key
from ascribe.sessions.messages import Conversation, Message, State, action_of, text_of
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe.steps.table import MISSING_STEP, StepTable, read_column


def from_messages(
    conversations: Iterable[Conversation], *, state: State = "observation"
) -> StepTable:
    """A table of steps: the steps of the first conversation, then those of the second, and so on.

    Conversations with the same group and trajectory are one session: see ``link``. Trajectories are
    called ``GROUP/TRAJECTORY``. A session in which no message is the assistant's is one row without
    a state and an action, after all steps, so that its reward counts. A session without any reward
    has NaN at its last step, which ``check`` reports.

    Args:
        conversations: model calls, or whole chats.
        state: what counts as the state of a step.

    Raises:
        ValueError: if a conversation has rewards or keys for another number of steps than it has, a
            session has a final reward that is not the sum of those of its steps, or a message is
            not in OpenAI's form; and if no message of any conversation is the assistant's.

    Example:
        >>> from ascribe.sessions import Conversation, from_messages
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> from_messages([Conversation(group="greet", trajectory="0", messages=chat, reward=1.0)])
        StepTable(1 row, 1 group, 1 trajectory, 1 state)
    """
    conversations = list(conversations)
    for each in conversations:
        each.check()
    if conversations and not any(each.steps for each in conversations):
        raise InputError("no message has the role assistant", hint="check the messages")
    return to_tables(link(conversations), [state])[state]


def to_tables(forest: Forest, choices: Sequence[State]) -> dict[State, StepTable]:
    """A table of linked conversations for each choice of the state, equal in all other columns."""
    for state in choices:
        if state not in get_args(State):
            raise unknown("state", state, get_args(State))
    owners = owners_of_rows(forest.conversations)
    silent = owners[len(forest.decisions) :]
    decisions = [*forest.decisions, *(Position(-1, 0, each.agent or MAIN, None) for each in silent)]
    names = [f"{each.group}/{each.trajectory}" for each in owners]
    last: dict[str, int] = {}
    for row, (name, decision) in enumerate(zip(names, decisions, strict=True)):
        if name not in last or decisions[last[name]].step < decision.step:
            last[name] = row
        if (other := owners[last[name]].group) != owners[row].group:
            raise InputError(
                f"a session of group {other} and one of group {owners[row].group} are both called "
                f"{name}",
                hint="give one of them another name",
            )
    ends = np.zeros(len(owners), dtype=np.bool_)
    ends[list(last.values())] = True
    cut = np.array([each.truncated for each in owners], dtype=np.bool_)
    finished = np.array([each.terminated for each in owners], dtype=np.bool_)
    states, actions = _states(forest, choices)
    for each in choices:
        states[each] += [None] * len(silent)
    columns: dict[str, Any] = {
        "group": [each.group for each in owners],
        "trajectory": names,
        "step": np.array([each.step for each in decisions], dtype=np.int64),
        "state": states[choices[0]],
        "action": [*actions, *[None] * len(silent)],
        "reward": session_rewards(forest.conversations, last),
        "terminated": ends & finished & ~cut,
        "truncated": ends & cut,
    }
    teams = [name for each in forest.conversations for name in each.agents or each.steps]
    agents = [each.agent for each in decisions]
    agents[: len(teams)] = [
        known if isinstance(name, int) else name or MAIN
        for known, name in zip(agents, teams, strict=False)
    ]
    if any(each.agent for each in owners) or set(agents) - {MAIN}:
        columns["agent"] = agents
    tasks = [each.task for each in owners]
    if any(tasks):
        columns["task"] = tasks
    versions = [each.version for each in owners]
    if any(versions):
        columns["version"] = versions
    parents = [MISSING_STEP if d.parent is None else d.parent for d in decisions]
    if set(parents) - {MISSING_STEP}:
        columns["parent"] = np.array(parents, dtype=np.int64)
    table = StepTable.from_columns(columns)
    more = {c: replace(table, state=read_column("state", states[c])) for c in choices[1:]}
    return {choices[0]: table, **more}


def owners_of_rows(conversations: Sequence[Conversation]) -> list[Conversation]:
    """The conversation of each row: of each step, then one of each session without a step."""
    acting = {(each.group, each.trajectory) for each in conversations if each.steps}
    silent = {
        name: each
        for each in conversations
        if (name := (each.group, each.trajectory)) not in acting
    }
    return [each for each in conversations for _ in each.steps] + list(silent.values())


def session_rewards(
    conversations: Sequence[Conversation], last: Mapping[str, int]
) -> Sequence[float]:
    """The reward of each step; ``last`` is the last row of each session.

    Raises:
        ValueError: if rewards fit neither the steps nor the final one, or final ones differ.
    """
    rewards: list[float] = []
    sums: defaultdict[str, float] = defaultdict(float)
    final: dict[str, float] = {}
    for each in conversations:
        name = f"{each.group}/{each.trajectory}"
        values = each.step_rewards()
        if values is not None:
            sums[name] += sum(values)
        rewards += [0.0] * len(each.steps) if values is None else values
        if each.reward is not None and final.setdefault(name, each.reward) != each.reward:
            raise InputError(
                f"conversations of session {name} have different final rewards, {final[name]:g} "
                f"and {each.reward:g}",
                hint="give that of the session, or rewards of its steps",
            )
    for name in final.keys() & sums.keys():
        if not math.isclose(final[name], sums[name], abs_tol=1e-9):
            raise InputError(
                f"session {name} has the final reward {final[name]:g}, but those of its steps sum "
                f"to {sums[name]:g}",
                hint="give either, or add the final one to that of the last step",
            )
    rewards += [0.0] * (max(last.values(), default=-1) + 1 - len(rewards))
    for name in last.keys() - sums.keys():
        rewards[last[name]] = final.get(name, math.nan)
    return rewards


def _states(
    forest: Forest, choices: Sequence[State]
) -> tuple[dict[State, list[str | None]], list[str]]:
    """The states of each step, for each choice, and its action."""
    bounds = [0, *accumulate(len(each.steps) for each in forest.conversations)]
    states: dict[State, list[str | None]] = {each: [None] * bounds[-1] for each in choices}
    actions: list[str] = [""] * bounds[-1]
    by_history = "history" in choices
    shown = [(states[each], each == "tool") for each in choices if each in ("observation", "tool")]
    histories: dict[int, Any] = {}  # of the rows that another conversation follows
    followed = {begins.previous for begins in forest.links if begins}
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)).tolist()
    # A conversation comes after the one that it follows.
    linked = [number for number, begins in enumerate(forest.links) if begins]
    for number in sorted(linked, key=lambda number: forest.decisions[bounds[number]].step):
        each, begins = forest.conversations[number], forest.links[number]
        assert begins is not None
        history, start = blake2b(digest_size=16), 0
        if begins.previous >= 0 and begins.kind != "spawning":
            history = histories[begins.previous].copy()
            start = _new_messages(each, forest.conversations[owner[begins.previous]])
        since: list[Message] = []
        call_order = _call_order(each.messages[start - 1]) if start else {}
        row = bounds[number]
        spoken: dict[str | None, int] = {}
        for place in range(start, len(each.messages)):
            message = each.messages[place]
            if message.get("role") != "assistant":
                since.append(message)
                continue
            name = each.agents[row - bounds[number]] if each.agents else None
            since = _heard(each.messages[spoken.get(name, start) : place]) if name else since
            spoken[name] = place + 1
            if by_history or place >= each.context:
                action = each.action(place)
                observation = [
                    (str(m.get("role")), text_of(m.get("content")))
                    for m in (_in_order(since, call_order) if call_order else since)
                ]
            if by_history:
                history.update(f"[{','.join(map(_pair, observation))}]".encode(errors="replace"))
                if place >= each.context:
                    states["history"][row] = history.hexdigest()
                history.update(_pair(("assistant", action)).encode(errors="replace"))
            if place >= each.context:
                before = row - 1 if row > bounds[number] else begins.previous
                for column, tools in shown:
                    kept = column[before] if before >= 0 else ""  # nothing new was shown
                    column[row] = _shown(observation, tools) if observation else kept
                actions[row] = action
                if row in followed:
                    histories[row] = history.copy()
                row += 1
            call_order, since = _call_order(message), []
        if "key" in choices:
            keys = each.states
            if keys is None or len(keys) != row - bounds[number]:
                raise InputError(
                    f"conversation {each.group}/{each.trajectory} has "
                    f"{('no' if keys is None else len(keys))} states for {row - bounds[number]} "
                    "messages of the assistant",
                    hint="give a key for each",
                )
            states["key"][bounds[number] : row] = keys
    return states, actions


def _heard(messages: Sequence[Message]) -> list[Message]:
    """Messages as an agent of a team is shown them: what others said is a user's."""
    return [
        {"role": "user", "content": f"{each.get('name')}: {action_of(each)}"}
        if each.get("role") == "assistant"
        else each
        for each in messages
    ]


def _pair(texts: tuple[str, str]) -> str:
    """Two texts as canonical JSON, in a fraction of the time that it takes for any value."""
    return f"[{encode_basestring(texts[0])},{encode_basestring(texts[1])}]"


def _new_messages(each: Conversation, before: Conversation) -> int:
    """The place where a context goes on: after its last response, or what both begin with."""
    first = each.steps[0]
    for place in reversed(range(first)):
        if each.messages[place].get("role") == "assistant":
            return place + 1
    same = 0
    while same < min(first, len(before.messages)) and message_key(
        each.messages[same]
    ) == message_key(before.messages[same]):
        same += 1
    return same if same < first else 0


def _call_order(message: Message) -> dict[str, int]:
    """The places of the calls of a message, by their ids."""
    calls = enumerate(message.get("tool_calls") or [])
    return {str(call.get("id")): i for i, call in calls if isinstance(call, Mapping)}


def _in_order(messages: Sequence[Message], call_order: Mapping[str, int]) -> list[Message]:
    """The messages with the results of parallel calls in the order of the calls."""
    places = [call_order.get(str(m.get("tool_call_id", ""))) for m in messages]
    results = [(place, m) for place, m in zip(places, messages, strict=True) if place is not None]
    ordered = iter(sorted(results, key=lambda result: result[0]))
    return [
        m if place is None else next(ordered)[1] for place, m in zip(places, messages, strict=True)
    ]


def _shown(observation: Sequence[tuple[str, str]], tools: bool) -> str:
    """The text of an observation: the results of tools if wanted and there are any, or all."""
    results = [text for role, text in observation if role in {"tool", "function"}]
    if tools and results:
        return "\n\n".join(results)
    return "\n\n".join(f"{role}: {text}" for role, text in observation)
