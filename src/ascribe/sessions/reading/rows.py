"""Logs with a row for each message or step, and the name of the session in each.

The rows of a session are in the order of the file, or of a column that numbers them. Rows that say
nothing may hold its reward.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading import names
from ascribe.sessions.reading.fields import QUESTIONS, TASKS, VERSIONS
from ascribe.sessions.reading.names import none, prompt_name, usual
from ascribe.sessions.reading.records import Message, Record
from ascribe.sessions.reading.scores import Score
from ascribe.sessions.reading.traces import one_group
from ascribe.sessions.reading.turns import (
    ACTION,
    ARGUMENTS,
    CONTENTS,
    OBSERVATION,
    SPEAKERS,
    THOUGHT,
    acts,
    agents_of,
    is_turn,
    messages_of,
)

SESSIONS = (
    *("session_id", "session", "conversation_id", "thread_id", "trajectory_id", "rollout_id"),
    *(
        "dialogue_id",
        "dialog_id",
        "chat_id",
        "episode_id",
        "run_id",
        "trace_id",
        "episode",
        "trial_id",
    ),
)
"""What names the session of a row."""
FINER = ("episode", "episode_id", "trial_id", "trial", "attempt")
"""What tells the sessions of a run apart."""
NUMBERS = (
    *("step", "turn", "step_id", "turn_id", "step_index", "turn_index", "step_idx", "turn_idx"),
    *("index", "idx", "seq", "position", "message_index", "msg_index", "order", "i", "t"),
)
"""What numbers the rows of a session."""
OWN = {*SPEAKERS, *CONTENTS, *ACTION, *ARGUMENTS, *OBSERVATION, *THOUGHT, "tool_call_id"}
"""What a row says itself; the rest is about its session."""
TASK_NAMES = tuple(name for name in TASKS if name not in OWN | {*QUESTIONS})
LABELS = tuple(each for each in names.LABELS if each not in OWN | {"status", "label", "grade"})


def session(record: Record) -> Hashable:
    """The folder and the name of the session; None for a row without one."""
    found = [each.name() for each in _named(record)]
    if found and all(name.isdigit() for name in found):  # numbers start again in each task
        asked = (usual(record, each).optional_name() for each in (TASK_NAMES, QUESTIONS))
        found += [each for each in asked if each]
    return (str(record.file.parent), *found) if found else None


def _named(record: Record) -> list[Record]:
    """The name of the session, after that of its run if a row has both."""
    found = (usual(record, names) for names in (SESSIONS, FINER))
    return list({each.field: each for each in found if each}.values())


def scores(record: Record) -> list[Score]:
    """The reward of a row or of its session."""
    for name in LABELS:
        if names.worth(record.value.get(name)) is not None:
            return [Score("" if name in names.REWARDS else name, record.get(name))]
    return []


def score(record: Record) -> float:
    """The number of a reward."""
    value = names.worth(record.value)
    return record.number() if value is None else value


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The session of some rows; none if no row has a turn or a reward."""
    order, places = _ordered(records)
    rows, turns = [], []
    for place in places:
        value = {k: v for k, v in records[place].value.items() if k in OWN and v is not None}
        if is_turn(value):
            rows.append(place)
            turns.append(value)
    first = records[0]
    chat = first.of(turns, "")
    messages = messages_of(chat) if turns else []
    rewarded = next((each for each in records if scores(each)), None)
    if not messages and rewarded is None:
        return
    group = one_group(usual(each, TASK_NAMES) for each in records)
    question = next(
        (each.value.get(n) for each in records for n in QUESTIONS if n in each.value), None
    )
    if (
        isinstance(question, str)
        and question
        and not any(m["role"] == "user" for m in messages[:2])
    ):
        messages = [{"role": "user", "content": question}, *messages]
    named = _named(first)
    version = next(filter(None, (usual(each, VERSIONS) for each in records)), none(first))
    whole = Conversation(
        group=group or prompt_name(messages),
        trajectory="/".join(each.name() for each in named) or first.short(),
        messages=messages,
        version=version.optional_name(),
        **agents_of(messages),
    )
    taken = {
        "messages": f"rows with {_listed(turns[:1])}",
        "session": " and ".join(each.field for each in named),
    }
    if order:
        taken["messages"] += f" in the order of {order}"
    if group:
        taken["task"] = next(e for e in (usual(r, TASK_NAMES) for r in records) if e).field
    if rewarded is not None:
        taken["reward"] = scores(rewarded)[0].value.field
    extra = {"fields": taken, "steps": _steps(chat, rows, messages, len(records))}
    yield changed(whole, extra=extra)


def _listed(turns: Sequence[dict[str, Any]]) -> str:
    return " and ".join(name for turn in turns for name in turn)


def _ordered(records: Sequence[Record]) -> tuple[str, list[int]]:
    """The column that numbers the rows, if one does, and their places in its order."""
    places = list(range(len(records)))
    for name in NUMBERS:
        numbers = [each.value.get(name) for each in records]
        if all(isinstance(each, int | float) for each in numbers) and len(set(numbers)) > 1:
            return name, sorted(places, key=lambda place: float(numbers[place]))
    return "", places


def _steps(
    chat: Record, rows: Sequence[int], messages: Sequence[Message], count: int
) -> dict[int, int]:
    """The step that each record belongs to: the last one up to it."""
    total = sum(each["role"] == "assistant" for each in messages)
    done = [acts(each) for each in chat.items()]
    if sum(done) != total:
        return dict.fromkeys(range(count), total - 1)
    steps = dict.fromkeys(range(count), total - 1)
    number = -1
    for place, acted in zip(rows, done, strict=True):
        number += acted
        steps[place] = max(number, 0)
    return steps
