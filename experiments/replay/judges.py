"""Judges, which name the decisive step of a session, graded by replayed forks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ascribe import recipe
from ascribe.decisions import Decision
from ascribe.steps.arrays import Ints
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.problems import one_line
from ascribe.steps.table import StepTable
from ascribe_lab.audit.replay import Replayed
from ascribe_lab.models.policy import Request, Sampling, SamplingPolicy
from ascribe_lab.rollout import Trajectory

NONE = -1
"""The row of a session for which a judge names no step."""

QUESTION = (
    "An agent worked on a task and {outcome}. These are its steps:\n\n{steps}\n\n"
    "Which one of these steps decided that it {outcome}? Answer with the number of the step."
)


def simple_judges(
    table: StepTable, forks: Sequence[Decision], rng: np.random.Generator
) -> dict[str, Ints]:
    """The row that each judge without a model names for each session, in the order of their names.

    Args:
        table: the steps.
        forks: forks of the table, the most certain first.
        rng: source of randomness.
    """
    steps = arrange(table)
    ends = np.append(steps.starts[1:], steps.rows.size)
    advantage = np.abs(recipe("sbc")(table).advantage)
    sessions = [steps.rows[start:end] for start, end in zip(steps.starts, ends, strict=True)]
    rank = np.full(len(table), len(forks))
    for number, fork in enumerate(forks):
        for side in (fork.better, fork.worse):
            rank[side.rows] = np.minimum(rank[side.rows], number)
    surest = [rows[np.argmin(rank[rows])] for rows in sessions]
    return {
        "first step": np.array([rows[0] for rows in sessions]),
        "last step": np.array([rows[-1] for rows in sessions]),
        "random step": np.array([rng.choice(rows) for rows in sessions]),
        "largest advantage of sbc": np.array(
            [rows[np.argmax(advantage[rows])] for rows in sessions]
        ),
        "surest fork": np.array([row if rank[row] < len(forks) else NONE for row in surest]),
    }


def model_judge(
    policy: SamplingPolicy, table: StepTable, played: Mapping[str, Trajectory], longest: int = 200
) -> Ints:
    """The row that a model names for each session, in the order of their names.

    Args:
        policy: the model.
        table: the steps.
        played: the sessions of the table, by name.
        longest: characters of an observation that are shown.
    """
    arranged, names = arrange(table), table.trajectory.texts()
    requests = []
    for start in arranged.starts:
        session = played[str(names[arranged.rows[start]])]
        lines = [
            f"{number}. saw: {one_line(step.observation, longest)} did: {one_line(step.action)}"
            for number, step in enumerate(session.steps, 1)
        ]
        outcome = "succeeded" if session.won else "failed"
        text = QUESTION.format(outcome=outcome, steps="\n".join(lines))
        requests.append(Request([{"role": "user", "content": text}], seed=0))
    rows = []
    ends = np.append(arranged.starts[1:], arranged.rows.size)
    replies = policy(requests, Sampling(0.0, max_tokens=12))
    for reply, start, end in zip(replies, arranged.starts, ends, strict=True):
        number = re.search(r"\d+", reply.text)
        place = start + int(number[0][:9]) - 1 if number else NONE
        rows.append(arranged.rows[place] if start <= place < end else NONE)
    return np.array(rows)


@dataclass(frozen=True)
class Grade:
    """How often a judge is right.

    Attributes:
        sessions: those that came to a fork that decides, by its measured difference.
        decisive: share of them in which the judge names such a fork.
        low: lower end of its 90 % interval, from a bootstrap over tasks.
        high: upper end.
        largest: share in which it names the fork with the largest difference of the session.
    """

    sessions: int
    decisive: float
    low: float
    high: float
    largest: float


def grade(named: Ints, table: StepTable, replayed: Sequence[Replayed]) -> Grade:
    """Hold the steps that a judge names against measured forks.

    Args:
        named: the row that it names for each session, in the order of their names.
        table: the steps.
        replayed: the forks.

    Raises:
        ValueError: if no measured fork decides.
    """
    size, clear = np.zeros(len(table)), np.zeros(len(table), dtype=np.bool_)
    for each in replayed:
        if not each.refused:
            for side in (each.fork.better, each.fork.worse):
                size[side.rows], clear[side.rows] = abs(each.difference), each.clear
    steps = arrange(table)
    counted = np.maximum.reduceat(clear[steps.rows], steps.starts)
    if not counted.any():
        raise InputError("no measured fork decides: measure more of them, or more often")
    largest = np.maximum.reduceat(size[steps.rows], steps.starts)
    hit = ((named != NONE) & clear[named])[counted].astype(np.float64)
    top = ((named != NONE) & (size[named] == largest))[counted]
    task = np.unique(steps.group_of_trajectory[counted], return_inverse=True)[1]
    sums = np.array([np.bincount(task, hit), np.bincount(task)])
    count = sums.shape[1]
    drawn = sums[:, np.random.default_rng(0).integers(0, count, (2000, count))].sum(axis=-1)
    low, high = np.quantile(drawn[0] / drawn[1], [0.05, 0.95])
    return Grade(hit.size, float(hit.mean()), float(low), float(high), float(top.mean()))
