"""Results of InterCode: an object by session, with the actions and what each observed."""

from ascribe.sessions.reading.fields import Fields
from ascribe.sessions.reading.format import Format

FIELDS = Fields(
    actions="turn_history.actions",
    observations="turn_history.observations",
    task="task_id",
    question="query",
    reward="summary.max_reward",
    named=True,
)
FORMAT = Format(
    "intercode",
    "InterCode results",
    "turn_history.actions:list summary.max_reward",
    FIELDS,
    example="formats/intercode.json",
)
