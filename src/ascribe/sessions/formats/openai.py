"""OpenAI chat messages: one conversation per line, with a reward.

The keys of the group, the trajectory and the reward are not part of OpenAI's format. The usual
names are looked for; others are given by ``--group`` and ``--reward``. Without a name for the
group, conversations with the same prompt form one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from ascribe.sessions.forest import message_key
from ascribe.sessions.formats.records import Message, Record, content, message
from ascribe.sessions.messages import Conversation

GROUPS = ("group", "task", "task_id", "example_id", "problem_id", "prompt_id", "question_id")
TRAJECTORIES = ("trajectory", "trajectory_id", "rollout_id", "id", "uuid")
SESSIONS = ("session_id", "session", "conversation_id", "thread_id")
RESPONSES = ("response_message", "response", "choices", "completion", "output")
REWARDS = ("reward", "final_reward", "score", "return")
VERSIONS = ("version", "policy_version", "weight_version")
EXTENDED = (
    "another line goes on where it ends, or the reverse: if these are model calls of one session, "
    "give them the same session_id; else write a different one for each rollout"
)


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one line."""
    messages = chat(record)
    for response in (each for each in map(record.get, RESPONSES) if each.value):
        raise response.error("a response beside the messages; read the file with --from gateway")
    group, trajectory = first(record, GROUPS), first(record, TRAJECTORIES)
    reward, rewards = first(record, REWARDS), record.get("rewards").items()
    steps = sum(each["role"] == "assistant" for each in messages)
    cut = record.get("finish_reason").value == "length"
    episode = Conversation(
        group=group.name() if group else prompt_name(messages),
        trajectory=trajectory.name() if trajectory else record.short(),
        messages=messages,
        reward=reward.optional_number(),
        rewards=[each.optional_number() for each in rewards] or None,
        truncated=cut or first(record, ("truncated", "is_truncated")).flag(),
        truncated_turns=[steps - 1] if cut else [],
        agent=record.get("agent").optional_name(),
        version=first(record, VERSIONS).optional_name(),
    )
    named = trajectory.optional_name()
    yield replace(episode, extra=ends(episode, named) if named or group else {})


def ends(episode: Conversation, *names: str | None) -> dict[str, Any]:
    """What tells whether a conversation goes on where another of these names ends.

    Of a task, a rollout may end where another goes on; less often with the same reward.
    """
    start = repr((*names, episode.group, episode.reward)).encode(errors="replace")
    digest, turns = blake2b(start, digest_size=16), []
    for each in episode.messages:
        digest.update(repr(message_key(each)).encode(errors="replace"))
        if each["role"] == "assistant":
            turns.append(digest.digest())
    pairs = [(place == len(turns), turn) for place, turn in enumerate(turns, 1)]
    return {"parts": (pairs, EXTENDED)}


def chat(record: Record) -> list[Message]:
    """The messages of a line, with the system prompt that may stand beside them."""
    messages = [message(each) for each in record.get("messages").items(required=True)]
    if (system := first(record, ("system", "system_prompt"))).value:
        messages.insert(0, {"role": "system", "content": content(system)[0]})
    return messages


def first(record: Record, names: Sequence[str]) -> Record:
    """The first of these entries that there is; the last one, a null, if there is none."""
    entries = [record.get(name) for name in names]
    return next((entry for entry in entries if entry), entries[-1])


def prompt_name(messages: Sequence[Mapping[str, Any]]) -> str:
    """A name for the task of a conversation: a digest of the messages before the first turn."""
    digest = blake2b(digest_size=8)
    for each in messages:
        if each["role"] == "assistant":
            break
        digest.update(f"{each['role']}\0{each['content']}\0".encode(errors="replace"))
    return f"prompt {digest.hexdigest()}"
