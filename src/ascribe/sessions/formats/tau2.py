"""Simulations of tau2-bench: the file's ``simulations``, one conversation each.

The user has tools, too: neither those calls nor their results are shown to the agent, so they are
left out. The greeting that opens a conversation is the benchmark's, and no step. The agent's policy
is not among the messages. Simulations of voices are not read. A task is called ``DOMAIN/ID``, and
the version is the agent's implementation and its model, if the file says these.
"""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import conversation
from ascribe.sessions.reading.records import Message, Record, message

LIMITS = ("max_steps", "too_many_errors", "timeout")
CRASHES = ("agent_error", "infrastructure_error", "unexpected_error")
LONG_ID = 20
"""Characters of an id that was drawn at random, and is in no other file."""


def read(simulation: Record) -> Iterator[Conversation]:
    """The conversation of one simulation."""
    if (ticks := simulation.get("ticks")).value:
        raise ticks.error("simulations of voices are not read", hint="simulate the task with texts")
    trial, name = simulation.get("trial"), simulation.get("id")
    info = simulation.of((simulation.beside or {}).get("info"))
    agent = [info.get(f"agent_info.{each}").optional_name() for each in ("implementation", "llm")]
    domain = info.get("environment_info.domain_name").optional_name()
    task = simulation.get("task_id").name()
    group = f"{domain}/{task}" if domain else task
    yield conversation(
        simulation,
        list(_messages(simulation.get("messages").items())),
        group=group,
        task=group if domain else None,
        trajectory=(name or trial).name(),
        identity=name.optional_name() if name and len(name.name()) >= LONG_ID else None,
        version=" ".join(filter(None, agent)) or None,
        reward=simulation.get("reward_info.reward").optional_number(),
        truncated=simulation.get("termination_reason").value in LIMITS,
        crashed=simulation.get("termination_reason").value in CRASHES,
    )


def _messages(records: list[Record]) -> Iterator[Message]:
    """What the agent wrote and was shown."""
    for place, record in enumerate(records):
        alone = isinstance(record.value, dict) and "tool_messages" not in record.value
        several = [] if alone else record.get("tool_messages").items()
        for each in several or [record]:
            role, calls = each.get("role").text(), each.value.get("tool_calls")
            if role == "tool" and each.value.get("requestor") != "user":
                text = each.get("content").text() if each.get("content") else ""
                call = each.get("id").optional_name() or ""
                yield {"role": "tool", "content": text, "tool_call_id": call}
            elif role == "assistant" or (role != "tool" and not calls):
                yield message(each, sampled=bool(place or calls))


FORMAT = Format(
    "tau2", "tau2 simulations", "task_id messages reward_info", read, example="formats/tau2.json"
)
