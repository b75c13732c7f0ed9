"""verifiers: lines of the older ``results.jsonl``."""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Record, message


def read(record: Record) -> Iterator[Conversation]:
    """The rollout of one line of the older format."""
    prompt = [message(each, sampled=False) for each in _chat(record.get("prompt"), "user")]
    turns = [message(each) for each in _chat(record.get("completion"), "assistant")]
    steps = record.get("trajectory").items()
    rewards = [step.get("reward").optional_number() for step in steps]
    linear = len(steps) == sum(turn["role"] == "assistant" for turn in turns)
    total = record.get("reward").optional_number()
    # The reward of a step may be a part of the final one, or a copy of it.
    summed = total is None or abs(sum(filter(None, rewards)) - total) < 1e-9
    yield Conversation(
        group=record.get("example_id").name(),
        trajectory=record.short(),
        messages=[*prompt, *turns],
        reward=total,
        rewards=rewards if linear and summed else None,
        truncated=record.get("is_truncated").flag(),
        truncated_turns=[
            turn for turn, step in enumerate(steps) if linear and step.get("is_truncated").flag()
        ],
    )


def _chat(record: Record, role: str) -> list[Record]:
    """Messages, or a text that is one message of this role."""
    if isinstance(record.value, str):
        return [record.of({"role": role, "content": record.value})]
    return record.items()


FORMAT = Format(
    "verifiers-results",
    "verifiers results",
    "example_id prompt completion",
    read,
    example="formats/results.jsonl",
)
