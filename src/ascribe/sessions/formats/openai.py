"""Chats with a list of ``messages`` in OpenAI's form."""

from ascribe.sessions.reading.chats import read
from ascribe.sessions.reading.format import Format

FORMAT = Format(
    "openai",
    "OpenAI messages",
    "messages:list",
    read,
    example="formats/openai.jsonl",
    rank=4,
    family="chats",
)
