"""Logs of a gateway, a line for each model call; fields of rllm-model-gateway 0.1.0."""

from ascribe.sessions.reading.chats import RESPONSES
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.model_calls import opened, read, scores, session, snapshots
from ascribe.sessions.reading.names import SESSIONS

FORMAT = Format(
    "gateway",
    "model calls of a gateway",
    f"messages:list {'/'.join((*RESPONSES, *SESSIONS[:4]))}:set"
    f" | request/input.messages:list {'/'.join(RESPONSES)}:set"
    f" | input.0.role {'/'.join(RESPONSES)}:set !output:list",
    read,
    example="sessions/gateway.jsonl",
    rank=1,
    session=session,
    snapshots=snapshots,
    scores=scores,
    split=opened,
    identity="trace_id",
)
