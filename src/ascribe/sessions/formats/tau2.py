"""Simulations of tau2-bench: the file's ``simulations``, one conversation each.

The user has tools, too: neither those calls nor their results are shown to the agent, so they are
left out. The greeting that opens a conversation is the benchmark's, and no step. The agent's policy
is not among the messages. Simulations of voices are not read.
"""

from collections.abc import Iterator

from ascribe.sessions.formats.chats import conversation
from ascribe.sessions.formats.records import Message, Record, message
from ascribe.sessions.messages import Conversation

LIMITS = ("max_steps", "too_many_errors", "timeout")


def read(simulation: Record) -> Iterator[Conversation]:
    """The conversation of one simulation."""
    if (ticks := simulation.get("ticks")).value:
        raise ticks.error("simulations of voices are not read; simulate the task with texts")
    trial = simulation.get("trial")
    yield conversation(
        simulation,
        list(_messages(simulation.get("messages").items(required=True))),
        group=simulation.get("task_id").name(),
        trajectory=(simulation.get("id") or trial).name(),
        reward=simulation.get("reward_info.reward").optional_number(),
        truncated=simulation.get("termination_reason").value in LIMITS,
    )


def _messages(records: list[Record]) -> Iterator[Message]:
    """What the agent wrote and was shown."""
    for place, record in enumerate(records):
        several = record.get("tool_messages").items()
        for each in several or [record]:
            role, calls = each.get("role").text(), each.get("tool_calls")
            if role == "tool" and each.get("requestor").value != "user":
                text = each.get("content").text() if each.get("content") else ""
                call = each.get("id").optional_name() or ""
                yield {"role": "tool", "content": text, "tool_call_id": call}
            elif role == "assistant" or (role != "tool" and not calls.value):
                yield message(each, sampled=bool(place or calls.value))
