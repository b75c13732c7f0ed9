"""OpenAI chat messages: one conversation per line, with a reward.

The keys of the group, the trajectory and the reward are not part of OpenAI's format. The usual
names are looked for; others are given by ``--group`` and ``--reward``. Without a name for the
group, conversations with the same prompt form one.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from ascribe.sessions.formats.records import Message, Record, content, message
from ascribe.sessions.messages import Conversation
from ascribe.sessions.tables import from_messages

GROUPS = ("group", "task", "task_id", "example_id", "problem_id", "prompt_id", "question_id")
TRAJECTORIES = ("trajectory", "trajectory_id", "rollout_id", "id", "uuid")
SESSIONS = ("session_id", "session", "conversation_id", "thread_id")
RESPONSES = ("response_message", "response", "choices", "completion", "output")
GATEWAY = "a log of a gateway, a line for each model call, is not read; write a line for a session"
REWARDS = ("reward", "final_reward", "score", "return")


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one line."""
    for response in (each for each in map(record.get, RESPONSES) if each.value):
        raise response.error(f"{GATEWAY}, with all messages and the last response among them")
    messages = [message(each) for each in record.get("messages").items(required=True)]
    if (system := first(record, ("system", "system_prompt"))).value:
        messages.insert(0, {"role": "system", "content": content(system)[0]})
    group, trajectory = first(record, GROUPS), first(record, TRAJECTORIES)
    reward, rewards = first(record, REWARDS), record.get("rewards").items()
    steps = sum(each["role"] == "assistant" for each in messages)
    task = group.name() if group else prompt_name(messages)
    cut = record.get("finish_reason").value == "length"
    episode = Conversation(
        group=task,
        trajectory=trajectory.name() if trajectory else record.short(),
        messages=messages,
        reward=reward.optional_number(),
        rewards=[each.optional_number() for each in rewards] or None,
        truncated=cut or first(record, ("truncated", "is_truncated")).flag(),
        truncated_turns=[steps - 1] if cut else [],
        agent=record.get("agent").optional_name(),
        version=first(record, ("version", "policy_version", "weight_version")).optional_name(),
    )
    named = first(record, (*SESSIONS, *TRAJECTORIES))
    # Of a task, a rollout may end where another goes on; less often with the same reward.
    session = named.optional_name(), None if named.field in SESSIONS else (task, episode.reward)
    turns = []
    if steps and (named or group):
        table = from_messages([episode], state="history")
        turns = [*zip(table.state.texts(), table.action.texts(), strict=True)]
    pairs = [(place == len(turns), hash((session, *turn))) for place, turn in enumerate(turns, 1)]
    detail = f"another line goes on where it ends, or the reverse: {GATEWAY}, or give each rollout"
    yield replace(episode, extra={"parts": (pairs, f"{detail} its own session_id")})


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
