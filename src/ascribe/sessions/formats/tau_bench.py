"""Results of tau-bench: a list of sessions, with the reward, the task and the trial of each.

A session that crashed has ``info.error`` and mostly no message; its reward is 0 and counts. The
task is its number, and what the simulated user is told: two domains use the same numbers. The agent
is named by the file alone, up to the range of tasks in its name.
"""

from collections.abc import Iterator
from hashlib import blake2b

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import conversation
from ascribe.sessions.reading.records import Record, message


def read(record: Record) -> Iterator[Conversation]:
    """The conversation of one session."""
    number, told = record.get("task_id").name(), record.get("info.task.instruction")
    digest = blake2b(str(told.value).encode(errors="replace"), digest_size=8).hexdigest()
    yield conversation(
        record,
        [message(each) for each in record.get("traj").items()],
        group=number,
        task=f"{number} {digest}" if told else None,
        trajectory=record.get("trial").name(),
        version=record.file.stem.partition("_range_")[0],
        crashed=bool(record.get("info.error")),
    )


FORMAT = Format(
    "tau-bench",
    "tau-bench results",
    "task_id reward info traj",
    read,
    example="formats/tau_bench.json",
)
