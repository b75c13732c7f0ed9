"""REINFORCE++: returns standardised over the whole batch instead of the task group.

Page: docs/estimators/grpo.md. Test: tests/estimators/test_reinforce_pp.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, Standardising
from ascribe.estimators.credit import Credit, Reason, Sentence
from ascribe.estimators.relative import Norm, relative
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

ABOVE_GROUP = Sentence(
    "it returned {own:+} above its task's mean; the {peers} trajectories of the batch {baseline:+}"
)


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(Standardising):
    """REINFORCE++: returns standardised over the whole batch instead of the task group.

    ``A(τ_i) = (R(τ_i) - mean_batch R) / (std_batch R + std_epsilon)``, with R the return of a
    trajectory. With ``baseline="group"``
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
        batch, silent, cause = np.where(group < 0, -1, 0), np.False_, np.int8(0)
        if self.baseline == "group":
            centred = relative(returns, group, steps.group_count, Norm("mean"), Reason.GROUP_OF_ONE)
            returns, cause = centred
            silent = cause != Reason.CREDITED
            # A trajectory without peers has no baseline and does not enter the standard deviation.
            batch = np.where(cause == Reason.GROUP_OF_ONE, -1, batch)
        compared = relative(returns, batch, 1, norm, Reason.GROUP_OF_ONE)
        owner, sentence = (steps.trajectory, EPISODE if self.baseline == "batch" else ABOVE_GROUP)
        values = np.where(silent, 0.0, compared.values)[owner]
        reason = np.where(silent, cause, compared.reason)[owner]
        explain = partial(compared.explained, sentence, owner)
        return Credit.of(
            {"episode": self.term(table, values, reason, steps.group, explain=explain)}, repr(self)
        )
