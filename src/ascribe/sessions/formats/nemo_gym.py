"""NeMo-Gym rollouts: one per line, with a response in the form of OpenAI's Responses API."""

from collections.abc import Iterator

from ascribe.sessions.formats.chats import prompt_name
from ascribe.sessions.formats.records import Record
from ascribe.sessions.formats.responses import prompt, turns
from ascribe.sessions.messages import Conversation


def read(record: Record) -> Iterator[Conversation]:
    """The rollout of one line."""
    asked = record.get("responses_create_params.input")
    messages = prompt(asked, sampled=False) if asked else []
    messages += turns(record.get("response.output"))
    task = record.get("_ng_task_index") or record.get("task_id")
    rollout = record.get("_ng_rollout_index")
    cut = bool(record.get("response.incomplete_details"))
    steps = sum(each["role"] == "assistant" for each in messages)
    yield Conversation(
        group=task.optional_name() or prompt_name(messages),
        trajectory=rollout.optional_name() or record.short(),
        messages=messages,
        reward=record.get("reward").optional_number(),
        truncated=cut,
        truncated_turns=[steps - 1] if cut else [],
    )
