"""Returns: the discounted return from each step on, minus a mean over its task.

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
from ascribe.estimators.credit import Credit, Explanation, Metric, Reason, Sentence
from ascribe.estimators.memory import Memory, against, task_names
from ascribe.estimators.relative import Comparison, Norm, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

TASK = Sentence(
    "{peers} steps of this task returned {baseline} on average; this one returned {own}"
)
REMEMBERED = Sentence(
    "{peers} steps of this task and those of earlier iterations returned {baseline} on average; "
    "this one returned {own}"
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
    """Mean return over the steps of the task's other trajectories, and their number, by row."""
    own, count = np.where(task >= 0, trajectory, -1), int(trajectory.max(initial=-1)) + 1
    total = segments.pick(segments.total(returns, task, tasks), task)
    total -= segments.pick(segments.total(returns, own, count), own)
    peers = np.append(segments.size(task, tasks), 0)[task]
    peers -= np.append(segments.size(own, count), 0)[own]
    return total / np.maximum(peers, 1), peers


def against_turn(
    returns: Floats, task: Ints, tasks: int, trajectory: Ints, step: Ints
) -> tuple[Floats, Codes8, Ints, "partial[Explanation]"]:
    """Each return minus the mean of the other trajectories at the same step number.

    A row whose step number no other trajectory reached is compared with all steps of the others.

    Returns:
        The advantages, the ``Reason`` of each, the label of each row's task and step number, and
        what explains the advantages.
    """
    turn, turns = segments.pairs(task, step, int(step.max()) + 1)
    values, reason = compared = relative(returns, turn, turns, Norm("leave_one_out"))
    beyond = (reason == Reason.SINGLETON) & (task >= 0)
    constant = np.append(segments.constant(returns, task, tasks), False)[task]
    mean, peers = mean_of_others(returns, task, tasks, trajectory)
    values[beyond] = np.where(constant, 0.0, returns - mean)[beyond]
    reason[beyond] = np.where(constant, Reason.ZERO_VARIANCE, Reason.CREDITED)[beyond]
    return values, reason, turn, partial(_explain_turn, compared, beyond, mean, peers)


def _explain_turn(compared: Comparison, beyond: Bools, mean: Floats, peers: Ints) -> Explanation:
    at_turn = compared.explained(TURN)
    return replace(
        at_turn,
        baseline=np.where(beyond, mean, at_turn.baseline),
        peers=np.where(beyond, peers, at_turn.peers),
        sentences=(TURN, LAST),
        way=beyond.astype(np.int8),
    )


@dataclass(frozen=True, kw_only=True)
class Returns(Recipe):
    """The discounted return from each step on, minus a mean over its task.

    ``A_t = R_t - b`` with ``R_t = Σ_{k≥t} γ^{k-t} r_k``.

    Attributes:
        gamma: discount γ of a return.
        memory: weight of earlier visits to the same task in its mean: rows of t visits ago count
            ``memory`` to the power t; 0 compares inside the batch alone. With a memory, one
            trajectory of a task is enough.
        baseline: b is the mean of R over all steps of the ``task``, or over the steps of its other
            trajectories at the same ``turn``; where no other trajectory came this far, over all of
            their steps.
    """

    name: ClassVar[str] = "returns"
    paper: ClassVar[str] = "Kevin, arXiv 2507.11948"
    compares_in_groups: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("history",)

    gamma: float = 0.95
    memory: float = 0.0
    baseline: Literal["task", "turn"] = "task"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory and self.baseline != "task":
            raise InputError(
                "returns: a memory holds means over a task", hint="leave baseline at 'task'"
            )

    @property
    def has_history(self) -> bool:
        """Whether earlier iterations count."""
        return self.memory > 0

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, returns = arrange(table), self.step_returns(table)
        task, tasks = np.where(self.excluded(steps), -1, steps.group), steps.group_count
        alone, history, metrics = self.alone(steps), None, dict[str, float]()
        if self.memory:
            memory = Memory.of(self.memory, inputs.get("history"))
            names = [(name, "own") for name in task_names(table, steps)]
            recalled = memory.recall(names)
            values, reason = compared = against(returns, task, tasks, recalled)
            labels, explain = task, partial(compared.explained, REMEMBERED)
            remembered = recalled.weight[steps.group] > 0
            metrics["memory_share"] = Metric(remembered)
            alone &= ~remembered
            sums = segments.total(returns, task, tasks)
            history = memory.updated((names, segments.size(task, tasks), sums))
        elif self.baseline == "task":
            values, reason = compared = relative(returns, task, tasks, Norm("mean"))
            labels, explain = task, partial(compared.explained, TASK)
        else:
            rows = (returns, task, tasks, steps.trajectory, steps.step)
            values, reason, labels, explain = against_turn(*rows)
        reason[alone] = Reason.GROUP_OF_ONE
        term = self.term(table, values, reason, labels, explain=explain)
        return Credit.of({"returns": term}, repr(self), metrics, history)
