"""The conversations of a session as a forest: which decision led to which context.

A harness leaves model calls behind. The next context may be an *extension* of an earlier one and
its response; it may be *rewritten* (compacted, summarised, old turns dropped); a tool call may
*spawn* a sub-agent with a context of its own; a context may be sampled again (*retry*), or go on in
two ways (*fork*). ``link`` finds these from the contexts, where the file does not say, and keeps
the evidence.

A rewritten context that reads exactly like an earlier one is taken for a retry or a fork: contexts
alone do not tell them apart.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ascribe.groups.responses import name_and_arguments
from ascribe.sessions.messages import Conversation, Message, action_of, calls_of, text_of
from ascribe.steps.arrays import Brief
from ascribe.steps.errors import InputError
from ascribe.steps.problems import Problem, ProblemKind, counted, one_line

Kind: TypeAlias = Literal["start", "extension", "rewriting", "spawning", "retry", "fork"]

SHORTEST_QUOTE, LONGEST_FRAME = 12, 4
"""Characters of a text that shows by standing in a message where a context comes from, and how many
times as long the message may be: short arguments, such as paths, stand in many messages."""
MOST_QUOTES = 64
"""How many of the latest texts are looked for in a context, so that time stays linear."""
STATED = "the file says so"
RESULT = "its last response is a tool's result"
ORDER = "nothing but that it came next"


@dataclass(frozen=True)
class Link:
    """How a conversation begins.

    Attributes:
        kind: how its context came about.
        previous: the row of the decision that it follows; -1 for a start.
        evidence: what shows it.

    Example:
        >>> from ascribe.sessions import Conversation, link
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> link([Conversation(group="greet", trajectory="0", messages=chat)]).links
        [Link(kind='start', previous=-1, evidence='it is the first')]
    """

    kind: Kind
    previous: int = -1
    evidence: str = "it is the first"


class Position(NamedTuple):
    """The position of a decision in its session.

    Attributes:
        previous: the row of the decision before it in its lineage; -1 at a start.
        step: its number in the session. Those of a sub-agent come right after the decision that
            spawned it, those of a branch before the branch that went on.
        agent: who decided.
        parent: the step that spawned its sub-agent or from which its branch forks, or None.

    Example:
        >>> from ascribe.sessions import Conversation, link
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> link([Conversation(group="greet", trajectory="0", messages=chat)]).decisions
        [Position(previous=-1, step=0, agent='main', parent=None)]
    """

    previous: int
    step: int
    agent: str
    parent: int | None


@dataclass(frozen=True, eq=False, repr=False)
class Forest(Brief):
    """Conversations with their links. Rows are decisions, conversation by conversation.

    Attributes:
        conversations: as given, each with ``context`` after the responses that another one holds.
        links: how each conversation begins; None for one without decisions of its own.
        decisions: the position of each decision.
        problems: what is missing or doubtful.

    Example:
        >>> from ascribe.sessions import Conversation, link
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> forest = link([Conversation(group="greet", trajectory="0", messages=chat, reward=1.0)])
        >>> len(forest.conversations), len(forest.decisions), forest.problems
        (1, 1, [])
    """

    conversations: Sequence[Conversation]
    links: Sequence[Link | None]
    decisions: Sequence[Position]
    problems: Sequence[Problem]


def link(conversations: Sequence[Conversation]) -> Forest:
    """The forest of each session: of the conversations with one group and trajectory.

    Raises:
        ValueError: if conversations name each other as parents in a circle, or two have one id.

    Example:
        >>> from ascribe.sessions import Conversation, link
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> link([Conversation(group="greet", trajectory="0", messages=chat)]).links[0].kind
        'start'
    """
    sessions: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(conversations):
        sessions[each.group, each.trajectory].append(number)
    own: list[Conversation] = list(conversations)
    links: list[Link | None] = [None] * len(own)
    parts = {}
    for name, numbers in sessions.items():
        parts[name] = part = _linked([own[number] for number in numbers])
        for number, new, begins in zip(numbers, part.conversations, part.links, strict=True):
            own[number], links[number] = new, begins
    # From rows of a session to those of the whole.
    bounds = [0, *accumulate(len(each.steps) for each in own)]
    decisions: dict[int, Position] = {}
    doubts: defaultdict[ProblemKind, list[tuple[str, int, list[int]]]] = defaultdict(list)
    for name, numbers in sessions.items():
        rows = [row for number in numbers for row in range(bounds[number], bounds[number + 1])]
        for number in numbers:
            if (begins := links[number]) and begins.previous >= 0:
                links[number] = Link(begins.kind, rows[begins.previous], begins.evidence)
        for row, position in zip(rows, parts[name].decisions, strict=True):
            before = rows[position.previous] if position.previous >= 0 else -1
            decisions[row] = Position(before, *position[1:])
        for kind, count, nodes in parts[name].doubts:
            doubts[kind].append(("/".join(name), count, [rows[node] for node in nodes]))
    problems = [_problem(kind, found) for kind, found in doubts.items()]
    return Forest(own, links, [decisions[row] for row in range(bounds[-1])], problems)


class _Linked(NamedTuple):
    """The conversations of a session, with what ``Forest`` has; rows are those of the session."""

    conversations: Sequence[Conversation]
    links: Sequence[Link | None]
    decisions: Sequence[Position]
    doubts: Sequence[tuple[ProblemKind, int, list[int]]] = ()
    """Of each problem how often it is there, and where."""


def _linked(conversations: Sequence[Conversation]) -> _Linked:
    only = conversations[0]
    shown = only.messages[: only.context]
    if len(conversations) == 1 and all(message.get("role") != "assistant" for message in shown):
        count = len(only.steps)
        chain = [Position(step - 1, step, only.agent or MAIN, None) for step in range(count)]
        return _Linked([only], [Link("start") if count else None], chain)
    session = _Session(conversations)
    columns = session.previous, session.step, session.agent, session.parent
    decisions = list(map(Position, *columns))
    return _Linked(session.conversations, session.links, decisions, session.doubts)


DETAILS = {
    ProblemKind.LOST_RESPONSE: "{} in contexts of session {} that no recorded call wrote",
    ProblemKind.REPEATED_CONVERSATION: "{} of session {} that another one holds whole",
    ProblemKind.UNLINKED_CONVERSATION: "{} of session {} without a link to the others",
}


def _problem(kind: ProblemKind, found: Sequence[tuple[str, int, list[int]]]) -> Problem:
    """A problem of several sessions: the name of each, how often it is there, and the rows."""
    thing = "response" if kind is ProblemKind.LOST_RESPONSE else "conversation"
    names = ", ".join(one_line(name, 40) for name, *_ in found[:3])
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    amount = counted(sum(count for _, count, _ in found), thing)
    rows = np.array(sorted({row for *_, rows in found for row in rows}), dtype=np.int64)
    return Problem(kind, DETAILS[kind].format(amount, names + more), rows, len(found))


def message_key(message: Message) -> str:
    """What tells messages apart: role and text, or calls; not call ids, reasoning, outer spaces."""
    role = message.get("role")
    if role == "assistant":
        return f"assistant\0{action_of(message)}"
    # Some harnesses return results of tools in the role of the user.
    return f"{role}\0{text_of(message.get('content')).strip()}"


def _keys(conversations: Sequence[Conversation]) -> list[list[str]]:
    """The keys of all messages; of one that conversations share, made once."""
    keys: dict[int, str] = {}
    for each in conversations:
        for place, message in enumerate(each.messages):
            if id(message) not in keys:
                own = message.get("role") == "assistant"
                key = f"{ASSISTANT}{each.action(place)}" if own else message_key(message)
                keys[id(message)] = key
    return [[keys[id(message)] for message in each.messages] for each in conversations]


MAIN = "main"
ASSISTANT = "assistant\0"
INSTRUCTIONS = ("system\0", "developer\0")
"""How the keys of responses begin, and those of system messages."""


class _Session:
    """One session. Nodes are its decisions, conversation by conversation, from 0."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self.conversations = list(conversations)
        self.doubts: list[tuple[ProblemKind, int, list[int]]] = []
        times = [each.time for each in conversations]
        # Without a time for each, the order given is that of time.
        untimed = None in times
        known = [0.0 if time is None or untimed else time for time in times]
        self.order = sorted(range(len(known)), key=lambda number: (known[number], number))
        self.rank = {number: rank for rank, number in enumerate(self.order)}
        self.keys = _keys(conversations)
        self.prefixes = [_prefixes(keys) for keys in self.keys]
        self._drop_repeats()
        self.places = [each.steps for each in self.conversations]
        self.first = [0, *accumulate(map(len, self.places))]
        self.owner = [number for number, places in enumerate(self.places) for _ in places]
        self.place = [place for places in self.places for place in places]
        nodes = range(len(self.owner))
        self.after = [self.prefixes[n][p + 1] for n, p in zip(self.owner, self.place, strict=True)]
        self.previous = [node - 1 if node > self.first[self.owner[node]] else -1 for node in nodes]
        self.links: list[Link | None] = [None] * len(self.conversations)
        self._find_links()
        self._number_steps()
        self._find_lost()

    def message(self, node: int) -> Message:
        """The response of a decision."""
        return self.conversations[self.owner[node]].messages[self.place[node]]

    def kind(self, node: int) -> Kind:
        """How a decision follows the one before it: in one conversation, by extension."""
        link = self.links[self.owner[node]]
        return link.kind if link and node == self.first[self.owner[node]] else "extension"

    def heads(self, number: int) -> tuple[int, int]:
        """How many messages a context begins with: system messages alone, and with the task."""
        first, system = self.places[number][0], 0
        while system < first and self.keys[number][system].startswith(INSTRUCTIONS):
            system += 1
        return system, min(system + 1, first)

    def set_link(self, number: int, link: Link) -> None:
        """Set how a conversation begins."""
        self.links[number] = link
        self.previous[self.first[number]] = link.previous

    def _drop_repeats(self) -> None:
        """Move ``context`` past the responses of a chat that a call or an earlier chat holds.

        Where a context is stated, as for a call, what comes after it is no repeat: the same context
        may be sampled again with the same response. Nor are sub-agents that one response spawned
        repeats of each other.
        """
        known: dict[int, str | None] = {}  # the stated parent of what holds a response
        repeated = 0
        for number in sorted(self.order, key=lambda number: not self.conversations[number].context):
            each, prefix = self.conversations[number], self.prefixes[number]
            steps = each.steps
            count = 0
            while not each.context and count < len(steps):
                through = prefix[steps[count] + 1]
                if through not in known or (each.parent and each.parent == known[through]):
                    break
                count += 1
            if count:
                repeated += count == len(steps)
                self.conversations[number] = _without_first(each, count)
            known.update(dict.fromkeys((prefix[place + 1] for place in steps), each.parent))
        if repeated:
            self.doubts.append((ProblemKind.REPEATED_CONVERSATION, repeated, []))

    def _find_links(self) -> None:
        after: defaultdict[int, list[int]] = defaultdict(list)
        for number in self.order:
            for node in range(self.first[number], self.first[number + 1]):
                after[self.after[node]].append(node)
        self.written: dict[str, int] = {}  # when each response was first
        for number in reversed(self.order):
            self.written |= {
                self.keys[number][place]: self.rank[number] for place in self.places[number]
            }
        by_id = self._by_id()
        acting = [number for number in self.order if self.places[number]]
        known = {number: self._extension(number, after) for number in acting}
        for number in acting:
            self.set_link(number, known[number] or Link("start"))
        self.settled = [False] * len(self.conversations)
        for number in acting:
            stated = self._stated(number, by_id)
            if stated and known[number] is None:
                self._set_first(number, [stated])
                known[number] = self.links[number]
            self._settle(number)
        earlier = _Earlier(self)
        for number in acting:
            if known[number] is None:
                self._set_first(number, earlier.links(number))
            self._settle(number)
            earlier.add(number)
        callers = self._callers()
        before = -1
        for number in acting:
            if before >= 0 and self.kind(self.first[number]) == "start":
                caller = callers.get(number)
                shown = [] if caller is None else [Link("spawning", caller, RESULT)]
                self._set_first(number, [*shown, Link("spawning", before, ORDER)])
            self._settle(number)
            before = self.first[number + 1] - 1

    def _by_id(self) -> dict[str, int]:
        """The conversations by their ids; ``ValueError`` if their parents form a circle."""
        by_id = {each.id: n for n, each in enumerate(self.conversations) if each.id is not None}
        if len(by_id) < sum(each.id is not None for each in self.conversations):
            raise InputError(
                "two conversations of a session have the same id", hint="give each its own"
            )
        try:
            parents = {name: [self.conversations[n].parent] for name, n in by_id.items()}
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            raise InputError(
                "conversations of a session name each other as parents in a circle",
                hint="give each the one before it",
            ) from error
        return by_id

    def _settle(self, number: int) -> None:
        """Note whether a conversation and all that it follows are in the order of time."""
        before = self.previous[self.first[number]]
        self.settled[number] = before < 0 or (
            self.settled[self.owner[before]] and self.rank[self.owner[before]] < self.rank[number]
        )

    def _set_first(self, number: int, links: Iterable[Link]) -> None:
        """Set the first of these links that does not lead back to the conversation."""
        for link in links:
            node = link.previous
            while node >= 0 and node != self.first[number]:
                owner = self.owner[node]
                if self.settled[owner] and self.rank[owner] < self.rank[number]:
                    node = -1  # nothing before it is later
                else:
                    node = self.previous[node]
            if node < 0:
                self.set_link(number, link)
                return

    def _extension(self, number: int, after: Mapping[int, list[int]]) -> Link | None:
        """The link to the latest decision whose context and response begin this context."""
        keys, prefix = self.keys[number], self.prefixes[number]
        for place in reversed(range(self.places[number][0])):
            if not keys[place].startswith(ASSISTANT):
                continue
            if prefix[place + 1] in after:
                # In the order of time; a later one, if there is none before.
                nodes = after[prefix[place + 1]]
                count = bisect_left(
                    nodes, self.rank[number], key=lambda node: self.rank[self.owner[node]]
                )
                evidence = f"its first {counted(place + 1, 'message')} are the same"
                return Link("extension", nodes[count - 1], evidence)
            if self.written.get(keys[place], self.rank[number]) < self.rank[number]:
                return None  # what was before this response is rewritten
        return None

    def _stated(self, number: int, by_id: Mapping[str, int]) -> Link | None:
        """The link that the file states."""
        each = self.conversations[number]
        parent = None if each.parent is None else by_id.get(each.parent)
        if parent is None or not self.places[parent]:
            return None
        last = len(self.places[parent]) - 1
        step = last if each.parent_step is None else min(each.parent_step, last)
        spawned = each.agent != self.conversations[parent].agent
        return Link("spawning" if spawned else "rewriting", self.first[parent] + step, STATED)

    def _callers(self) -> dict[int, int]:
        """Who may have spawned the conversations whose last response is the result of a tool."""
        starts = [n for n in self.order if (link := self.links[n]) and link.kind == "start"]
        if len(starts) < 2:
            return {}
        decision_of = {prefix: node for node, prefix in enumerate(self.after)}
        caller: dict[str, int] = {}
        for keys, prefix in zip(self.keys, self.prefixes, strict=True):
            node = -1
            for key, through in zip(keys, prefix[1:], strict=True):
                if key.startswith(ASSISTANT):
                    node = decision_of.get(through, -1)
                elif node >= 0:
                    caller.setdefault(key.partition("\0")[2], node)
        following = {before: node for node, before in enumerate(self.previous)}
        callers = {}
        for number in starts[1:]:
            tip = self.first[number]
            while tip in following:
                tip = following[tip]
            text = text_of(self.message(tip).get("content")).strip()
            if text in caller:
                callers[number] = caller[text]
        return callers

    def _number_steps(self) -> None:
        count = len(self.previous)
        children: defaultdict[int, list[int]] = defaultdict(list)
        for node in sorted(range(count), key=lambda node: (self.rank[self.owner[node]], node)):
            children[self.previous[node]].append(node)
        walk = list(children[-1])
        for node in walk:
            walk += children[node]
        latest = [self.rank[number] for number in self.owner]  # below each decision
        for node in reversed(walk):
            if (before := self.previous[node]) >= 0:
                latest[before] = max(latest[before], latest[node])
        branches: set[int] = set()  # what did not go on last
        for before, siblings in children.items():
            spawned = [node for node in siblings if self.kind(node) == "spawning"]
            same = [node for node in siblings if self.kind(node) != "spawning"]
            if before >= 0:
                self._name_branches(same)
            same.sort(key=latest.__getitem__)
            branches.update(same[:-1])
            siblings[:] = [*spawned, *same]
        links = enumerate(self.links)
        unlinked = [self.first[n] for n, link in links if link and link.evidence == ORDER]
        if unlinked:
            self.doubts.append((ProblemKind.UNLINKED_CONVERSATION, len(unlinked), unlinked))
        self.step, self.agent = [0] * count, [""] * count
        self.parent: list[int | None] = [None] * count
        stack, sub_agents = children[-1][::-1], 0
        for step in range(count):
            node = stack.pop()
            before = self.previous[node]
            is_spawned = self.kind(node) == "spawning"
            sub_agents += is_spawned
            inherited = MAIN if before < 0 else self.agent[before]
            name = f"sub-agent {sub_agents}" if is_spawned else inherited
            self.agent[node] = self.conversations[self.owner[node]].agent or name
            self.step[node] = step
            if before >= 0:
                began = is_spawned or node in branches
                self.parent[node] = self.step[before] if began else self.parent[before]
            stack += children[node][::-1]

    def _name_branches(self, siblings: Sequence[int]) -> None:
        """Call a conversation that goes on where an earlier one did a retry, or a fork."""
        contexts = set()
        for place, node in enumerate(siblings):
            number = self.owner[node]
            context, link = self.prefixes[number][self.place[node]], self.links[number]
            if place and link and self.kind(node) == "extension" and node == self.first[number]:
                kind: Kind = "retry" if context in contexts else "fork"
                self.links[number] = replace(link, kind=kind)
            contexts.add(context)

    def _find_lost(self) -> None:
        """Report the responses in contexts that are no decision of the session."""
        written = set(self.written)
        unknown = {k for k in set().union(*self.keys) - written if k.startswith(ASSISTANT)}
        lost: dict[int, int] = {}
        for number, each in enumerate(self.conversations) if unknown else ():
            for place in range(each.context if self.places[number] else 0):
                if self.keys[number][place] in unknown:
                    lost.setdefault(self.prefixes[number][place + 1], self.first[number])
        if lost:
            self.doubts.append((ProblemKind.LOST_RESPONSE, len(lost), sorted(lost.values())))


class _Earlier:
    """What the earlier conversations of a session hold, to see where a context comes from."""

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.contexts: dict[int, int] = {}
        self.responses: dict[str | tuple[int, str], int] = {}
        """By their keys, alone and with what their contexts begin with."""
        self.tips: dict[int, int] = {}
        """The latest decision in a context that begins like this."""
        self.arguments: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.lineage: dict[int, int] = {}
        """The first decision of the lineage of each."""

    def add(self, number: int) -> None:
        """Add the decisions of a conversation."""
        session = self.session
        nodes = range(session.first[number], session.first[number + 1])
        heads = [session.prefixes[number][head] for head in session.heads(number)]
        for node in nodes:
            message, before = session.message(node), session.previous[node]
            spawned = session.kind(node) == "spawning"
            self.lineage[node] = node if spawned else self.lineage.get(before, node)
            key = session.keys[number][session.place[node]]
            self.responses[key] = self.responses[heads[1], key] = node
            for text in _strings(calls_of(message)):
                _put_last(self.arguments, text, node)
            if text := text_of(message.get("content")).strip():
                _put_last(self.texts, text, node)
        self.contexts[session.prefixes[number][session.place[nodes[0]]]] = nodes[0]
        if session.settled[number]:
            self.tips |= dict.fromkeys(heads, nodes[-1])

    def links(self, number: int) -> Iterator[Link]:
        """The links that the context itself shows, the surest first."""
        session = self.session
        first, prefix = session.places[number][0], session.prefixes[number]
        keys = session.keys[number][:first]
        texts = [key.partition("\0")[2] for key in keys]
        system, task = session.heads(number)
        caller = self._quoted(self.arguments, texts[system:task])
        if prefix[first] in self.contexts:
            same = self.contexts[prefix[first]]
            before, why = session.previous[same], "its context is the same"
            if session.kind(same) == "spawning":
                # Sub-agents may have the same task: voters, or the same tests run again.
                yield Link("spawning", before if caller is None else caller, why)
            else:
                yield Link("retry", before, why)
        for key in reversed(keys):
            if key.startswith(ASSISTANT) and key in self.responses:
                # Agents of different tasks may write the same.
                kept = self.responses.get((prefix[task], key), self.responses[key])
                yield Link("rewriting", kept, "it keeps an earlier response")
        quoted = self._quoted(self.texts, texts[system:])
        tip = self.tips.get(prefix[task]) if task > system else None
        if tip is not None and (quoted is None or self.lineage[quoted] != self.lineage[tip]):
            yield Link("rewriting", tip, "it begins with the same messages")
        if caller is not None:
            yield Link("spawning", caller, "its task is an argument of the call")
        if quoted is not None:
            # A program may hand a response to a sub-agent without a call of a tool.
            known = self.lineage.get(self.tips.get(prefix[system], -1))
            if 0 < system < task and texts[system] in self.texts and known != self.lineage[quoted]:
                yield Link("spawning", quoted, "its task is a response, its system message another")
            if system and known not in (None, self.lineage[quoted]):
                # The summary of a model with other instructions, for instance.
                yield Link("rewriting", self.tips[prefix[system]], "it has the same system message")
            yield Link("rewriting", quoted, "an earlier response stands in one of its messages")
        if system and prefix[system] in self.tips:
            yield Link("rewriting", self.tips[prefix[system]], "it has the same system message")

    @staticmethod
    def _quoted(quotes: dict[str, int], texts: Sequence[str]) -> int | None:
        """The latest decision whose text one of these is, or holds as a good part of it."""
        for text in texts:
            if text in quotes:
                return quotes[text]
        for quote in islice(reversed(quotes), MOST_QUOTES):
            for text in texts if len(quote) >= SHORTEST_QUOTE else ():
                if len(text) < LONGEST_FRAME * len(quote) and quote in text:
                    return quotes[quote]
        return None


def _strings(calls: Sequence[tuple[str, Any, Any]]) -> Iterator[str]:
    """The texts among the arguments of calls."""
    for name, arguments, _ in calls:
        try:
            values = name_and_arguments({"name": name, "arguments": arguments}, strict=False)[1]
        except ValueError:  # not an object: no sub-agent is started with that
            continue
        for value in values.values():
            if isinstance(value, str) and value.strip():
                yield value.strip()


def _put_last(nodes: dict[str, int], text: str, node: int) -> None:
    """Set an entry as the last one, since the latest are looked at first."""
    nodes.pop(text, None)
    nodes[text] = node


def _prefixes(keys: Sequence[str]) -> list[int]:
    """A hash of the first 0, 1, 2, ... messages."""
    hashes = [0]
    for key in keys:
        hashes.append(hash((hashes[-1], key)))
    return hashes


def _without_first(each: Conversation, count: int) -> Conversation:
    """The conversation with its first steps as context."""
    return replace(
        each,
        context=each.steps[count - 1] + 1,
        rewards=None if each.rewards is None else each.rewards[count:],
        states=None if each.states is None else each.states[count:],
        truncated_turns=[turn - count for turn in each.truncated_turns if turn >= count],
    )
