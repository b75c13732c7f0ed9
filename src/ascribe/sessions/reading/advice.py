"""What a record holds, and the options with which it could be read."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.fields import QUESTIONS, Fields
from ascribe.sessions.reading.names import EXPECTED, worth
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.turns import is_call, is_turn
from ascribe.steps.hints import command, option
from ascribe.steps.problems import one_line

MOST_FIELDS = 24
DEEPEST = 3
SHORT = 48
REWARD = re.compile(
    r".*(reward|score|point|success|pass|correct|solv|won|win|result|grade|outc).*|ok"
)
TASK = re.compile(
    r".*(task|question|problem|case|instance|scenario|prompt|goal|puzzle|level|ticket|issue).*"
)
ACTIONS = re.compile(r".*(action|command|move|call|step).*")


def values(record: Record) -> Iterator[tuple[str, Any]]:
    """The path and the value of each field, those of objects after their own."""
    level: list[tuple[str, Any]] = [("", record.value)]
    for _ in range(DEEPEST):
        inner = []
        for path, inside in level:
            for key, value in inside.items() if isinstance(inside, dict) else ():
                inner.append((f"{path}.{key}" if path else key, value))
        yield from inner
        level = inner


def described(record: Record) -> list[tuple[str, str, str]]:
    """The path, the type and the beginning of the value of each field."""
    return [
        (one_line(path, SHORT), *_described(value))
        for path, value in [*values(record)][:MOST_FIELDS]
        if not isinstance(value, dict)
    ]


def _described(value: Any) -> tuple[str, str]:
    if isinstance(value, list):
        first = value[0] if value else None
        if isinstance(first, dict):
            return f"list of {len(value):,}", one_line(f"each with {', '.join(first)}", SHORT)
        return f"list of {len(value):,}", one_line(str(first), SHORT)
    kinds = {bool: "true or false", int: "number", float: "number", str: "text"}
    return kinds.get(type(value), "nothing"), one_line(str(value), SHORT)


def guessed(record: Record) -> dict[str, str]:
    """The options with which the record can be read; none if nothing in it looks like a session."""
    found = [(path, value) for path, value in values(record) if not EXPECTED.fullmatch(path)]
    lists = [(path, value) for path, value in found if isinstance(value, list) and value]
    turns = [
        path for path, value in lists if all(is_turn(each) or is_call(each) for each in value[:3])
    ]
    acts = [path for path, value in lists if all(isinstance(each, str) for each in value)]
    acts = [each for each in acts if ACTIONS.fullmatch(each.lower())]
    if len({*map(_last, turns)}) > 1:
        return {}
    options = {"messages": turns[0]} if turns else {"actions": acts[0]} if acts else {}
    if not options:
        return {}
    rewards = [p for p, v in found if worth(v) is not None and REWARD.fullmatch(_last(p))]
    tasks = [p for p, v in found if isinstance(v, str | int) and TASK.fullmatch(_last(p))]
    tasks.sort(key=lambda path: _last(path) in QUESTIONS)  # a name rather than what is asked
    options |= {"reward": rewards[0]} if rewards else {}
    options |= {"group": tasks[0]} if tasks and tasks[0] not in rewards else {}
    return options if _read(record, options) else {}


def _last(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _read(record: Record, options: dict[str, str]) -> list[Conversation]:
    fields = {"task" if name == "group" else name: path for name, path in options.items()}
    try:
        return list(Fields(**fields)(record))  # type: ignore[arg-type]
    except ValueError:
        return []


def advice(record: Record, given: Path) -> str:
    """The options for a record in which no format was recognised."""
    options = guessed(record)
    if not options and {"trajectory", "step"} <= record.value.keys():  # a table without a group
        options = {"form": "rows"}
    if not options:
        names = (option(name, "FIELD") for name in ("messages", "actions", "reward"))
        return f"name what its fields are: {', '.join(names)}"
    words = [option(name, path) for name, path in options.items()]
    words += [] if options.keys() & {"reward", "form"} else [option("reward", "FIELD")]
    if not words[0].startswith("--"):
        return f"read it with {', '.join(words)}"
    return shlex.join(["ascribe", command(), str(given), *" ".join(words).split()])
