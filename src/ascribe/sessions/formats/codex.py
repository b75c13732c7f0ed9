"""Sessions of the Codex CLI: ``rollout-*.jsonl``, a line for each item, event and context.

The items are those of OpenAI's Responses API. The model is in the context of the latest turn. Files
have no reward and no task: without these, sessions with the same prompt form a group.
"""

import re
from collections.abc import Hashable, Iterator, Sequence

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.items import turns
from ascribe.sessions.reading.names import prompt_name
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.traces import seconds

ITEMS = re.compile(r"message|reasoning|\w+_call(_output)?")


def session(record: Record) -> Hashable:
    """The file."""
    return str(record.path), record.member


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The conversation of a file."""
    kinds = [each.get("type").value for each in records]
    items, ids, models = [], [], []
    for record, kind in zip(records, kinds, strict=True):
        payload = record.get("payload")
        if kind == "response_item" and ITEMS.fullmatch(str(payload.get("type").value)):
            items.append(payload.value)
        elif kind == "session_meta":
            ids.append(payload.get("id").optional_name())
        elif kind == "turn_context":
            models.append(payload.get("model").optional_name())
    messages = turns(records[-1].of(items, "payload"))
    yield Conversation(
        group=prompt_name(messages),
        trajectory=next(filter(None, ids), None) or records[0].file.stem,
        messages=messages,
        version=next(filter(None, reversed(models)), None),
        identity=next(filter(None, ids), None),
        time=seconds(records[0].get("timestamp")),
        extra={"record": len(records) - 1},
    )


FORMAT = Format(
    "codex",
    "Codex CLI sessions",
    "type=session_meta|response_item|event_msg|turn_context|compacted payload:object",
    read,
    example="formats/codex.jsonl",
    session=session,
)
