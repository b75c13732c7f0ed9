"""NeMo-Gym rollouts: one per line, with a response in the form of OpenAI's Responses API."""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.items import prompt, turns
from ascribe.sessions.reading.names import prompt_name
from ascribe.sessions.reading.records import Record


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


RECORDS = "_ng_task_index response:object | responses_create_params response:object"
FORMAT = Format("nemo-gym", "NeMo-Gym rollouts", RECORDS, read, example="formats/nemo_gym.jsonl")
