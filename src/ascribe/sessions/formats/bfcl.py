"""Results of BFCL: ``*_result.json``; of tasks with several turns, with a log of every step.

Whether a session was valid is in ``*_score.json``, beside the results or in the folder ``score``
for ``result``: a line of totals, then one for each session that failed. Without it there is no
reward. The version is the folder in ``result``, and the session the one around that. Of a session
that crashed there is the message of the error alone.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.files import read_records
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Message, Record, canonical, tool_call

END = "_result.json"


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one line."""
    messages: list[Message] = []
    crashed = bool(record.get("traceback"))
    if not crashed and not isinstance(record.get("inference_log").value, list):
        messages = _message(record.of({"role": "assistant", **record.value}), "result")
    for entry in record.get("inference_log").items() if not messages else ():
        if not isinstance(entry.value, dict):
            continue  # the state of the environment
        for name in entry.value:
            for each in entry.get_key(name).items():
                messages += _message(each)
    name = record.get("id").name()
    lost = _lost(record.path)
    run, _, model = str(record.path.absolute().parent).rpartition("/result/")
    yield Conversation(
        group=name,
        trajectory=Path(run).name or record.short(),
        messages=messages,
        reward=None if lost is None else float(name not in lost),
        version=model.partition("/")[0] if run else None,
        crashed=crashed,
    )


def _message(record: Record, name: str = "content") -> list[Message]:
    role, content = record.get("role").value, record.get(name)
    if role not in ("user", "assistant", "tool", "system"):
        return []  # of the program that ran it
    if role != "assistant" or not isinstance(content.value, list):
        return [{"role": role, "content": canonical(content.value or "")}]
    calls = [call for each in content.items() for call in each.mapping().items()]
    turn: Message = {"role": role, "content": ""}
    return [turn | {"tool_calls": [tool_call(*call) for call in calls]} if calls else turn]


@cache
def _lost(path: Path) -> frozenset[str] | None:
    """The names of the sessions that failed, if the file with the scores is there."""
    name = f"{path.name.removesuffix(END)}_score.json"
    parts = [{"result": "score"}.get(part, part) for part in path.absolute().parent.parts]
    for folder in (path.absolute().parent, Path(*parts)):
        if path.name.endswith(END) and (folder / name).is_file():
            return frozenset(
                each.get("id").name() for each in read_records(folder / name) if each.get("id")
            )
    return None


FORMAT = Format(
    "bfcl",
    "BFCL results",
    "id result inference_log | id result latency | id result traceback",
    read,
    example="formats/BFCL_result.json",
    beside=("*_score.json",),
)
