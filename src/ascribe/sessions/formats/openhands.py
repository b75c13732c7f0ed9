"""OpenHands trajectories: events of ``history`` or ``events``, of the old kind and of the SDK's.

Each action of the agent is a step, but calls that came in one response are one. Observations are
results of tools. Where the history was condensed, the summary is a step, and a new conversation
of the same session begins with the events that were kept. The reward is whether the instance was
resolved; a run that was not evaluated has none. What an event of the environment does not show the
agent, such as a change of its status, is left out.
"""

from collections.abc import Iterator
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import at, conversation
from ascribe.sessions.reading.records import Message, Record, canonical, content, tool_call

RESOLVED = ("test_result.report.resolved", "test_result.resolved", "report.resolved", "resolved")
CONDENSED = ("condensation", "Condensation")
ABOUT_THE_RUN = {
    *("change_agent_state", "agent_state_changed", "recall", "null", "condensation_request"),
    *("ConversationStateUpdateEvent", "PauseEvent", "TokenEvent", "LLMCompletionLogEvent"),
    *("CondensationRequest", "ConversationErrorEvent"),
}

RESULTS = {
    "ObservationEvent": "observation",
    "AgentErrorEvent": "error",
    "UserRejectObservation": "rejection_reason",
}
"""Events of the SDK that are results of tools, and where they have them."""


def read(record: Record) -> Iterator[Conversation]:
    """The conversations of one record: several if its history was condensed."""
    results = [at(record, name) for name in RESOLVED]
    resolved = next(filter(None, results), results[0])
    known = {"reward": resolved.number()} if resolved else {}
    cut = "maximum iteration" in str(record.get("error").value).lower()
    task: str | None = None
    for messages, context in _contexts((record.get("history") or record.get("events")).items()):
        each = conversation(record, messages, context=context, truncated=cut, **known)
        task = task or each.group  # by its prompt, which was condensed later
        yield changed(each, group=task)


def _contexts(events: list[Record]) -> Iterator[tuple[list[Message], int]]:
    """The messages of each context, and how many of them were in one before."""
    shown: dict[str, Message] = {}  # by the id of the event
    acted: set[str] = set()
    responses: dict[str, Message] = {}
    context, room = 0, 50 * len(events)
    for number, event in enumerate(events):
        name = event.get("id").optional_name() or f"event {number}"
        kind = _kind(event)
        if kind in CONDENSED:
            fields = event.get("args") or event
            summary = fields.get("summary").text() if fields.get("summary") else ""
            written = [{"role": "assistant", "content": summary}] if summary else []
            yield [*shown.values(), *written], context
            forgotten = {each.name() for each in fields.get("forgotten_event_ids").items()}
            shown = {each: shown[each] for each in shown if each not in forgotten}
            if summary:
                shown[name] = {"role": "user", "content": summary}
            context = len(shown)
            room -= context
            if room < 0:
                raise event.error(
                    "the history is condensed too often", hint="write it in fewer parts"
                )
            continue
        if kind in ABOUT_THE_RUN:
            continue
        message = _sdk_message(event, kind) if event.get("kind") else _message(event, name, acted)
        if message is None:
            continue
        response = event.get("llm_response_id")
        response = response or at(event, "tool_call_metadata.model_response.id")
        # A result names the response, too.
        calls = message.get("tool_calls") if response else None
        if calls and responses.setdefault(response.name(), message) is not message:
            responses[response.name()]["tool_calls"] += calls
        else:
            shown[name] = message
    yield list(shown.values()), context


def _kind(event: Record) -> str:
    """The name of an action or observation, or the kind of an event of the SDK."""
    if event.get("kind"):
        return event.get("kind").text()
    name = event.get("action") or event.get("observation")
    if not name:
        raise event.error("it must have an action, an observation or a kind")
    return name.text()


def _message(event: Record, name: str, acted: set[str]) -> Message | None:
    """The message of an old event, in OpenAI's form; None if the agent was shown nothing."""
    if not event.get("action"):
        text, cause = content(event.get("content"))[0], event.get("cause").optional_name()
        if cause in acted:
            return {"role": "tool", "content": text, "tool_call_id": cause}
        return {"role": "user", "content": text} if text else None
    kind, args, agent = _kind(event), event.get("args"), event.get("source").value == "agent"
    if kind in ("system", "message"):
        role = "system" if kind == "system" else "assistant" if agent else "user"
        return {"role": role, "content": content(args.get("content"))[0]}
    if not agent:
        return None
    acted.add(name)
    rest = _without(args, "thought")
    thought = content(args.get("thought"))[0]
    return {"role": "assistant", "content": thought, "tool_calls": [tool_call(kind, rest, name)]}


def _without(record: Record, name: str) -> dict[str, Any]:
    values = record.mapping() if record else {}
    return {key: value for key, value in values.items() if key != name}


def _sdk_message(event: Record, kind: str) -> Message:
    """The message of an event of the SDK, in OpenAI's form."""
    call = event.get("tool_call_id").optional_name() or ""
    if kind == "SystemPromptEvent":
        return {"role": "system", "content": event.get("system_prompt.text").text()}
    if kind == "MessageEvent":
        parts = (event.get("llm_message.content"), event.get("extended_content"))
        text = "\n".join(filter(None, (content(part)[0] for part in parts)))
        return {
            "role": "assistant" if event.get("source").value == "agent" else "user",
            "content": text,
        }
    if kind == "ActionEvent":
        made = event.get("tool_call")
        arguments = made.get("arguments").value if made else None
        if arguments is None:
            arguments = _without(event.get("action"), "kind")
        turn: Message = {"role": "assistant", "content": content(event.get("thought"))[0]}
        turn["tool_calls"] = [tool_call(event.get("tool_name").text(), arguments, call)]
        return turn
    if kind not in RESULTS:
        hint = "leave it out, or write it as a message"
        raise event.get("kind").error(f"{kind!r} is not read", hint=hint)
    result = event.get(RESULTS[kind])
    if isinstance(result.value, dict) and not result.get("content"):
        text = canonical(_without(result, "kind"))
    else:
        text = content(result.get("content") if isinstance(result.value, dict) else result)[0]
    return {"role": "tool", "content": text, "tool_call_id": call}


RECORDS = "history.0.{0} | !history events.0.{0}".format("action/observation/kind")
FORMAT = Format(
    "openhands",
    "OpenHands trajectories",
    RECORDS,
    read,
    example="formats/openhands.jsonl",
    beside=("metadata.json", "report.json"),
)
