"""Sessions in containers: the attempts at a task, in a list or an object of one record.

Each gets the fields around it, but for those that tell a reward, which are of all of them, and
those that name a session.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ascribe.sessions.reading.fields import ACTIONS, MESSAGES, QUESTIONS, SESSIONS, TASKS
from ascribe.sessions.reading.names import CONTAINER, EXPECTED, LABELS, MODELS, VERSIONS
from ascribe.sessions.reading.records import Record, canonical
from ascribe.sessions.reading.turns import ALIASES, is_turn

OF_VERSIONS = ("models", "agents", "systems", "policies")
"""Lists of versions, each with its sessions."""
RUNS = (
    *("attempts", "rollouts", "trials", "runs", "sessions", "samples", "episodes", "generations"),
    *("trajectories", "completions", "results", "candidates", "tasks", "problems", "instances"),
    *("responses", "rounds"),
)
"""Lists of sessions in a record."""
OF_EACH = {*LABELS, *VERSIONS, *MODELS, *SESSIONS}
"""What a list beside the sessions may say of each, in the plural."""
TASK_NAMES = {*TASKS} - {*QUESTIONS, "prompt"}
DEEPEST = 4
MODEL = re.compile(
    r"(.*/)?(gpt|claude|llama|qwen|gemini|gemma|mistral|mixtral|deepseek|o[1-4]\b|grok|phi|kimi|glm)"
    r".*|.*\d+b(-.*)?",
    re.I,
)
"""Names of models."""
SIDES = {"input", "inputs", "output", "outputs", "request", "response"}
"""Keys of what a model was shown and said, which are no sessions."""
LONGEST_NAME = 100
PARTS = re.compile(
    r"train.*|test.*|val.*|dev.*|won|lost|pass.*|fail.*|success.*|(in)?correct", re.I
)
"""Keys of parts of a log that are no versions."""
OF_RUN = re.compile(r"(attempt|run|trial|sample|rollout|episode|seed|iter(ation)?)?[ _-]?\d*")
"""Keys that name an attempt, not a task."""


def spread(record: Record, depth: int = DEEPEST) -> Iterator[Record]:
    """The sessions in a record: itself, unless it is a container of others."""
    parts = [] if depth == 0 or _has_session(record.value) else list(_parts(record))
    if not parts:
        yield record
    for part in parts:
        yield from spread(part, depth - 1)


def _parts(record: Record) -> Iterator[Record]:
    """What a container holds, each with the fields around it."""
    value = record.value
    lists = [name for name in RUNS if isinstance(value.get(name), list) and _are_runs(value[name])]
    for name in lists:
        runs = value[name]
        for place, each in enumerate(record.get_key(name).items()):
            beside = _of_each(value, name, place, len(runs))
            chat = {"messages": each.value} if isinstance(each.value, list) else each.value
            inside = _with(record, {**beside, **chat}, *lists, alone=len(runs) == 1, runs=runs)
            named = inside.keys() & {*SESSIONS}
            yield replace(each, value=inside, beside=record.beside, key="" if named else f"{place}")
    if lists:
        return
    runs = {k: v for k, v in value.items() if isinstance(v, dict) and _holds(v)}
    several = (len(runs) > 1 or bool(record.key)) and SIDES.isdisjoint(runs)
    if runs and several and all(not isinstance(v, dict) or k in runs for k, v in value.items()):
        earned = any(name in value for name in LABELS)
        if not earned or all(v.keys() & {*LABELS} for v in runs.values()):
            for key in runs:
                inside = _with(record, runs[key], *runs, alone=False)
                each = record.get_key(key)
                yield replace(each, value=inside, beside=record.beside, key=key)


def _are_runs(values: Sequence[Any]) -> bool:
    """Whether a list holds sessions, of which some may have crashed."""
    return any(map(_holds, values)) and all(isinstance(each, dict | list) for each in values)


def _with(
    record: Record, own: Mapping[str, Any], *names: str, alone: bool, runs: Sequence[Any] = ()
) -> dict[str, Any]:
    """A session with the fields of its container, and its task from the key of that.

    Where the sessions ask different things, the container is more than a task.
    """
    around = {
        key: value
        for key, value in record.value.items()
        if key not in own
        and key not in names
        and key not in SESSIONS
        and (alone or key not in LABELS)
        and not isinstance(value, list)
        and not (isinstance(value, dict) and value.keys() & {*LABELS})
    }
    whole = {**around, **own}
    name = record.key or record.value.get("id") or record.value.get("name")
    inner = [each for each in runs if isinstance(each, dict)]
    asked = {asked_in(each) for each in inner if _has_session(each)}
    of_run = str(name) in RUNS or OF_RUN.fullmatch(str(name)) or (inner and len(asked) != 1)
    if name and not of_run and not whole.keys() & (TASK_NAMES - {CONTAINER}):
        whole |= {CONTAINER: name}
    return whole


def _of_each(value: Mapping[str, Any], name: str, place: int, count: int) -> dict[str, Any]:
    """What lists beside the sessions say of the one at this place."""
    lists = ((key, each) for key, each in value.items() if key != name and isinstance(each, list))
    found = ((key.removesuffix("s"), each) for key, each in lists if len(each) == count)
    return {key: each[place] for key, each in found if key in OF_EACH}


def _has_session(value: Any) -> bool:
    """Whether an object has messages or actions of its own."""
    lists = [value.get(name) for name in MESSAGES] if isinstance(value, dict) else []
    acted = [value.get(name) for name in ACTIONS[:-1]] if isinstance(value, dict) else []
    return any(isinstance(v, list) and v and _is_own(v[0]) for v in lists) or any(
        isinstance(v, list) and v and not isinstance(v[0], list) for v in acted
    )


def _is_own(first: Any) -> bool:
    """Whether the first entry of a list is a turn, not a session."""
    return is_turn(first) and not _has_session(first)


def _holds(value: Any, depth: int = DEEPEST) -> bool:
    """Whether a value is a session, the messages of one, or holds sessions."""
    if isinstance(value, list):
        return bool(value) and all(map(is_turn, value[:3]))
    if not isinstance(value, dict) or depth == 0:
        return False
    if _has_session(value):
        return True
    inner = [(key, v) for key, v in value.items() if not EXPECTED.fullmatch(key)]
    return any(
        (isinstance(v, dict) and _holds(v, depth - 1))
        or (key in RUNS and isinstance(v, list) and bool(v) and _holds(v[0], depth - 1))
        for key, v in inner
    )


def by_task(whole: Record) -> Iterator[Record]:
    """The records under the names of their tasks; none if the keys are not such names.

    Those of lists are if the records of a list name no task and have one question.
    """
    value = whole.value
    if versions := list(_by_version(whole)):
        yield from versions
        return
    boxes = [replace(whole.get_key(key), key=key) for key in value]
    inside = all(_holds(each.value) and not _has_session(each.value) for each in boxes)
    if inside and all(isinstance(each.value, dict) for each in boxes):
        if any(len(list(spread(each))) > 1 for each in boxes):
            yield from boxes
        return
    lists = {key: each for key, each in value.items() if isinstance(each, list) and each}
    if len(lists) < 2 or len(lists) < len(value):
        return
    for runs in lists.values():
        sessions = all(isinstance(each, dict) and _has_session(each) for each in runs)
        if not sessions or any(each.keys() & {*TASKS} for each in runs):
            return
        if len(set(map(asked_in, runs))) > 1:
            return
    if len({asked_in(runs[0]) for runs in lists.values()}) == 1:
        return  # the keys tell attempts at one task apart, such as won and lost ones
    for key in lists:
        for each in whole.get_key(key).items():
            yield each.of({CONTAINER: key, **each.value})


def _by_version(whole: Record) -> Iterator[Record]:
    """The records under the names of versions; none if the keys are not such names."""
    value = whole.value
    for name in OF_VERSIONS:
        listed = value.get(name) if isinstance(value.get(name), list) else []
        if listed and all(isinstance(e, dict) and "name" in e and _holds(e) for e in listed):
            for each in whole.get_key(name).items():
                rest = {key: inside for key, inside in each.value.items() if key != "name"}
                yield each.of({"model": each.value["name"], **rest})
            return
    if len(value) < 2 or not all(isinstance(each, list | dict) and each for each in value.values()):
        return
    if not all(len(key) <= LONGEST_NAME and MODEL.fullmatch(key) for key in value):
        asked = [_asked(each) for each in value.values()]
        others = any(PARTS.fullmatch(key) or OF_RUN.fullmatch(key.lower()) for key in value)
        if others or len(asked[0]) < 2 or any(each != asked[0] for each in asked):
            return
    for key in value:
        box = whole.get_key(key)
        alone = isinstance(box.value, list) or _has_session(box.value)
        tasks = [box] if alone else [box.get_key(task) for task in box.value]
        for task, part in zip([""] if alone else [*box.value], tasks, strict=True):
            for each in part.items() if isinstance(part.value, list) else [part]:
                if isinstance(each.value, dict) and _holds(each.value):
                    named = {"model": key} | ({CONTAINER: task} if task else {})
                    yield each.of({**named, **each.value})


def _asked(runs: Any) -> set[str]:
    """What the sessions of a list ask; nothing if it holds anything else or they name versions."""
    listed = runs if isinstance(runs, list) else []
    whole = all(_has_session(each) and not each.keys() & {*VERSIONS, *MODELS} for each in listed)
    return set(map(asked_in, listed)) if whole else set()


def asked_in(value: Mapping[str, Any]) -> str:
    """The first text of the user in a session."""
    chats = (value[name] for name in MESSAGES if isinstance(value.get(name), list))
    for turn in (turn for chat in chats for turn in chat if isinstance(turn, dict)):
        speaker = next((turn[n] for n in ("role", "from", "speaker") if n in turn), "")
        if ALIASES.get(str(speaker).lower()) == "user":
            said = turn.get("content", turn.get("value", turn.get("text")))
            return canonical(said)
    return ""
