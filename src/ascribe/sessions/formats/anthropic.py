"""Chats with a list of ``messages`` in Anthropic's form."""

from ascribe.sessions.reading.anthropic import BLOCKS
from ascribe.sessions.reading.chats import read
from ascribe.sessions.reading.format import Format

FORMAT = Format(
    "anthropic",
    "Anthropic messages",
    f"messages:list messages.*.content.*.type={BLOCKS}",
    read,
    example="formats/anthropic.jsonl",
    rank=3,
    family="chats",
)
