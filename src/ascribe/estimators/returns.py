"""Returns: the discounted return from each step on, minus a mean over its task.

    A_t = R_t - mean of R over all steps of the task                      (baseline "task")
    A_t = R_t - mean of R_t over the other trajectories of the task       (baseline "turn")
    R_t = Σ_{k≥t} γ^{k-t} r_k

This is the plain policy gradient with a baseline. It compares no states, so it is the control for
recipes that do: what they gain over it does not come from discounting. Kevin (arXiv 2507.11948)
credits every turn of a task by its discounted return; "turn" is the usual time-dependent baseline.

Page: docs/estimators/returns.md. Test: tests/estimators/test_returns.py.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import Norm, explained, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

TASK = Sentence(
    "{peers} steps of this task returned {baseline} on average; this one returned {own}"
)
TURN = Sentence(
    "this step returned {own}; the {peers} other trajectories returned {baseline} on average from "
    "the same step number on"
)
LAST = Sentence(
    "no other trajectory came this far; this step returned {own}, the {peers} steps of the others "
    "{baseline} on average"
)


def mean_of_others(
    returns: Floats, task: Ints, tasks: int, trajectory: Ints
) -> tuple[Floats, Ints]:
    """Mean return over the steps of the task's other trajectories, and their number, by row.

    Args:
        returns: discounted return from each row on.
        task: task of each row; -1 takes no part.
        tasks: number of tasks.
        trajectory: trajectory of each row.
    """
    own, count = np.where(task >= 0, trajectory, -1), int(trajectory.max(initial=-1)) + 1
    total = segments.pick(segments.total(returns, task, tasks), task)
    total -= segments.pick(segments.total(returns, own, count), own)
    peers = np.append(segments.size(task, tasks), 0)[task]
    peers -= np.append(segments.size(own, count), 0)[own]
    return total / np.maximum(peers, 1), peers


def against_turn(
    returns: Floats, task: Ints, tasks: int, trajectory: Ints, step: Ints
) -> tuple[Floats, Codes8, Ints]:
    """Each return minus the mean of the other trajectories at the same step number.

    A row whose step number no other trajectory reached is compared with all steps of the others.

    Args:
        returns: discounted return from each row on.
        task: task of each row; -1 takes no part.
        tasks: number of tasks.
        trajectory: trajectory of each row.
        step: step number of each row.

    Returns:
        The advantages, the ``Reason`` of each, and the label of each row's task and step number.
    """
    turn, turns = segments.pairs(task, step, int(step.max()) + 1)
    values, reason = relative(returns, turn, turns, Norm("leave_one_out"))
    beyond = (reason == Reason.SINGLETON) & (task >= 0)
    constant = np.append(segments.constant(returns, task, tasks), False)[task]
    apart = returns - mean_of_others(returns, task, tasks, trajectory)[0]
    values[beyond] = np.where(constant, 0.0, apart)[beyond]
    reason[beyond] = np.where(constant, Reason.ZERO_VARIANCE, Reason.CREDITED)[beyond]
    return values, reason, turn


@dataclass(frozen=True, kw_only=True)
class Returns(Recipe):
    """The discounted return from each step on, minus a mean over its task.

    ``A_t = R_t - b`` with ``R_t = Σ_{k≥t} γ^{k-t} r_k``.

    Attributes:
        gamma: discount γ of a return.
        baseline: b is the mean of R over all steps of the ``task``, or over the steps of its other
            trajectories at the same ``turn``; where no other trajectory came this far, over all of
            their steps.
    """

    name: ClassVar[str] = "returns"
    paper: ClassVar[str] = "Kevin, arXiv 2507.11948"
    compares_in_groups: ClassVar[bool] = True

    gamma: float = 0.95
    baseline: Literal["task", "turn"] = "task"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, returns = arrange(table), self.step_returns(table)
        task, tasks = np.where(self.excluded(steps), -1, steps.group), steps.group_count
        if self.baseline == "task":
            values, reason = relative(returns, task, tasks, Norm("mean"))
            labels, explain = task, partial(explained, returns, task, tasks, TASK)
        else:
            rows = (returns, task, tasks, steps.trajectory)
            values, reason, labels = against_turn(*rows, steps.step)
            explain = partial(_explain_turn, *rows, labels)
        # The steps of one trajectory are not compared with each other alone.
        alone = segments.size(self.trajectory_groups(steps), tasks) < 2
        silent = np.append(alone, False)[task]
        values[silent], reason[silent] = 0.0, Reason.GROUP_OF_ONE
        term = self.term(table, values, reason, labels, explain=explain)
        return Credit.of({"returns": term}, repr(self))


def _explain_turn(
    returns: Floats, task: Ints, tasks: int, trajectory: Ints, turn: Ints
) -> Explanation:
    """The explanation of ``against_turn``."""
    at_turn = explained(returns, turn, int(turn.max()) + 1, TURN, leave_one_out=True)
    mean, peers = mean_of_others(returns, task, tasks, trajectory)
    beyond = at_turn.peers == 0
    return replace(
        at_turn,
        baseline=np.where(beyond, mean, at_turn.baseline),
        peers=np.where(beyond, peers, at_turn.peers),
        sentences=(TURN, LAST),
        way=beyond.astype(np.int8),
    )
