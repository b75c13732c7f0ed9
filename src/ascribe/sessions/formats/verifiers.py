"""verifiers: ``traces.jsonl`` of version 1, and the older ``results.jsonl``.

A line of ``traces.jsonl`` is an episode: a task and one trace for each agent. A trace is a graph of
messages, each with its parent; the messages that the model sampled are the steps. A path to a leaf
is a conversation, and a trace has several where the history was compacted or a sub-agent worked.
Messages that two paths share are steps of the first one alone.

Credit is written back to ``MessageNode.advantages``, which has a number for each sampled token.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Record, digest, message
from ascribe.sessions.reading.traces import branches

LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")
"""Stop conditions that are limits, beside those that end in ``_timeout``."""


def read_traces(record: Record) -> Iterator[Conversation]:
    """One conversation for each path to a leaf of each trace."""
    traces = record.get("traces").items() if record.get("traces") else [record]
    agents = {_agent(trace) for trace in traces}
    for index, trace in enumerate(traces):
        group = record.get("group.id") or _task(record) or _task(trace)
        if not group:
            raise record.get("task").error("neither the task nor the group has a name")
        stop = str(trace.get("stop_condition").value)
        nodes = trace.get("nodes").items(required=True)
        paths = _paths(trace)
        messages = [message(n.get("message"), sampled=_is_sampled(n)) for n in nodes]
        cut = {
            call.get("node").value
            for call in trace.get("calls").items()
            if call.get("finish_reason").value == "length"
        }
        for path, context in paths:
            sampled = [node for node in path[context:] if _is_sampled(nodes[node])]
            # All that was shown is stated: an equal path was sampled again, and is no repetition.
            shown = path.index(sampled[0]) if sampled else context
            yield Conversation(
                group=group.name() if len(agents) == 1 else f"{group.name()}/{_agent(trace)}",
                trajectory=trace.get("id").optional_name() or f"{record.short()}/{index}",
                messages=[messages[node] for node in path],
                context=shown,
                reward=_reward(trace),
                truncated=stop in LIMITS or stop.endswith("_timeout"),
                truncated_turns=[turn for turn, node in enumerate(sampled) if node in cut],
                agent=_agent(trace),
                version=record.get("run.work.policy.start").optional_name(),
                identity=trace.get("id").optional_name(),
                logprobs=digest([nodes[node].get("logprobs").value for node in path]),
                excluded=_excluded(trace),
            )


def put_traces(record: Any, advantages: Iterator[Sequence[float | None]]) -> None:
    """Write the advantages of each conversation's steps to the sampled nodes of an episode.

    Those of a session that was left out are null.
    """
    for trace in record.get("traces", [record]):
        nodes = Record(trace, Path("trace")).get("nodes").items()
        for path, context in _paths(Record(trace, Path("trace"))):
            sampled = [node for node in path[context:] if _is_sampled(nodes[node])]
            for node, advantage in zip(sampled, next(advantages), strict=True):
                written = sum(bool(each.value) for each in nodes[node].get("mask").items())
                tokens = written or len(nodes[node].get("logprobs").items()) or 1
                given = None if advantage is None else [advantage] * tokens
                trace["nodes"][node]["advantages"] = given


def _paths(trace: Record) -> list[tuple[list[int], int]]:
    """Each path to a leaf with new steps, and how many nodes it shares with earlier paths.

    Where the model wrote nothing, all nodes.
    """
    nodes = trace.get("nodes").items()
    parents = [_parent(node, index) for index, node in enumerate(nodes)]
    with trace.get("nodes").refusing():
        paths = branches(parents, [_is_sampled(node) for node in nodes])
    return paths or [(list(range(len(nodes))), 0)]


def _parent(node: Record, index: int) -> int:
    parent = node.get("parent").value
    if parent is None:
        return -1
    if type(parent) is not int or not 0 <= parent < index:
        raise node.get("parent").error("it must be the number of an earlier node")
    return parent


def _is_sampled(node: Record) -> bool:
    return node.get("sampled").flag() and node.get("message.role").value == "assistant"


def _task(record: Record) -> Record:
    task = record.get("task")
    return task.get("key") or task.get("hash") or task.get("data")


def _agent(trace: Record) -> str:
    return trace.get("agent.name").optional_name() or "agent"


def _excluded(trace: Record) -> str:
    """Why a trace does not count: its episode failed, as verifiers itself has it."""
    return "an error of its rollout" if trace.get("ok").value is False else ""


def _reward(trace: Record) -> float | None:
    """The weighted sum of the rewards; None if nothing was scored."""
    rewards = trace.get("rewards")
    scored = [
        each for name in (rewards.mapping() if rewards else ()) if (each := rewards.get(name))
    ]
    if not scored:
        return None
    weights = [each.get("weight").optional_number() for each in scored]
    return sum(
        each.get("score").number() * (1.0 if weight is None else weight)
        for each, weight in zip(scored, weights, strict=True)
    )


FORMAT = Format(
    "verifiers",
    "verifiers traces",
    "traces:list | nodes:list",
    read_traces,
    example="formats/traces.jsonl",
    put=put_traces,
)
