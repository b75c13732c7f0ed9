"""Items of OpenAI's Responses API as messages.

A turn of the model is a run of its items: reasoning, messages and function calls up to the next
output of a function or message of a user. There is no text beside a call, but a summary of the
reasoning, which is no part of an action.
"""

from collections.abc import Sequence

from ascribe.sessions.reading.records import Message, Record, canonical, content, message, tool_call

OUTPUTS = ("output", "outputs", "result", "results")
NO_ARGUMENTS = {"type", "id", "call_id", "status", *OUTPUTS}


def prompt(record: Record, *, sampled: bool = True) -> list[Message]:
    """The messages of an input, which may be the text of the user."""
    if isinstance(record.value, str):
        return [{"role": "user", "content": record.text()}]
    return turns(record, sampled=sampled)


def turns(record: Record, *, sampled: bool = True) -> list[Message]:
    """Items as messages, those of one turn of the model as one."""
    messages: list[Message] = []
    turn: list[Record] = []
    for item in record.items(required=True):
        kind = _kind(item)
        shown: list[Message] = []
        if kind.endswith("_call_output"):
            shown = [_result(item, "output")]
        elif kind == "message" and item.get("role").value != "assistant":
            shown = [message(item)]
        elif kind in ("message", "reasoning") or kind.endswith("_call"):
            turn.append(item)
            # A tool of the server: the item holds what the model was shown next.
            shown = [_result(item, name) for name in OUTPUTS if item.get(name).value]
        else:
            raise item.get("type").error(
                f"{kind!r} is not read", hint="write it as a message, or not"
            )
        if shown:
            messages += [*_turn(turn, sampled=sampled), *shown]
            turn = []
    return [*messages, *_turn(turn, sampled=sampled)]


def _kind(item: Record) -> str:
    return item.get("type").text() if item.get("type") else "message"


def _result(item: Record, name: str) -> Message:
    value, call = item.get(name), item.get("call_id") or item.get("id")
    parts = value.value if isinstance(value.value, list) else []
    texts = isinstance(value.value, str) or (parts and _kind(value.items()[0]).startswith("input_"))
    text = content(value)[0] if texts else canonical(value.value)
    return {"role": "tool", "content": text, "tool_call_id": call.optional_name() or ""}


def _turn(items: Sequence[Record], *, sampled: bool) -> list[Message]:
    """The message of a run of the model's items; none if there are none."""
    texts, thoughts, calls = [], [], []
    for item in items:
        kind = _kind(item)
        if kind == "message":
            texts.append(message(item)["content"])
        elif kind == "reasoning":
            thoughts += [content(item.get(name))[0] for name in ("summary", "content")]
        else:
            rest = {key: value for key, value in item.value.items() if key not in NO_ARGUMENTS}
            named = item.get("name")
            arguments = next((rest[key] for key in ("arguments", "input") if key in rest), None)
            call = item.get("call_id") or item.get("id")
            name, arguments = (named.text(), arguments) if named else (kind, rest)
            calls.append(tool_call(name, arguments, call.value))
    turn: Message = {"role": "assistant" if sampled else "demonstration"}
    turn["content"] = "\n".join(filter(None, texts))
    if any(thoughts):
        turn["reasoning_content"] = "\n".join(filter(None, thoughts))
    if calls:
        turn["tool_calls"] = calls
    return [turn] if items else []
