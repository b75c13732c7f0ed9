"""A rollout as a table of steps with its transcript.

Besides the columns of the format (``docs/format.md``) a file of rollouts has the transcript:
observations, prompts, responses and token ids. Trainers read the token ids from there.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ascribe.groups.actions import FIRST_TOKENS
from ascribe.steps.errors import InputError
from ascribe.steps.files import Rollouts, table_to_arrow, write
from ascribe.steps.problems import replace_surrogates
from ascribe.steps.table import StepTable
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import Step
from ascribe_lab.rollout.run import Rollout, Trajectory

if TYPE_CHECKING:
    import pyarrow as pa

States = Literal["observation", "environment"]
"""What a state is: what the agent sees, as in GiGPO and BiPACE (B.1), or the environment's key of
the situation, which tells apart what looks the same."""


def table(rollout: Rollout, states: States = "observation") -> StepTable:
    """The steps of a rollout, ready for a recipe.

    Args:
        rollout: the episodes.
        states: what the column ``state`` holds.

    Example:
        >>> from ascribe_lab import rollout
        >>> setup, plan = rollout.Setup("ezpoints", pool="serial"), rollout.Plan(1, 2, max_turns=4)
        >>> rollout.table(rollout.play(setup, rollout.Model("random"), plan))
        StepTable(8 rows, 1 group, 2 trajectories, 7 states)
    """
    columns: dict[str, list[Any]] = {
        "group": [t.group for t in rollout.trajectories for _ in t.steps],
        "trajectory": [t.name for t in rollout.trajectories for _ in t.steps],
        "step": [n for t in rollout.trajectories for n in range(len(t.steps))],
        "family": [t.family for t in rollout.trajectories for _ in t.steps],
        "without": [
            value for t in rollout.trajectories for value in t.without or [None] * len(t.steps)
        ],
        "corrects": [t.corrects for t in rollout.trajectories for _ in t.steps],
    }
    steps = rollout.steps
    columns["state"] = [s.state if states == "environment" else s.observation for s in steps]
    columns["action"] = [replace_surrogates(step.action) for step in steps]
    tokens = (step.sample.response_ids[:FIRST_TOKENS] for step in steps)
    columns["first_tokens"] = [" ".join(map(str, ids)) or None for ids in tokens]
    for name in ("reward", "valid", "terminated", "truncated", "agent"):
        columns[name] = [getattr(step, name) for step in steps]
    columns["score"] = [step.sample.score for step in steps]
    rare = ("agent", "without", "corrects", "first_tokens", "score")
    for name in rare:  # columns that few rollouts have
        if set(columns[name]) <= {None}:
            del columns[name]
    return StepTable.from_columns(columns)


def arrow(rollout: Rollout, states: States = "observation") -> "pa.Table":
    """The steps of a rollout with their transcript, as they are written to a file."""
    import pyarrow as pa

    rows = table_to_arrow(table(rollout, states))
    types = {"prompt_ids": pa.list_(pa.int32()), "response_ids": pa.list_(pa.int32())}
    types |= {"logprobs": pa.list_(pa.float32()), "won": pa.bool_()}
    steps, samples = rollout.steps, [step.sample for step in rollout.steps]
    prompts = [json.dumps(step.messages, ensure_ascii=False) for step in steps]
    transcript: dict[str, list[Any]] = {
        "observation": [step.observation for step in steps],
        "prompt": list(map(replace_surrogates, prompts)),
        "response": [replace_surrogates(sample.text) for sample in samples],
    }
    for name in ("prompt_ids", "response_ids", "logprobs", "finish"):
        transcript[name] = [getattr(sample, name) for sample in samples]
    for name in ("problem", "won"):
        transcript[name] = [getattr(step, name) for step in steps]
    for name, values in transcript.items():
        rows = rows.append_column(name, pa.array(values, types.get(name, pa.string())))
    return rows


def save(rollout: Rollout, path: str | Path, states: States = "observation") -> None:
    """Write a rollout to ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.

    Example:
        >>> from ascribe_lab import rollout
        >>> setup, plan = rollout.Setup("ezpoints", pool="serial"), rollout.Plan(1, 2, max_turns=4)
        >>> rollout.save(rollout.play(setup, rollout.Model("random"), plan), "played.parquet")
        >>> ascribe.read("played.parquet").table
        StepTable(8 rows, 1 group, 2 trajectories, 7 states)
    """
    write(arrow(rollout, states), path)


READ_BACK = ("observation", "response", "problem", "won")
"""Columns of the transcript that ``trajectories`` reads."""


def trajectories(rollouts: Rollouts) -> dict[str, Trajectory]:
    """The trajectories of a file that ``save`` wrote, by name; without prompts and token ids.

    Raises:
        ValueError: if another program wrote the file.
    """
    if missing := [name for name in READ_BACK if name not in rollouts.carried.column_names]:
        raise InputError(f"there is no column {missing[0]!r}: take a file of ascribe rollout")
    rows = zip(rollouts.table.to_dicts(), rollouts.carried.to_pylist(), strict=True)
    names = ("state", "action", "reward", "observation", "problem", "won")
    steps: dict[tuple[str, str, str], list[Step]] = {}
    for row, more in sorted(rows, key=lambda pair: pair[0]["step"]):
        flags = {"valid": True, "terminated": False, "truncated": False, "agent": None}
        values = flags | {"family": ""} | row | more
        key = values["group"], values["trajectory"], values["family"]
        step = Step(
            messages=(),
            sample=Sample(values["response"]),
            **{name: values[name] for name in (*names, *flags)},
        )
        steps.setdefault(key, []).append(step)
    return {
        name: Trajectory(group, name, "", family, tuple(own))
        for (group, name, family), own in steps.items()
    }
