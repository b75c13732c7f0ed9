"""Harbor's ATIF (Agent Trajectory Interchange Format): one trajectory per file.

The format has no reward and no task. Both are next to the file where Harbor writes it: the reward
in ``../verifier/reward.txt`` or ``reward.json``, the task in ``../result.json``; else the folder of
the trial is named after the task. A run is one trajectory: those that go on in another file or
start sub-agents are refused.
"""

from collections.abc import Iterator
from pathlib import Path

from ascribe.sessions.formats.records import Message, Record, content, read_records, tool_call
from ascribe.sessions.messages import Conversation

SEVERAL = "ATIF runs of several trajectories are not read; write each run as one, or leave it out"


def read(record: Record) -> Iterator[Conversation]:
    """The trajectory."""
    steps = record.get("steps").items(required=True)
    parts = [record.get("continued_trajectory_ref"), record.get("subagent_trajectories")]
    parts += [step.get("is_copied_context") for step in steps]
    results = [each for step in steps for each in step.get("observation.results").items()]
    parts += [result.get("subagent_trajectory_ref") for result in results]
    contents = [
        *(each.get("message") for each in steps),
        *(each.get("content") for each in results),
    ]
    for part in (p for each in contents if isinstance(each.value, list) for p in each.items()):
        if part.get("type").value not in ("text", "image"):
            raise part.get("type").error("a part of ATIF is text or image; write it as one of them")
    for part in parts:
        if part.value:
            raise part.error(SEVERAL)
    messages = [each for step in steps for each in _turn(step)]
    folder = record.path.absolute().parent
    trial = folder.parent
    name = record.get("session_id") or record.get("trajectory_id")
    task = record.get("extra.task") or _beside(trial / "result.json").get("task_name")
    reward = record.get("final_metrics.extra.reward") or _reward(trial)
    # A trial has one reward, so it is one run; elsewhere a run is a session.
    of_trial = folder.name == "agent" or (reward and reward.path != record.path)
    run = (folder, "" if of_trial else name.optional_name() or record.place())
    yield Conversation(
        group=task.name() if task else trial.name.rpartition("__")[0] or trial.name,
        trajectory=name.text() if name else trial.name,
        messages=messages,
        reward=reward.optional_number(),
        agent=record.get("agent.name").optional_name(),
        version=record.get("agent.model_name").optional_name(),
        extra={"parts": ([(True, run), (False, run)], SEVERAL)},
    )


def _turn(step: Record) -> list[Message]:
    """A step as messages: what was written, then the results of its tools."""
    roles = {"agent": "assistant", "user": "user", "system": "system"}
    source = step.get("source").text()
    if source not in roles:
        raise step.get("source").error("it must be agent, user or system")
    turn: Message = {"role": roles[source], "content": content(step.get("message"))[0]}
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
    results = [
        {
            "role": "tool",
            "content": content(result.get("content"))[0],
            "tool_call_id": str(result.get("source_call_id").value or ""),
        }
        for result in step.get("observation.results").items()
    ]
    return [turn, *results]


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
