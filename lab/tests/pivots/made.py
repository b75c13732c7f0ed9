"""Traces and candidates to test with."""

import json
from pathlib import Path
from typing import Any

from ascribe_lab.pivots import Candidate, Origin, candidate
from ascribe_lab.pivots.candidates import ReplayPoint

SEARCH = {
    "name": "search",
    "description": "Looks things up.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
        "required": ["query"],
        "additionalProperties": False,
    },
}

CHAT: dict[str, Any] = {
    "id": "trip",
    "tools": [{"type": "function", "function": SEARCH}],
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Where is Lisbon?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"query": "Lisbon", "count": 2}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "A city in Portugal."},
        {"role": "assistant", "content": "In Portugal."},
    ],
}

SHAREGPT: dict[str, Any] = {
    "id": "trip",
    "system": "You help.",
    "tools": json.dumps([SEARCH]),
    "conversations": [
        {"from": "human", "value": "Where is Lisbon?"},
        {
            "from": "function_call",
            "value": json.dumps({"name": "search", "arguments": {"query": "Lisbon", "count": 2}}),
        },
        {"from": "observation", "value": "A city in Portugal."},
        {"from": "gpt", "value": "In Portugal."},
    ],
}


def lines(path: Path, *rows: Any) -> Path:
    """A file of JSON lines; text is written as it is."""
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def a_turn(
    action: str,
    said: str = "Go on.",
    *,
    tools: tuple[Any, ...] = (),
    scene: ReplayPoint | None = None,
) -> Candidate:
    """A candidate with one message before it."""
    known = tuple(json.dumps(tool, sort_keys=True, separators=(",", ":")) for tool in tools)
    messages = [{"role": "user", "content": said}]
    return candidate(messages, action, Origin("made", "trace", 0, 1), known, scene)


def call(name: str, **arguments: Any) -> str:
    """A tool call as a model writes it."""
    told = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{told}\n</tool_call>"
