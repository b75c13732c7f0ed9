"""Chats with a list of ``messages`` in LangChain's form."""

from ascribe.sessions.reading.chats import read
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.langchain import MARKS

FORMAT = Format(
    "langchain",
    "LangChain messages",
    MARKS,
    read,
    example="formats/langchain_dump.jsonl",
    rank=2,
    family="chats",
)
