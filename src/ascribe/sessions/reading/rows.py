"""Logs with a row for each message or step, and the name of the session in each.

The rows of a session are in the order of the file, or of a column that numbers them. Rows that say
nothing may hold its reward.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading import fields, names
from ascribe.sessions.reading.fields import TASKS, VERSIONS
from ascribe.sessions.reading.names import none, prompt_name, usual
from ascribe.sessions.reading.records import Message, Record, about_session
from ascribe.sessions.reading.scores import Score
from ascribe.sessions.reading.traces import one_group, seconds
from ascribe.sessions.reading.turns import (
    ACTION,
    ALIASES,
    ARGUMENTS,
    CONTENTS,
    DATA,
    KINDS,
    OBSERVATION,
    SPEAKERS,
    THOUGHT,
    acts,
    agents_of,
    is_event,
    is_turn,
    kind_of,
    left_out,
    messages_of,
)
from ascribe.steps.problems import TableError

SESSIONS = (
    *(*names.SESSIONS, *names.RUNS),
    *("trace_id", "run", "rollout", "conversation", "trajectory"),
)
"""What names the session of a row."""
FINER = ("episode", "episode_id", "trial_id", "trial", "attempt")
"""What tells the sessions of a run apart."""
NUMBERS = (
    *("step", "turn", "step_id", "turn_id", "step_index", "turn_index", "step_idx", "turn_idx"),
    *("index", "idx", "seq", "position", "message_index", "msg_index", "order", "i", "t"),
    *("turn_no", "step_no", "turn_number", "step_number", "message_no"),
)
"""What numbers the rows of a session."""
ASKED, ANSWER = ("user", "prompt", "input"), ("assistant", "response", "completion", "output")
"""What a row of a question and its answer has."""
OWN = {*SPEAKERS, *CONTENTS, *ACTION, *ARGUMENTS, *OBSERVATION, *THOUGHT, *KINDS, *DATA}
OWN |= {"tool_call_id"}
"""What a row says itself; the rest is about its session."""
OF_MESSAGE = {*SPEAKERS, *CONTENTS, *NUMBERS, *names.TIMES, *THOUGHT, "ts", "tool_calls"}
OF_MESSAGE |= {"tool_call_id", "id", "metadata"}
QUESTIONS = tuple(name for name in fields.QUESTIONS if name not in OWN)
TASK_NAMES = tuple(name for name in TASKS if name not in OWN | {*QUESTIONS})
LABELS = tuple(each for each in names.LABELS if each not in OWN | {"status", "label", "grade"})
ABOUT = {*TASK_NAMES, *QUESTIONS, *LABELS, *VERSIONS}
"""What an event that is no turn may say of its session."""


def is_message(value: Any) -> bool:
    """Whether a row is a message and no more, so that those of a file are a session."""
    if not isinstance(value, dict) or not value.keys() <= OF_MESSAGE or "content" not in value:
        return False
    return str(value.get("role")).lower() in ALIASES


def _arguments(value: Mapping[str, Any]) -> bool:
    """Whether a row has the arguments of a call as an object, so that its name is a tool's."""
    return any(isinstance(value.get(name), dict) for name in ARGUMENTS)


def opened(record: Record) -> Iterator[Record]:
    """A row with what its event says of the session, or a file beside its messages."""
    value = record.value
    if is_event(value) and kind_of(value).lower() not in ALIASES:
        data = next(value[name] for name in DATA if value.get(name) is not None)
        yield record.of({**{k: v for k, v in data.items() if k in ABOUT}, **value})
    elif isinstance(value.get("name"), str) and "role" not in value and _arguments(value):
        yield record.of({"tool": value["name"], **value})
    elif is_message(value) and (about := about_session(record)):
        yield record.of({**value, "metadata": about})
    else:
        yield record


def session(record: Record) -> Hashable:
    """The folder and the name of the session; None for a row without one."""
    found = [each.name() for each in _named(record)]
    # Numbers start again in each task, which not every event names.
    if found and all(name.isdigit() for name in found) and not is_event(record.value):
        asked = (usual(record, each).optional_name() for each in (TASK_NAMES, QUESTIONS))
        found += [each for each in asked if each]
    if not found and is_message(record.value):
        return str(record.file)
    return (str(record.file.parent), *found) if found else None


def _named(record: Record) -> list[Record]:
    """The name of the session, after that of its run if a row has both."""
    found = (usual(record, names) for names in (SESSIONS, FINER))
    return list({each.field: each for each in found if each}.values())


def scores(record: Record) -> list[Score]:
    """The reward of a row or of its session."""
    for place in (record, record.get("metadata")):
        known = place.value if isinstance(place.value, dict) else {}
        for name in LABELS:
            if names.worth(known.get(name)) is not None:
                return [Score("" if name in names.REWARDS else name, place.get(name))]
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
    named = _named(first)
    begun = [n for n in range(1, len(turns)) if turns[n].get("role") == "system"]
    if not named and any(turns[n - 1].get("role") != "system" for n in begun):
        what = "its messages begin anew, and nothing names their sessions"
        raise records[rows[begun[0]]].error(what, hint="add a column session_id")
    chat = first.of(turns, "")
    messages = messages_of(chat) if turns else []
    left = left_out(chat) if turns else []
    if len(left) > 1 and not messages:
        hint = "name their kinds user_message, llm_response and tool_result"
        raise first.error(f"no event of its session is a turn: {', '.join(left)}", hint=hint)
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
    version = next(filter(None, (usual(each, VERSIONS) for each in records)), none(first))
    whole = Conversation(
        group=group or prompt_name(messages),
        trajectory="/".join(each.name() for each in named) or _file_name(first),
        messages=messages,
        version=version.optional_name(),
        **agents_of(messages),
    )
    taken = {
        "messages": f"rows with {_listed(turns[:1])}",
        "session": " and ".join(each.field for each in named) or "its file",
    }
    if left:
        taken["messages"] += f" (without {', '.join(left)})"
    if order:
        taken["messages"] += f" in the order of {order}"
    if group:
        taken["task"] = next(e for e in (usual(r, TASK_NAMES) for r in records) if e).field
    if rewarded is not None:
        taken["reward"] = scores(rewarded)[0].value.field
    extra = {"fields": taken, "steps": _steps(chat, rows, messages, len(records))}
    yield changed(whole, extra=extra)


def _file_name(record: Record) -> str:
    """The name of a file, or of its folder if any session's file could have it."""
    name = record.file.name.partition(".")[0]
    return record.file.parent.name if name in fields.MESSAGES else name


def _listed(turns: Sequence[dict[str, Any]]) -> str:
    return " and ".join(name for turn in turns for name in turn)


def _ordered(records: Sequence[Record]) -> tuple[str, list[int]]:
    """The column that numbers the rows, if one does, and their places in its order."""
    places = list(range(len(records)))
    for name in NUMBERS:
        written = [each.value.get(name) for each in records]
        numbers: list[Any] = [
            names.number_of(each) if isinstance(each, str) else each for each in written
        ]
        told = all(isinstance(e, int | float) and not isinstance(e, bool) for e in numbers)
        if told and len(set(numbers)) > 1:
            return name, sorted(places, key=lambda place: numbers[place])
    for name in (each for each in ("ts", *names.TIMES) if each in records[0].value):
        with suppress(TableError):  # a time in another form
            times = [seconds(each.get(name)) for each in records]
            if None not in times and len(set(times)) > 1:
                return name, sorted(places, key=lambda place: times[place] or 0.0)
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
