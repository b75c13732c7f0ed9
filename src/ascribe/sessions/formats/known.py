"""Every file format of sessions: how it is recognised, and who reads it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
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
    tau_bench,
    verifiers,
    verl,
)
from ascribe.sessions.formats.records import Record
from ascribe.sessions.formats.scores import Score
from ascribe.sessions.messages import Conversation


def _reward_field(record: Record) -> list[Score]:
    found = record.get("reward")
    return [Score("", found)] if found else []


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
            place of their record in ``extra["record"]``, and ``scores`` finds the rewards.
        trace: the name of what a record without a session belongs to: its session is the only one
            that records of the same trace name, else the trace itself.
        split: the records in a record, if a line or a file may hold several, or none.
        identity: the field that names a record: those of a session with one name are one record.
        unique: what is equal in records of one name, of whatever session: these are one session,
            of which a copy went on. Empty if sessions may use names again.
        snapshots: whether a record shows a session as it is by then, so that the latest reward is
            the session's, and earlier ones are not rewards of calls.
        scores: the scores that a record gives.
        field: the field of a record that the caller named.
        beside: names of files that the reader opens itself, or that lie beside these and hold no
            session.
    """

    title: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Any], Iterator[Conversation]]
    put: Callable[[Any, Iterator[Sequence[float | None]]], None] | None = None
    score: Callable[[Record], float] = Record.number
    continued: bool = False
    session: Callable[[Record], Hashable] | None = None
    trace: Callable[[Record], Hashable] | None = None
    split: Callable[[Record], Iterable[Record]] = lambda record: (record,)
    identity: str = ""
    unique: str = ""
    snapshots: Callable[[Record], bool] = lambda _: False
    scores: Callable[[Record], Iterable[Score]] = _reward_field
    field: Callable[[Record, str], Record] = Record.get
    beside: tuple[str, ...] = ()


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


def _begins(name: str, start: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: str(record.get(name)).startswith(start)


def _has_keys(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: record.keys() >= set(names)


def _of(
    module: ModuleType,
    title: str,
    recognises: Callable[[Mapping[str, Any]], bool] | None = None,
    **more: Any,
) -> Format:
    """The format that a module reads: its functions are called like the fields of ``Format``."""
    names = [field.name for field in fields(Format)]
    functions: dict[str, Any] = {
        name: getattr(module, name)
        for name in names
        if getattr(getattr(module, name, None), "__module__", "") == module.__name__
    }
    if recognises is not None:
        functions["recognises"] = recognises
    return Format(title, **functions | more)


FORMATS = {
    "atif": _of(
        atif,
        "Harbor ATIF",
        _begins("schema_version", "ATIF"),
        beside=("result.json", "reward.json", "config.json"),
    ),
    "inspect": _of(
        inspect_ai,
        "Inspect log",
        _has_keys("id", "epoch", "messages", "target"),
        beside=("logs.json", "eval-set.json"),
    ),
    "nemo-gym": _of(nemo_gym, "NeMo-Gym rollouts", _is_nemo_gym),
    "rllm": _of(rllm, "rLLM episodes", _has_list("trajectories")),
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
    "verl": _of(verl, "verl rollout dump", _is_verl, continued=True),
    "claude-code": _of(claude_code, "Claude Code sessions", identity="uuid", unique="message"),
    "langsmith": _of(langsmith, "LangSmith runs", identity="id"),
    "langfuse": _of(langfuse, "Langfuse traces", identity="key"),
    "openai-agents": _of(
        openai_agents, "OpenAI Agents traces", identity="id", scores=gateway.scores
    ),
    "otel": _of(otel, "OpenTelemetry spans", identity="span"),
    "responses": _of(responses, "OpenAI Responses", session=gateway.session, scores=gateway.scores),
    "sharegpt": _of(sharegpt, "ShareGPT conversations"),
    "openhands": _of(openhands, "OpenHands trajectories", beside=("metadata.json", "report.json")),
    "swe-agent": _of(swe_agent, "SWE-agent trajectories", beside=("preds.json",)),
    "mini-swe-agent": _of(
        mini_swe_agent,
        "mini-swe-agent trajectories",
        _begins("trajectory_format", "mini-swe-agent"),
        beside=("preds.json",),
    ),
    "tau-bench": _of(
        tau_bench, "tau-bench results", _has_keys("task_id", "reward", "info", "traj")
    ),
    "tau2": _of(tau2, "tau2 simulations", _has_keys("task_id", "messages", "reward_info")),
    "gateway": _of(gateway, "model calls of a gateway", _is_gateway, identity="trace_id"),
    "langgraph": _of(gateway, "LangGraph states", langchain.is_state),
    "langchain": _of(openai, "LangChain messages", _has_messages(langchain.are_messages)),
    "anthropic": _of(openai, "Anthropic messages", _has_messages(anthropic.are_messages)),
    "openai": _of(openai, "OpenAI messages", _has_list("messages")),
}
"""Every format by its name, the most specific first: a list of messages is OpenAI's if it is of no
other format."""

CHATS = ("langchain", "anthropic", "openai")
"""Formats of one reader that are told apart by their messages: a file may have records of each."""
