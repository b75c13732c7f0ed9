"""Recipes that credit a trajectory as a whole: every step gets the same advantage."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, EPISODE_OTHERS, Recipe, Standardising
from ascribe.estimators.credit import Credit, Reason, Sentence
from ascribe.estimators.relative import Norm, explained, relative
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable


def _group_relative(recipe: Recipe, table: StepTable, norm: Norm) -> Credit:
    """Returns of trajectories, each counted once, against their task group."""
    alone = norm.by == "leave_one_out"
    explain = partial(
        recipe._explain_episode, table, EPISODE_OTHERS if alone else EPISODE, leave_one_out=alone
    )
    term = recipe._broadcast(table, *recipe._against_group(arrange(table), norm), explain)
    return Credit.of({"episode": term}, repr(recipe))


@dataclass(frozen=True, kw_only=True)
class GRPO(Standardising):
    """Group relative policy optimization: returns standardised inside the task group.

    ``A(τ_i) = (R(τ_i) - mean_j R(τ_j)) / (std_j R(τ_j) + std_epsilon)``, the same for every step.
    Mean and standard deviation are over trajectories, each counted once.
    """

    name: ClassVar[str] = "grpo"
    paper: ClassVar[str] = "DeepSeekMath, arXiv 2402.03300"
    credits_steps: ClassVar[bool] = False

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        return _group_relative(self, table, self._norm("std"))


@dataclass(frozen=True, kw_only=True)
class RLOO(Recipe):
    """REINFORCE with a leave-one-out baseline.

    ``A(τ_i) = R(τ_i) - 1/(N-1) Σ_{j≠i} R(τ_j)``: unbiased, and N/(N-1) times the mean-centred form.
    """

    name: ClassVar[str] = "rloo"
    paper: ClassVar[str] = "Back to basics, arXiv 2402.14740"
    credits_steps: ClassVar[bool] = False

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        return _group_relative(self, table, Norm("leave_one_out"))


@dataclass(frozen=True, kw_only=True)
class DrGRPO(Recipe):
    """GRPO without the division by the standard deviation.

    ``A(τ_i) = R(τ_i) - mean_j R(τ_j)``. Dividing favours tasks that are very easy or very hard.
    """

    name: ClassVar[str] = "dr_grpo"
    paper: ClassVar[str] = "Understanding R1-Zero-like training, arXiv 2503.20783"
    credits_steps: ClassVar[bool] = False

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        return _group_relative(self, table, Norm("mean"))


ABOVE_GROUP = Sentence(
    "it returned {own:+} above its task's mean; the {peers} trajectories of the batch {baseline:+}"
)


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(Standardising):
    """REINFORCE++: returns standardised over the whole batch instead of the task group.

    ``A(τ_i) = (R(τ_i) - mean_batch R) / (std_batch R + std_epsilon)``. With ``baseline="group"``
    the group's mean is taken off first, and the batch's standard deviation divides the rest. The
    batch's statistics make it the one recipe that always needs all groups in one place.

    Attributes:
        baseline: ``batch`` as in the paper, or ``group`` (its REINFORCE++-baseline).
    """

    name: ClassVar[str] = "reinforce_pp"
    paper: ClassVar[str] = "REINFORCE++, arXiv 2501.03262"
    credits_steps: ClassVar[bool] = False

    baseline: Literal["batch", "group"] = "batch"

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        steps = arrange(table)
        returns, group = self._episode_returns(steps), self._trajectory_groups(steps)
        sentence = EPISODE
        silent = np.zeros(group.size, dtype=np.bool_)
        why = np.zeros(group.size, dtype=np.int8)
        if self.baseline == "group":
            returns, why = relative(
                returns, group, steps.group_count, Norm("mean"), Reason.GROUP_OF_ONE
            )
            silent = why != Reason.CREDITED
            sentence = ABOVE_GROUP
            # A trajectory without peers has no baseline, and says nothing about the spread.
            group = np.where(why == Reason.GROUP_OF_ONE, -1, group)
        batch = np.where(group < 0, -1, 0)
        values, reason = relative(returns, batch, 1, self._norm("std"), Reason.GROUP_OF_ONE)
        values, reason = np.where(silent, 0.0, values), np.where(silent, why, reason)
        explain = partial(explained, returns, batch, 1, sentence, members=steps.trajectory)
        return Credit.of({"episode": self._broadcast(table, values, reason, explain)}, repr(self))
