"""OpenAI chat messages: one conversation per line, with a reward.

The keys of the group, the trajectory and the reward are not part of OpenAI's format. The usual
names are looked for; others are given by ``--group`` and ``--reward``. Without a name for the
group, conversations with the same prompt form one.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from ascribe.conversations.formats.records import Message, Record, message
from ascribe.conversations.messages import Episode

GROUPS = ("group", "task", "task_id", "example_id", "problem_id", "prompt_id", "question_id")
TRAJECTORIES = ("trajectory", "trajectory_id", "rollout_id", "id", "uuid")
REWARDS = ("reward", "final_reward", "score", "return")


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether this is a conversation in OpenAI's form."""
    return isinstance(record.get("messages"), list)


def read(record: Record) -> Iterator[Episode]:
    """The conversation of one line."""
    if record.get("response_message"):
        detail = "a log of a gateway, with a line for each model call, is not read; write one line"
        raise record.error(f"{detail} for each session, with all messages and the last response")
    messages = [message(each) for each in record.get("messages").items(required=True)]
    group, trajectory = first(record, GROUPS), first(record, TRAJECTORIES)
    reward, rewards = first(record, REWARDS), record.get("rewards").items()
    steps = sum(each["role"] == "assistant" for each in messages)
    cut = record.get("finish_reason").value == "length"
    yield Episode(
        group=group.name() if group else prompt_name(messages),
        trajectory=trajectory.name() if trajectory else record.short(),
        messages=messages,
        reward=reward.optional_number(),
        rewards=[each.optional_number() for each in rewards] or None,
        truncated=cut or first(record, ("truncated", "is_truncated")).flag(),
        truncated_turns=[steps - 1] if cut else [],
        agent=record.get("agent").optional_name(),
        version=first(record, ("version", "policy_version", "weight_version")).optional_name(),
    )


def first(record: Record, names: tuple[str, ...]) -> Record:
    """The first of these entries that there is; the last one, a null, if there is none."""
    entries = [record.get(name) for name in names]
    return next((entry for entry in entries if entry), entries[-1])


def prompt_name(messages: list[Message]) -> str:
    """A name for the task of a conversation: a digest of the messages before the first turn."""
    digest = blake2b(digest_size=8)
    for each in messages:
        if each["role"] == "assistant":
            break
        digest.update(f"{each['role']}\0{each['content']}\0".encode(errors="replace"))
    return f"prompt {digest.hexdigest()}"
