"""REINFORCE++: returns standardised over the whole batch instead of the task group.

    A(τ_i) = (R(τ_i) - mean_batch R) / (std_batch R + std_epsilon)

R is the return of a trajectory. With ``baseline="group"`` (REINFORCE++-baseline) the group's mean
is subtracted from R first. Paper: REINFORCE++, arXiv 2501.03262.

Page: docs/estimators/reinforce_pp.md. Test: tests/estimators/test_reinforce_pp.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, Standardising
from ascribe.estimators.credit import Credit, Reason, Sentence
from ascribe.estimators.relative import Norm, explained, relative
from ascribe.steps.arrays import Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

ABOVE_GROUP = Sentence(
    "it returned {own:+} above its task's mean; the {peers} trajectories of the batch {baseline:+}"
)


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(Standardising):
    """REINFORCE++: returns standardised over the whole batch instead of the task group.

    ``A(τ_i) = (R(τ_i) - mean_batch R) / (std_batch R + std_epsilon)``. With ``baseline="group"``
    the group's mean is subtracted first, and the difference is divided by the batch's standard
    deviation. It is the one recipe that always needs all groups of a batch together.

    Attributes:
        baseline: ``batch`` as in the paper, or ``group`` (its REINFORCE++-baseline).
    """

    name: ClassVar[str] = "reinforce_pp"
    paper: ClassVar[str] = "REINFORCE++, arXiv 2501.03262"
    credits_steps: ClassVar[bool] = False

    baseline: Literal["batch", "group"] = "batch"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, norm = arrange(table), self.norm("std")
        returns, group = self.episode_returns(steps), self.trajectory_groups(steps)
        if self.baseline == "group":
            returns, batch, values, reason = above_group(returns, group, steps.group_count, norm)
        else:
            batch = np.where(group < 0, -1, 0)
            values, reason = relative(returns, batch, 1, norm, Reason.GROUP_OF_ONE)
        owner, sentence = (steps.trajectory, EPISODE if self.baseline == "batch" else ABOVE_GROUP)
        explain = partial(explained, returns, batch, 1, sentence, members=owner)
        term = self.term(table, values[owner], reason[owner], steps.group, explain=explain)
        return Credit.of({"episode": term}, repr(self))


def above_group(
    returns: Floats, group: Ints, count: int, norm: Norm
) -> tuple[Floats, Ints, Floats, Codes8]:
    """REINFORCE++-baseline: returns less their group's mean, standardised over the batch.

    Args:
        returns: return of each trajectory.
        group: task group of each trajectory; -1 takes no part.
        count: number of groups.
        norm: the standard deviation of the batch.

    Returns:
        The centred returns, 0 or -1 for each trajectory (-1 takes no part in the batch's
        statistics), the advantages and their reasons.
    """
    centred, cause = relative(returns, group, count, Norm("mean"), Reason.GROUP_OF_ONE)
    # A trajectory without peers has no baseline and does not enter the standard deviation.
    batch = np.where((group < 0) | (cause == Reason.GROUP_OF_ONE), -1, 0)
    values, reason = relative(centred, batch, 1, norm, Reason.GROUP_OF_ONE)
    silent = cause != Reason.CREDITED
    return (centred, batch, np.where(silent, 0.0, values), np.where(silent, cause, reason))
