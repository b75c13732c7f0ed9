"""States of LangGraph, a line for each, with the messages in ``values``."""

from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.model_calls import read, scores, session, snapshots

FORMAT = Format(
    "langgraph",
    "LangGraph states",
    "values.messages:list",
    read,
    example="formats/langgraph.jsonl",
    rank=1,
    session=session,
    snapshots=snapshots,
    scores=scores,
)
