"""A rollout as a table of steps, with the transcript beside it.

Besides the columns of the format (``docs/format.md``) a file of rollouts carries those of
``TRANSCRIPT_COLUMNS``: what was seen, said and sampled. Trainers read the token ids from there.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ascribe.rollout.episode import Step
from ascribe.rollout.run import Rollout, Trajectory
from ascribe.steps.files import TRANSCRIPT_COLUMNS, table_to_arrow, write
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    import pyarrow as pa

States = Literal["environment", "observation"]
"""What a state is: the environment's key of the situation, or what the agent saw, as in GiGPO."""


def table(rollout: Rollout, states: States = "environment") -> StepTable:
    """The steps of a rollout, ready for a recipe.

    Args:
        rollout: what was played.
        states: what stands in the column ``state``.
    """
    return StepTable.from_columns(_columns(rollout, states))


def arrow(rollout: Rollout, states: States = "environment") -> "pa.Table":
    """The steps of a rollout with their transcript, as they are written to a file."""
    import pyarrow as pa

    whole = table_to_arrow(table(rollout, states))
    steps = [step for _, _, step in _steps(rollout)]
    types = {"prompt_ids": pa.list_(pa.int32()), "response_ids": pa.list_(pa.int32())}
    types |= {"logprobs": pa.list_(pa.float32()), "won": pa.bool_()}
    for name in TRANSCRIPT_COLUMNS:
        values = [_TRANSCRIPT[name](step) for step in steps]
        whole = whole.append_column(name, pa.array(values, types.get(name, pa.string())))
    return whole


def save(rollout: Rollout, path: str | Path, states: States = "environment") -> None:
    """Write a rollout to ``.parquet``, ``.jsonl`` or ``.jsonl.gz``."""
    write(arrow(rollout, states), path)


def _steps(rollout: Rollout) -> Iterator[tuple[Trajectory, int, Step]]:
    for trajectory in rollout.trajectories:
        for number, step in enumerate(trajectory.steps):
            yield trajectory, number, step


def _columns(rollout: Rollout, states: States) -> dict[str, list[Any]]:
    rows = list(_steps(rollout))
    seen = {"environment": lambda step: step.state, "observation": lambda step: step.observation}
    columns: dict[str, list[Any]] = {
        "group": [trajectory.group for trajectory, _, _ in rows],
        "trajectory": [trajectory.name for trajectory, _, _ in rows],
        "step": [number for _, number, _ in rows],
        "state": [seen[states](step) for _, _, step in rows],
        "action": [storable(step.action) for _, _, step in rows],
        "reward": [step.reward for _, _, step in rows],
        "family": [trajectory.family for trajectory, _, _ in rows],
        "valid": [step.valid for _, _, step in rows],
        "terminated": [step.terminated for _, _, step in rows],
        "truncated": [step.truncated for _, _, step in rows],
    }
    rare: dict[str, list[Any]] = {
        "agent": [step.agent for _, _, step in rows],
        "without": [t.without and t.without[number] for t, number, _ in rows],
        "corrects": [trajectory.corrects for trajectory, _, _ in rows],
    }
    return columns | {name: values for name, values in rare.items() if set(values) != {None}}


def storable(text: str) -> str:
    """The text with half surrogates, which no file can hold, replaced by the sign for that."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_TRANSCRIPT: dict[str, Callable[[Step], Any]] = {
    "observation": lambda step: step.observation,
    "prompt": lambda step: storable(json.dumps(step.messages, ensure_ascii=False)),
    "response": lambda step: storable(step.sample.text),
    "prompt_ids": lambda step: step.sample.prompt_ids,
    "response_ids": lambda step: step.sample.response_ids,
    "logprobs": lambda step: step.sample.logprobs,
    "finish": lambda step: step.sample.finish,
    "problem": lambda step: step.problem,
    "won": lambda step: step.won,
}
