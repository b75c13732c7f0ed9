"""Trajectories of mini-swe-agent: OpenAI messages or items, with notes in ``extra``.

A response that had no action in it is not in the messages: it is kept beside the error that the
model was shown instead, and is a step, too. The message of the role ``exit`` says how the run ended
and was shown to no model. The file has no reward: give it with ``reward``. The task is the
``instance_id`` of a benchmark; else tasks are told apart by their prompts.
"""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.items import turns
from ascribe.sessions.reading.names import conversation
from ascribe.sessions.reading.records import Message, Record, message

LIMITS = ("LimitsExceeded", "TimeExceeded", "RepeatedFormatError")


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one file."""
    messages: list[Message] = []
    for each in record.get("messages").items(required=True):
        messages += _messages(each)
    status = record.get("info.exit_status").value
    yield conversation(record, messages, truncated=status in LIMITS)


def _messages(record: Record) -> list[Message]:
    if record.get("role").value == "exit":
        return []
    if record.get("object").value == "response":
        return turns(record.get("output"))
    is_item = bool(record.get("type"))
    shown = turns(record.of([record.value])) if is_item else [message(record)]
    return [*_unusable(record.get("extra")), *shown]


def _unusable(extra: Record) -> list[Message]:
    """The response whose error a message reports."""
    if extra.get("interrupt_type").value != "FormatError":  # also without an extra
        return []
    if extra.get("model_response"):
        return [{"role": "assistant", "content": extra.get("model_response").text()}]
    response = extra.get("response")
    if not isinstance(response.value, dict):  # text where it could not be written as JSON
        return [{"role": "assistant", "content": response.text()}] if response else []
    if response.get("output"):
        return turns(response.get("output"))
    return [message(each.get("message")) for each in response.get("choices").items()[:1]]


FORMAT = Format(
    "mini-swe-agent",
    "mini-swe-agent trajectories",
    "trajectory_format=mini-swe-agent.*",
    read,
    example="formats/mini_swe_agent.jsonl",
    beside=("preds.json",),
)
