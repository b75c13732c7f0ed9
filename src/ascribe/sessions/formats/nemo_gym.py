"""NeMo-Gym rollouts: one per line, with a response in the form of OpenAI's Responses API.

A turn of the model is a run of its items: reasoning, messages and function calls up to the next
output of a function or message of a user.
"""

from collections.abc import Iterator

from ascribe.sessions.formats.openai import prompt_name
from ascribe.sessions.formats.records import Message, Record, content, message, tool_call
from ascribe.sessions.messages import Conversation


def read(record: Record) -> Iterator[Conversation]:
    """The rollout of one line."""
    prompt = record.get("responses_create_params.input")
    if isinstance(prompt.value, str):
        messages: list[Message] = [{"role": "user", "content": prompt.text()}]
    else:
        messages = _turns(prompt.items(), sampled=False)
    messages += _turns(record.get("response.output").items(required=True), sampled=True)
    task = record.get("_ng_task_index") or record.get("task_id")
    rollout = record.get("_ng_rollout_index")
    cut = bool(record.get("response.incomplete_details"))
    turns = sum(each["role"] == "assistant" for each in messages)
    yield Conversation(
        group=task.optional_name() or prompt_name(messages),
        trajectory=rollout.optional_name() or record.short(),
        messages=messages,
        reward=record.get("reward").optional_number(),
        truncated=cut,
        truncated_turns=[turns - 1] if cut else [],
    )


def _turns(items: list[Record], *, sampled: bool) -> list[Message]:
    """Items of the Responses API as messages; items of one turn of the model become one."""
    messages: list[Message] = []
    turn: Message | None = None
    for item in items:
        kind = item.get("type").value or "message"
        if kind == "function_call_output":
            turn = None
            name = str(item.get("call_id").value or "")
            text = content(item.get("output"))[0]
            messages.append({"role": "tool", "content": text, "tool_call_id": name})
            continue
        if kind == "message" and item.get("role").value != "assistant":
            turn = None
            messages.append(message(item))
            continue
        if turn is None:
            turn = {"role": "assistant" if sampled else "demonstration", "content": ""}
            messages.append(turn)
        if kind == "message":
            turn["content"] = "\n".join(filter(None, (turn["content"], message(item)["content"])))
        elif kind == "reasoning":
            parts = (content(item.get(name))[0] for name in ("summary", "content"))
            turn["reasoning_content"] = "\n".join(filter(None, parts))
        elif kind == "function_call":
            name, arguments = item.get("name").text(), item.get("arguments").value
            call = tool_call(name, arguments, item.get("call_id").value)
            turn.setdefault("tool_calls", []).append(call)
        else:
            turn.setdefault("tool_calls", []).append(tool_call(str(kind), item.value))
    return messages
