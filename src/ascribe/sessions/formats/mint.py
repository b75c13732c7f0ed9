"""Results of MINT: lines of a ``state`` with its history, and a ``task``."""

from ascribe.sessions.reading.fields import Fields
from ascribe.sessions.reading.format import Format

FIELDS = Fields(
    messages="state.history",
    task="task.task_id",
    question="task.prompt",
    reward="state.success",
    crashed="state.error",
    named=True,
)
FORMAT = Format(
    "mint", "MINT results", "state.history:list task.task_id", FIELDS, example="formats/mint.jsonl"
)
