"""Results of tau-bench: a list of sessions, with the reward, the task and the trial of each.

A session that crashed has ``info.error`` and mostly no message; its reward is 0 and counts. The
task is its number, and what the simulated user is told: two domains use the same numbers. The agent
is named by the file alone.
"""

from ascribe.sessions.reading.fields import Fields
from ascribe.sessions.reading.format import Format

FIELDS = Fields(
    messages="traj",
    task="task_id",
    question="info.task.instruction",
    reward="reward",
    session="trial",
    crashed="info.error",
    named=True,
)
FORMAT = Format(
    "tau-bench",
    "tau-bench results",
    "task_id reward info traj:list",
    FIELDS,
    example="formats/tau_bench.json",
)
