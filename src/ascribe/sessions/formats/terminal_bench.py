"""Trials of Terminal-Bench: ``results.json``, with the log of the agent beside it.

What mini-swe-agent did is read from ``sessions/agent.log``, and what Terminus did from
``agent-logs/episode-*``; of other agents the reward counts alone. The version is the agent and the
model in the ``run_metadata.json`` of the run, else the name of its folder.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.files import MAX_RECORD, read_records
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Message, Record

CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\r|.*Waiting for the LM.*\n"
)
"""What a terminal shows for a moment, or not at all."""
MARK = re.compile(r"^(?:mini-swe-agent \(step \d+, \$[\d.]+\)|(User)):\n", re.M)


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one trial."""
    trial, told = record.path.absolute().parent, record.get("instruction")
    alone = trial.name == record.get("trial_name").value
    asked: list[Message] = [{"role": "user", "content": told.text()}] if told else []
    yield Conversation(
        group=record.get("task_id").name(),
        trajectory=(record.get("trial_name") or record.get("id")).name(),
        messages=[*asked, *(_said(trial) if alone else ())],
        reward=float(record.get("is_resolved").flag()),
        version=_version(trial.parents[1]) if alone else None,
        identity=record.get("id").optional_name(),
        truncated=str(record.get("failure_mode").value).endswith("timeout"),
    )


def _said(trial: Path) -> Iterator[Message]:
    """The responses, and what was observed."""
    for episode in sorted(
        trial.glob("agent-logs/episode-*"), key=lambda each: (len(each.name), each.name)
    ):
        for name, role in (("prompt.txt", "user"), ("response.txt", "assistant")):
            if (episode / name).is_file():
                yield {"role": role, "content": _text(episode / name)}
    log = trial / "sessions" / "agent.log"
    parts = MARK.split(CONTROL.sub("", _text(log))) if log.is_file() else []
    for user, text in zip(parts[1::2], parts[2::2], strict=True):
        yield {"role": "user" if user else "assistant", "content": text.strip()}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_RECORD).decode(errors="replace")


def _version(run: Path) -> str:
    about = run / "run_metadata.json"
    if about.is_file():
        whole = next(read_records(about), Record(None, about))
        names = (whole.get(name).optional_name() for name in ("agent_name", "model_name"))
        return " ".join(filter(None, names)) or run.parent.name
    return run.name


FORMAT = Format(
    "terminal-bench",
    "Terminal-Bench trials",
    "task_id is_resolved",
    read,
    example="formats/terminal_bench",
    beside=("run_metadata.json",),
)
