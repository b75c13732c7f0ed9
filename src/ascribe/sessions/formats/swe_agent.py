"""SWE-agent trajectories: ``.traj`` files of ``trajectory``, ``history`` and ``info``.

A step's action is the command that was run, not the response in which it was found. Before the
first step the model was shown its ``query``; without one, the history up to the first action. The
``state`` (open file, working directory) is a key of the state. SWE-agent 1 writes an object, taken
after the action: the key of the next step. Before, it was a text, taken before the action. The file
has no reward: give it with ``reward``. The task is the folder if the file is called so, as
SWE-agent does; else tasks are told apart by their prompts.
"""

import re
from collections.abc import Iterator
from itertools import takewhile

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import conversation
from ascribe.sessions.reading.records import Message, Record, canonical, message

LIMITS = ("exit_cost", "exit_context", "exit_total_execution_time", "exit_command_timeout")
PLACE = re.compile(r'\s*\{"open_file": "[^"]*", "working_dir": "[^"]*"\}\s*')
"""A state that says where the agent is, and nothing else."""
START = "start"
"""The key of a first step before which no state was taken."""


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one file."""
    steps = record.get("trajectory").items(required=True)
    query = steps[0].get("query") if steps else None
    prompt = query.items() if query else _prompt(record.get("history"))
    messages = [message(each, sampled=False) for each in prompt]
    for step in steps:
        messages += _step(step)
    keys = [canonical(step.get("state").value) if step.get("state") else None for step in steps]
    if all(key is not None and PLACE.fullmatch(key) for key in keys):
        keys = [None]  # unlike situations are in one file and folder
    if any(isinstance(step.get("state").value, dict) for step in steps):
        keys = [START, *keys[:-1]]
    folder, name = record.file.absolute().parent, record.file.stem
    run = {"group": name, "trajectory": (folder.parent if folder.name == name else folder).name}
    if record.file.suffix != ".traj":
        run = {"trajectory": record.short()}
    # What was submitted is graded, also where a limit made the agent submit it.
    status = str(record.get("info.exit_status").value)
    cut = not status.startswith("submitted") and any(limit in status for limit in LIMITS)
    yield conversation(
        record,
        messages,
        **run,
        states=None if None in keys else keys,
        truncated=cut,
    )


def _prompt(history: Record) -> Iterator[Record]:
    """Messages before the first action that is no demonstration."""
    return takewhile(
        lambda each: each.get("role").value != "assistant" or each.get("is_demo").value,
        history.items(),
    )


def _step(step: Record) -> list[Message]:
    """The action, and what was observed after it."""
    action, response = step.get("action").text().strip(), step.get("response")
    turn: Message = {"role": "assistant", "content": action or response.optional_name() or ""}
    if step.get("thought"):
        turn["reasoning_content"] = step.get("thought").text()
    seen = step.get("observation")
    return [turn, {"role": "tool", "content": seen.text()}] if seen else [turn]


FORMAT = Format(
    "swe-agent",
    "SWE-agent trajectories",
    r"trajectory.0.action info | trajectory=\[\] info",
    read,
    example="formats/swe_agent.jsonl",
    beside=("preds.json",),
)
