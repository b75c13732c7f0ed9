"""Every file format of sessions: how it is recognised, and who reads it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.sessions.formats import (
    anthropic,
    atif,
    chats,
    claude_code,
    gateway,
    inspect_ai,
    langchain,
    langfuse,
    langsmith,
    mini_swe_agent,
    nemo_gym,
    openai,
    openai_agents,
    openhands,
    otel,
    responses,
    rllm,
    sharegpt,
    swe_agent,
    tau2,
    verifiers,
    verl,
)
from ascribe.sessions.formats.records import Record
from ascribe.sessions.messages import Conversation


def _reward_field(records: Sequence[Record], name: str | None) -> list[Record]:
    return [record.get(name or "reward") for record in records]


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        title: what the format is called.
        recognises: whether a record is of this format.
        read: the conversations of a record; of all records of a session, if there is ``session``.
        put: writes the advantages of each conversation into the record, if it has a place for them.
        score: the number of a reward.
        continued: whether a trajectory may go on in the next record, if its extra says ``named``.
        session: the name of a record's session, for formats with several records for each. Records
            of different files with the same name are one session. Their conversations have the
            place of their record in ``extra["record"]``, and ``reward`` finds the rewards.
        trace: the name of what a record without a session belongs to: its session is the only one
            that records of the same trace name, else the trace itself.
        split: the records in a record, if a line or a file may hold several, or none.
        identity: the field that names a record: those of a session with one name are one record.
        reward: the rewards of the records of a session, those of the field that the caller named.
        field: the field of a record that the caller named.
    """

    title: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Any], Iterator[Conversation]]
    put: Callable[[Any, Iterator[Sequence[float]]], None] | None = None
    score: Callable[[Record], float] = Record.number
    continued: bool = False
    session: Callable[[Record], Hashable] | None = None
    trace: Callable[[Record], Hashable] | None = None
    split: Callable[[Record], Iterable[Record]] = lambda record: (record,)
    identity: str = ""
    reward: Callable[[Sequence[Record], str | None], Sequence[Record]] = _reward_field
    field: Callable[[Record, str], Record] = Record.get


def _is_nemo_gym(record: Mapping[str, Any]) -> bool:
    named = "_ng_task_index" in record or "responses_create_params" in record
    return named and isinstance(record.get("response"), dict)


def _is_verl(record: Mapping[str, Any]) -> bool:
    texts = record.keys() >= {"input", "output", "score"}
    return texts and not isinstance(record["output"], list)  # else OpenAI Responses


def _is_gateway(record: Mapping[str, Any]) -> bool:
    """A line for a call: with a response beside the messages, or with the name of a session."""
    beside = (*openai.RESPONSES, *chats.SESSIONS)
    return isinstance(record.get("messages"), list) and any(map(record.get, beside))


def _has_messages(kind: Callable[[list[Any]], bool]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: isinstance(record.get("messages"), list) and kind(record["messages"])


def _has_list(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: any(isinstance(record.get(name), list) for name in names)


def _has_keys(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: record.keys() >= set(names)


FORMATS = {
    "atif": Format(
        "Harbor ATIF",
        lambda r: str(r.get("schema_version")).startswith("ATIF"),
        atif.read,
        session=atif.session,
        reward=atif.reward,
    ),
    "inspect": Format(
        "Inspect log",
        _has_keys("id", "epoch", "messages", "target"),
        inspect_ai.read,
        score=inspect_ai.score,
    ),
    "nemo-gym": Format("NeMo-Gym rollouts", _is_nemo_gym, nemo_gym.read),
    "rllm": Format("rLLM episodes", _has_list("trajectories"), rllm.read, rllm.put),
    "verifiers": Format(
        "verifiers traces",
        _has_list("traces", "nodes"),
        verifiers.read_traces,
        verifiers.put_traces,
    ),
    "verifiers-results": Format(
        "verifiers results",
        _has_keys("example_id", "prompt", "completion"),
        verifiers.read_results,
    ),
    "verl": Format("verl rollout dump", _is_verl, verl.read, continued=True),
    "claude-code": Format(
        "Claude Code sessions",
        claude_code.recognises,
        claude_code.read,
        session=claude_code.session,
        split=claude_code.split,
        identity="uuid",
    ),
    "langsmith": Format(
        "LangSmith runs",
        langsmith.recognises,
        langsmith.read,
        session=langsmith.session,
        trace=langsmith.trace,
        identity="id",
        reward=langsmith.reward,
    ),
    "langfuse": Format(
        "Langfuse traces",
        langfuse.recognises,
        langfuse.read,
        session=langfuse.session,
        trace=langfuse.trace,
        split=langfuse.split,
        identity="key",
        reward=langfuse.reward,
    ),
    "openai-agents": Format(
        "OpenAI Agents traces",
        openai_agents.recognises,
        openai_agents.read,
        session=openai_agents.session,
        trace=openai_agents.trace,
        split=openai_agents.split,
        identity="id",
        reward=openai_agents.reward,
    ),
    "otel": Format(
        "OpenTelemetry spans",
        otel.recognises,
        otel.read,
        session=otel.session,
        trace=otel.trace,
        split=otel.split,
        identity="span",
        reward=otel.reward,
        field=otel.field,
    ),
    "responses": Format(
        "OpenAI Responses",
        responses.recognises,
        responses.read,
        session=gateway.session,
        reward=gateway.reward,
    ),
    "sharegpt": Format("ShareGPT conversations", sharegpt.recognises, sharegpt.read),
    "openhands": Format("OpenHands trajectories", openhands.recognises, openhands.read),
    "swe-agent": Format("SWE-agent trajectories", swe_agent.recognises, swe_agent.read),
    "mini-swe-agent": Format(
        "mini-swe-agent trajectories",
        lambda r: str(r.get("trajectory_format")).startswith("mini-swe-agent"),
        mini_swe_agent.read,
    ),
    "tau2": Format("tau2 simulations", _has_keys("task_id", "messages", "reward_info"), tau2.read),
    "gateway": Format(
        "model calls of a gateway",
        _is_gateway,
        gateway.read,
        session=gateway.session,
        identity="trace_id",
        reward=gateway.reward,
    ),
    "langgraph": Format(
        "LangGraph states",
        langchain.is_state,
        gateway.read,
        session=gateway.session,
        reward=gateway.reward,
    ),
    "langchain": Format("LangChain messages", _has_messages(langchain.are_messages), openai.read),
    "anthropic": Format("Anthropic messages", _has_messages(anthropic.are_messages), openai.read),
    "openai": Format("OpenAI messages", _has_list("messages"), openai.read),
}
"""Every format by its name, the most specific first: a list of messages is OpenAI's if it is of no
other format."""

CHATS = ("langchain", "anthropic", "openai")
"""Formats of one reader that are told apart by their messages: a file may have records of each."""
