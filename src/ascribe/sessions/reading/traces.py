"""What formats share in which several records, or parts of one, are the calls of a session."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading.chats import converted
from ascribe.sessions.reading.names import prompt_name
from ascribe.sessions.reading.records import Message, Record, parse
from ascribe.steps.errors import InputError
from ascribe.steps.problems import TableError

SHORTEST_LIMIT, LONGEST_PATHS = 10_000, 50
"""Nodes of all paths of a tree, and times its nodes: each path repeats what it shares."""
Kind: TypeAlias = Literal["call", "agent", "tool", ""]


@dataclass(frozen=True)
class Span:
    """A part of a trace.

    Attributes:
        id: its name, unique in its session.
        parent: the name of the span around it, if there is one.
        kind: a model call, the work of an agent or of a tool, or something else.
        time: when it began, in seconds.
        name: the name of the agent or the tool; of a call, that of its agent, if known.
        called: of a tool, the id of the call that it answers.
    """

    id: str
    parent: str | None
    kind: Kind
    time: float | None
    name: str | None = None
    called: str | None = None


Chat: TypeAlias = tuple[Sequence[Message], Sequence[tuple[Message, bool]]]
"""What a call was shown, and each response with whether a limit cut it."""


def from_spans(
    spans: Sequence[Span], chat: Callable[[int], Chat], name: str, group: str | None
) -> Iterator[Conversation]:
    """The calls of a session, each with its agent: the nearest agent or tool around it.

    The first call of an agent follows the call that started it: the one that called the tool around
    it, else the latest one of the agent around it.

    Raises:
        ValueError: if spans are inside of each other in a circle.
    """
    numbers = {span.id: number for number, span in enumerate(spans)}
    parents = [numbers.get(span.parent, -1) if span.parent else -1 for span in spans]
    acting = nearest(parents, [span.kind in ("agent", "tool") for span in spans])
    around = nearest(parents, [span.kind != "" for span in spans])
    times = [span.time or 0.0 for span in spans]
    callers: dict[str, str] = {}  # of the calls of tools, by their ids
    done: defaultdict[int, list[int]] = defaultdict(list)  # the calls of each agent
    calls = []
    for place in sorted(range(len(spans)), key=times.__getitem__):
        span, agent = spans[place], acting[place]
        if span.kind != "call":
            continue
        parent = None
        if agent >= 0 and not done[agent]:
            outer = around[agent]
            tools = [spans[each].called for each in (agent, outer) if each >= 0]
            known = [callers[each] for each in tools if each in callers]
            before = done[acting[agent]] if outer >= 0 or spans[agent].kind == "tool" else []
            last = bisect_right(before, times[agent], key=times.__getitem__)
            latest = before[max(last - 1, 0) : last]
            inside = [outer] if outer >= 0 and spans[outer].kind == "call" else []
            parent = next(iter((*known, *(spans[each].id for each in (*inside, *latest)))), None)
        done[agent].append(place)
        shown, responses = chat(place)
        for choice, (response, cut) in enumerate(responses):
            for each in response.get("tool_calls", ()):
                callers[each["id"]] = span.id
            calls.append(
                Conversation(
                    group="",
                    trajectory="",
                    messages=[*shown, response],
                    context=len(shown),
                    id=f"{span.id}/{choice}" if choice else span.id,
                    parent=parent,
                    time=span.time,
                    agent=span.name or (spans[agent].name if agent >= 0 else None),
                    truncated=cut,
                    truncated_turns=[0] if cut else [],
                    extra={"record": place},
                )
            )
    yield from in_session(calls, name, group)


def in_session(
    calls: Sequence[Conversation], name: str, group: str | None
) -> Iterator[Conversation]:
    """The calls of a session; without a name for the task, the prompt of the first call is it.

    A session without a call is a conversation without a message.
    """
    if not calls:
        yield Conversation(group=group or "", trajectory=name, messages=[])
    if calls and not group:
        first = min(calls, key=lambda each: (each.time or 0.0, len(each.messages)))
        group = prompt_name(first.messages)
    for each in calls:
        yield changed(each, group=group or "", trajectory=name)


def nearest(parents: Sequence[int], wanted: Sequence[bool]) -> list[int]:
    """The nearest node above each node of a forest that is wanted; -1 if there is none.

    Raises:
        ValueError: if the parents form a cycle.
    """
    unknown, current = -3, -2
    found = [unknown] * len(parents)
    for start in range(len(parents)):
        path, node = [], start
        while node >= 0 and found[node] == unknown:
            found[node] = current
            path.append(node)
            node = parents[node]
        if node >= 0 and found[node] == current:
            raise InputError("its parents form a cycle", hint="each must be before it")
        above = -1 if node < 0 else node if wanted[node] else found[node]
        for node in reversed(path):
            found[node] = above
            above = node if wanted[node] else above
    return found


def branches(parents: Sequence[int], sampled: Sequence[bool]) -> list[tuple[list[int], int]]:
    """Each path to a last response, and how many nodes it shares with those before it.

    What follows the last response is in the path, too, unless there are several ways to go on.

    Raises:
        ValueError: if the paths are too long, since each repeats what it shares.
    """
    leading: set[int] = set()  # nodes from which a response is reached
    children: defaultdict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(parents):
        children[parent].append(node)
        above = node if sampled[node] else -1
        while above >= 0 and above not in leading:
            leading.add(above)
            above = parents[above]
    inner = {parents[node] for node in leading}
    seen: set[int] = set()
    paths, length = [], 0
    for last in sorted(leading - inner):
        path, node = [], last
        while len(children[node]) == 1:
            (node,) = children[node]
        while node >= 0:
            path.append(node)
            node = parents[node]
        length += len(path)
        if length > SHORTEST_LIMIT + LONGEST_PATHS * len(parents):
            detail = f"its branches share each node {LONGEST_PATHS} times"
            raise InputError(detail, hint="write one trace for each")
        paths.append((path[::-1], sum(node in seen for node in path)))
        seen.update(path)
    return paths


def seconds(record: Record, *, parts: int = 1) -> float | None:
    """A time in seconds, from a number of parts of one, its text, or a date of ISO 8601."""
    if not isinstance(record.value, str):
        return record.number() / parts if record else None
    text = record.value
    try:
        if text.isdecimal() and len(text) <= 30:
            return int(text) / parts
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise record.error("it must be a number or a date like 2026-01-31T12:00:00Z") from error


def one_group(fields: Iterable[Record]) -> str | None:
    """The task that records of a session name, if any does; it must be one."""
    names = [each for each in fields if each]
    for other in (each for each in names if each.name() != names[0].name()):
        detail = f"{names[0].place()} of the same session names another task"
        raise other.error(detail, hint="give the session one task")
    return names[0].name() if names else None


INSIDE = ("messages", "message", "choices", "generations", "prompts")
"""Where the messages of an input or an output may be."""


def chat(record: Record, role: str) -> list[Message]:
    """The messages of an input or an output: a list of them, one, or text that this role wrote.

    They may be JSON text, and in ``messages``, ``choices`` and so on, or in one more list.
    """
    if isinstance(record.value, str):
        try:
            inside = parse(record)
        except TableError:
            inside = record
        parts = inside.value if isinstance(inside.value, list) else [inside.value]
        if not parts or not all(isinstance(each, dict) and "role" in each for each in parts):
            return [{"role": role, "content": record.value}]
        record = inside
    if isinstance(record.value, dict):
        record = next(filter(None, map(record.get, INSIDE)), record)
    if not isinstance(record.value, list):
        record = record.of([record.value])
    items = record.items()
    if items and isinstance(items[0].value, list):
        items = items[0].items()  # of a batch, the only one
    return converted([_one(each, role) for each in items])


def responses(record: Record) -> list[tuple[Message, bool]]:
    """The responses of an output; what else is in it, such as a result, is no response."""
    if not record:
        raise record.error("the call has no response", hint="leave it out")
    turns = [each for each in chat(record, "assistant") if each["role"] == "assistant"]
    if not turns:
        raise record.error("no message in it is the assistant's", hint="leave the call out")
    return [(each, False) for each in turns]


def _one(record: Record, role: str) -> Record:
    """A message, which may be in a choice or be text alone, with its role."""
    if isinstance(record.value, dict) and record.get("message"):
        record = record.get("message")
    if isinstance(record.value, str):
        return record.of({"role": role, "content": record.value})
    if record.mapping().keys() & {"role", "type", "lc"}:
        return record
    return record.of({"role": role, "content": record.get("text").value, **record.value})
