"""Claude Code session files: a line for each message, with the uuid of the one before it.

The chain of ``parentUuid`` gives the contexts. Where it forks, the user went back; where the
history was compacted, a new context begins with the summary; a sub-agent (``isSidechain``, in the
same file or in ``agent-*.jsonl``) follows the call that started it. The lines of one response are
one message, and the results of its tools are in one place.

The files hold neither the system prompt nor the call that wrote a summary, so the latter is no
decision here. They have no reward and no task: these are given by ``reward`` and ``group``;
without a task, sessions with the same prompt form a group.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading import anthropic
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import GROUPS, usual
from ascribe.sessions.reading.records import Message, Record
from ascribe.sessions.reading.traces import branches, in_session, nearest, one_group, seconds

SYNTHETIC = "<synthetic>"
"""The model of messages that the program wrote itself, such as errors."""


def split(record: Record) -> Sequence[Record]:
    """The line, if it is one of the chain: titles and copies of files are not."""
    if record.get("uuid"):
        return [record]
    if record.get("message"):
        raise record.get("uuid").error("a message needs one, for the next one to refer to")
    return []


def session(record: Record) -> Hashable:
    """The name of the session."""
    return record.get("sessionId").name()


@dataclass
class _Node:
    """Lines of one response, of the results of its tools, or one line of another kind.

    Attributes:
        place: the place of the first line.
        parent: the uuid before it; None at the beginning of a context.
        follows: at such a beginning, the uuid of the context before it, if it is known.
        lines: the messages.
        results: the calls whose results they hold.
    """

    place: int
    parent: str | None
    follows: str | None
    lines: list[Record] = field(default_factory=list)
    results: set[str] = field(default_factory=set)

    def messages(self) -> list[Message]:
        """The messages in OpenAI's form, all blocks of a response in one."""
        if len(self.lines) < 2 or self.results:
            return anthropic.messages(self.lines)
        blocks = [each.value for line in self.lines for each in _blocks(line)]
        first = self.lines[0]
        return anthropic.messages([first.of({**first.mapping(), "content": blocks})])


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The contexts of a session."""
    nodes, numbers = _nodes(records)
    for node in nodes:
        if node.parent is not None and node.parent not in numbers:
            missing = records[node.place].get("parentUuid")
            hint = "give all files of the session"
            raise missing.error("no line of the files given has this uuid", hint=hint)
    parents = [-1 if node.parent is None else numbers[node.parent] for node in nodes]
    nearest(parents, [False] * len(nodes))  # refuses cycles
    messages = [node.messages() for node in nodes]
    sampled = [any(each["role"] == "assistant" for each in turn) for turn in messages]
    spawns = _spawns(records)
    owners: dict[int, tuple[str, int]] = {}  # the context and the step of each node
    calls, follows = [], []
    for path, shared in branches(parents, sampled):
        name, step = records[nodes[path[-1]].place].get("uuid").name(), -1
        for number in path[shared:]:
            step += sampled[number]
            owners[number] = name, step
        start, first = nodes[path[0]], records[nodes[path[0]].place]
        before, agent = start.follows, None
        if first.get("isSidechain").flag():
            texts = [each["content"] for each in messages[path[0]][:1]]
            keys = [first.get("agentId").optional_name(), *texts]
            spawn = next((spawns[key] for key in keys if key in spawns), (None, None))
            before, agent = before or spawn[0], spawn[1] or "sub-agent"
        shown = [each for node in path[:shared] for each in messages[node]]
        written = [each for node in path[shared:] for each in messages[node]]
        decisions = [node for node in path[shared:] if sampled[node]]
        ends = [nodes[node].lines[-1].get("stop_reason").value for node in decisions]
        calls.append(
            Conversation(
                group="",
                trajectory="",
                messages=[*shown, *written],
                context=len(shown),
                agent=agent,
                id=name,
                time=seconds(records[nodes[path[shared]].place].get("timestamp")),
                truncated=ends[-1] == "max_tokens",
                truncated_turns=[turn for turn, end in enumerate(ends) if end == "max_tokens"],
                extra={"record": nodes[decisions[-1]].place},
            )
        )
        follows.append(None if shared else before)
    for place, uuid in enumerate(follows):
        if uuid is not None and numbers.get(uuid) in owners:
            parent, step = owners[numbers[uuid]]
            calls[place] = changed(calls[place], parent=parent, parent_step=max(step, 0))
    group = one_group(usual(record, GROUPS) for record in records)
    yield from in_session(calls, records[0].get("sessionId").name(), group)


def _nodes(records: Sequence[Record]) -> tuple[list[_Node], dict[str, int]]:
    """The nodes, and the node of each uuid."""
    nodes: list[_Node] = []
    numbers: dict[str, int] = {}
    responses: dict[str, int] = {}
    answers: dict[int | None, int] = {}
    for place in _in_order(records):
        record = records[place]
        uuid, kind = record.get("uuid").name(), record.get("type").text()
        parent, message = record.get("parentUuid").optional_name(), record.get("message")
        said = kind in ("user", "assistant") and message.get("model").value != SYNTHETIC
        name = message.get("id").optional_name() if said and kind == "assistant" else None
        results = {
            each.get("tool_use_id").name()
            for each in (_blocks(message) if said and kind == "user" else ())
            if isinstance(each.value, dict) and each.get("type").value == "tool_result"
        }
        # Results of parallel calls stand beside each other, after the line with their call.
        asked = numbers.get(parent or "")
        number = responses.get(name or "")
        if results and asked in answers and not nodes[answers[asked]].results & results:
            number = answers[asked]
        if number is None:
            number = len(nodes)
            follows = record.get("logicalParentUuid").optional_name() or parent
            above = records[nodes[asked].place] if asked is not None else record
            cut = record.get("isCompactSummary").flag() and not _is_boundary(above)
            side = record.get("isSidechain").flag() and not above.get("isSidechain").flag()
            parent = None if cut or side or _is_boundary(record) else parent
            nodes.append(_Node(place, parent, follows if parent is None else None))
        if name:
            responses[name] = number
        if results and asked is not None:
            answers.setdefault(asked, number)
        numbers[uuid] = number
        nodes[number].lines += [message] if said else []
        nodes[number].results |= results
    return nodes, numbers


def _in_order(records: Sequence[Record]) -> list[int]:
    """The places of the records, each after the one that it names as its parent."""
    places = {record.get("uuid").name(): place for place, record in enumerate(records)}
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(records)):
        path, place = [], start
        while place >= 0 and place not in seen:
            seen.add(place)
            path.append(place)
            place = places.get(records[place].get("parentUuid").optional_name() or "", -1)
        order += reversed(path)
    return order


def _is_boundary(record: Record) -> bool:
    return bool(record.get("subtype").value == "compact_boundary")


def _blocks(message: Record) -> list[Record]:
    """The blocks of a content, which may be text."""
    inside = message.get("content")
    if isinstance(inside.value, str):
        return [inside.of({"type": "text", "text": inside.value})]
    return inside.items()


def _spawns(records: Sequence[Record]) -> dict[str | None, tuple[str, str | None]]:
    """The uuid of the call and the kind of sub-agent, by its id and by its prompt."""
    calls: dict[Any, tuple[str, str | None]] = {}
    spawns: dict[str | None, tuple[str, str | None]] = {}
    for record in records:
        blocks = [each for each in _blocks(record.get("message")) if isinstance(each.value, dict)]
        for block in blocks:
            inside = block.get("input").value
            if isinstance(inside, dict) and isinstance(inside.get("prompt"), str):
                kind = block.get("input.subagent_type").optional_name()
                spawn = record.get("uuid").name(), kind
                calls[block.get("id").optional_name()] = spawn
                spawns.setdefault(inside["prompt"], spawn)
        result = record.get("toolUseResult")
        if isinstance(result.value, dict) and result.get("agentId"):
            asked = [each.get("tool_use_id").optional_name() for each in blocks]
            for call in (each for each in asked if each in calls):
                spawns[result.get("agentId").name()] = calls[call]
    return spawns


RECORDS = "!traceId type sessionId | !traceId leafUuid | !traceId messageId snapshot"
FORMAT = Format(
    "claude-code",
    "Claude Code sessions",
    RECORDS,
    read,
    session=session,
    split=split,
    identity="uuid",
    unique="message",
)
