"""Harbor's ATIF (Agent Trajectory Interchange Format): a trajectory per file.

The format has no reward and no task. Both are next to the file where Harbor writes it: the reward
in ``../verifier/reward.txt`` or ``reward.json``, the task in ``../result.json``; else the folder of
the trial is named after the task.

All trajectories of a trial are one session, else those of a folder with one ``session_id``: a main
one, its continuations in other files, and sub-agents, embedded or in files of their own. A
reference to a file is a name to look for among the files given; it is never opened. Steps that a
continuation copied are its context, and steps of an agent without a model are no decisions.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.files import read_records
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import (
    Message,
    Record,
    content,
    tool_call,
)
from ascribe.sessions.reading.scores import Score
from ascribe.sessions.reading.traces import one_group, seconds

ROLES = {"agent": "assistant", "user": "user", "system": "system"}
MISSING = "is not among the files given; give the folder of the trial, or remove the reference"


def session(record: Record) -> Hashable:
    """The trial, or the folder with the name of the run; None without a name."""
    trial, folder = _trial(record), record.path.absolute().parent
    if folder != trial / folder.name or folder.name == "agent" or _reward(trial):
        return trial, ""
    return (folder, record.get("session_id").name()) if record.get("session_id") else None


def scores(record: Record) -> list[Score]:
    """The reward in the file, or that of its trial."""
    if own := record.get("final_metrics.extra.reward"):
        return [Score("", own)]
    trial = _trial(record)
    return [Score("", found, trial)] if (found := _reward(trial)) else []


def read(records: Sequence[Record]) -> Iterator[Conversation]:
    """The trajectories of a session."""
    trial = _trial(records[0])
    task = one_group(record.get("extra.task") for record in records)
    task = task or _beside(trial / "result.json").get("task_name").optional_name()
    names = (each.get(key) for key in ("session_id", "trajectory_id") for each in records)
    name = next(filter(None, names), None)
    documents = _documents(records)
    ids = [f"{number} {each.place()}" for number, (_, _, each) in enumerate(documents)]
    parents = _parents(documents)
    order = _in_order(parents, len(documents))
    if len(order) < len(documents):
        raise records[0].error("its references form a cycle", hint="write each trajectory once")
    for number in order:
        place, _, document = documents[number]
        steps = document.get("steps").items(required=True)
        messages: list[Message] = []
        context = decisions = 0
        for step in steps:
            turn = _turn(step)
            copied = step.get("is_copied_context").flag()
            if copied and not decisions:
                context = len(messages) + len(turn)
            elif turn[0]["role"] == "assistant" and (copied or not _is_sampled(step)):
                turn[0]["role"] = "demonstration"
            else:
                decisions += turn[0]["role"] == "assistant"
            messages += turn
        if context and number not in parents:
            detail = "the trajectory that it was copied from"
            raise steps[0].get("is_copied_context").error(f"{detail} {MISSING}")
        parent, parent_step = parents.get(number, (None, None))
        yield Conversation(
            group=task or trial.name.rpartition("__")[0] or trial.name,
            trajectory=name.text() if name else trial.name,
            messages=messages,
            context=context,
            agent=document.get("agent.name").optional_name(),
            version=document.get("agent.model_name").optional_name(),
            id=ids[number],
            parent=None if parent is None else ids[parent],
            parent_step=parent_step,
            time=seconds(steps[0].get("timestamp")) if steps else None,
            extra={"record": place},
        )


Document: TypeAlias = tuple[int, int | None, Record]
"""The place of the file, the number of the trajectory in which this one is, and itself."""


def _documents(records: Sequence[Record]) -> list[Document]:
    """The trajectories of the files, and those embedded in them."""
    documents: list[Document] = [(place, None, each) for place, each in enumerate(records)]
    for number, (place, _, document) in enumerate(documents):  # it grows
        embedded = document.get("subagent_trajectories").items()
        documents += [(place, number, each) for each in embedded]
    return documents


def _parents(documents: Sequence[Document]) -> dict[int, tuple[int, int | None]]:
    """The trajectory that each one continues, or that started it, and then the step."""
    numbered = [(n, inside, each) for n, (_, inside, each) in enumerate(documents)]
    of_id = {(inside, each.get("trajectory_id").optional_name()): n for n, inside, each in numbered}
    of_file = {each.path.name: n for n, inside, each in numbered if inside is None}
    parents: dict[int, tuple[int, int | None]] = {}

    def link(reference: Record, path: Record, children: list[int | None], step: int | None) -> None:
        # The last part of a path is compared with the names of files; nothing is opened.
        children.append(of_file.get(PurePath(path.text()).name) if path else None)
        child = next((each for each in children if each is not None), None)
        if child is None:
            raise reference.error(f"the trajectory {MISSING}")
        parents.setdefault(child, (number, step))

    for number, _, document in numbered:
        if following := document.get("continued_trajectory_ref"):
            link(following, following, [], None)
        around = [number]  # and the trajectories in which it is, where its sub-agents may be too
        while (outer := documents[around[-1]][1]) is not None:
            around.append(outer)
        step = -1
        for each in document.get("steps").items(required=True):
            if each.get("is_copied_context").flag():
                continue
            step += each.get("source").value == "agent" and _is_sampled(each)
            for result in each.get("observation.results").items():
                for reference in result.get("subagent_trajectory_ref").items():
                    name = reference.get("trajectory_id").optional_name()
                    children = [of_id.get((place, name)) for place in (*around, None) if name]
                    link(reference, reference.get("trajectory_path"), children, max(step, 0))
    embedded = {number: (inside, None) for number, inside, _ in numbered if inside is not None}
    return embedded | parents


def _in_order(parents: Mapping[int, tuple[int, int | None]], count: int) -> list[int]:
    """The trajectories, each after the one before it, sub-agents before a continuation."""
    children: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for child, (parent, step) in parents.items():
        children[parent].append((math.inf if step is None else step, child))
    order, left = [], [number for number in reversed(range(count)) if number not in parents]
    while left:
        order.append(left.pop())
        left += [child for _, child in sorted(children[order[-1]], reverse=True)]
    return order


def _is_sampled(step: Record) -> bool:
    """Whether a model wrote the step; since version 1.7 the format can tell."""
    return bool(step.get("llm_call_count").value != 0)


def _turn(step: Record) -> list[Message]:
    """A step as messages: what was written, then the results of its tools."""
    results = step.get("observation.results").items()
    contents = [step.get("message"), *(each.get("content") for each in results)]
    for part in (p for each in contents if isinstance(each.value, list) for p in each.items()):
        if part.get("type").value not in ("text", "image"):
            raise part.get("type").error(
                "a part of ATIF is text or image", hint="write it as one of them"
            )
    source = step.get("source").text()
    if source not in ROLES:
        raise step.get("source").error("it must be agent, user or system")
    turn: Message = {"role": ROLES[source], "content": content(step.get("message"))[0]}
    if step.get("reasoning_content"):
        turn["reasoning_content"] = step.get("reasoning_content").text()
    calls = [
        tool_call(
            call.get("function_name").text(),
            call.get("arguments").mapping(),
            call.get("tool_call_id").value,
        )
        for call in step.get("tool_calls").items()
    ]
    if calls:
        turn["tool_calls"] = calls
    shown = [
        {
            "role": "tool",
            "content": content(result.get("content"))[0],
            "tool_call_id": str(result.get("source_call_id").value or ""),
        }
        for result in results
    ]
    return [turn, *shown]


def _trial(record: Record) -> Path:
    """The folder of the trial: the one around ``agent``, or around the file's own."""
    folders = record.path.absolute().parents
    return next((each.parent for each in folders if each.name == "agent"), folders[0].parent)


def _beside(path: Path) -> Record:
    """The JSON file; a null if there is none, or nothing in it."""
    return next(read_records(path), Record(None, path)) if path.is_file() else Record(None, path)


def _reward(trial: Path) -> Record:
    text = trial / "verifier" / "reward.txt"
    if text.is_file():
        try:
            return Record(float(text.read_text()[:100]), text)
        except ValueError as error:
            raise Record(None, text).error("it must be a number") from error
    whole = _beside(trial / "verifier" / "reward.json")
    return whole.get("reward") if isinstance(whole.value, dict) else whole


FORMAT = Format(
    "atif",
    "Harbor ATIF",
    "schema_version=ATIF.*",
    read,
    example="formats/atif",
    session=session,
    scores=scores,
    beside=("result.json", "reward.json", "config.json"),
)
