"""GiGPO: credit for the episode, and for the step among visits to the same state."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.credit import Credit, Reason, Term
from ascribe.credit.relative import relative
from ascribe.credit.step import Revisits, step_relative
from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.groups.similar import similar
from ascribe.recipes.base import Standardising
from ascribe.returns import reward_to_go
from ascribe.table import StepTable


@dataclass(frozen=True, kw_only=True)
class GiGPO(Standardising):
    """Group-in-group policy optimization: an episode term and a step term.

    ``A = A^E + ω A^S`` (Eq. 8). ``A^E`` compares a trajectory's return with its task group
    (Eq. 3), ``A^S`` a step's discounted return with the other visits to the same state (Eq. 7).

    Attributes:
        gamma: discount γ of the return of a step (paper: 0.95).
        weight: ω, weight of the step term (paper: 1).
        normalise: ``std`` (F_norm = std) or ``mean`` (F_norm = 1), the paper's two forms.
        grouping: states are the same if their texts are equal (``exact``), or ``similar``.
        similarity: smallest ratio of similar states (paper: 0.9 for search).
        scope: compare states inside a task ``group`` (paper) or over the ``batch``.
        baseline_unit: the episode baseline counts each ``trajectory`` once (paper) or each
            ``step``, so that long trajectories weigh more.
        group_of_one: a task with one trajectory gives ``no_credit``, or its ``raw`` return.
        revisits: how a trajectory counts that comes back to a state (paper: ``each`` visit).
    """

    name: ClassVar[str] = "gigpo"
    paper: ClassVar[str] = "GiGPO, arXiv 2505.10978"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "verl-agent": {
            "baseline_unit": "step",
            "group_of_one": "raw",
            "penalty_timing": "after",
            "invalid_penalty": 0.1,
        },
        "trinity": {"gamma": 1.0, "normalise": "mean", "scope": "batch"},
        "roll": {"scope": "batch", "baseline_unit": "step"},
    }

    gamma: float = 0.95
    weight: float = 1.0
    normalise: Literal["std", "mean"] = "std"
    grouping: Literal["exact", "similar"] = "exact"
    similarity: float = 0.9
    scope: Literal["group", "batch"] = "group"
    baseline_unit: Literal["trajectory", "step"] = "trajectory"
    group_of_one: Literal["no_credit", "raw"] = "no_credit"
    revisits: Revisits = "each"

    def __call__(self, table: StepTable) -> Credit:
        """Credit every row of ``table``."""
        terms = {"episode": self._episode_term(table), "step": self._step_term(table)}
        return Credit.of(terms, repr(self))

    def _episode_term(self, table: StepTable) -> Term:
        steps = table.arranged
        norm, alone = self._norm(self.normalise), Reason.GROUP_OF_ONE
        returns = self._episode_returns(steps)
        scores = returns[steps.trajectory] - self._late_penalties(steps)
        if self.baseline_unit == "trajectory":
            group = self._trajectory_groups(steps)
            values, reason = relative(returns, group, steps.group_count, norm, alone)
            values, reason = values[steps.trajectory], reason[steps.trajectory]
        else:
            group = np.where(self._out(steps), -1, steps.group)
            values, reason = relative(scores, group, steps.group_count, norm, alone)
        if self.group_of_one == "raw":
            raw = reason == Reason.GROUP_OF_ONE
            values = np.where(raw, scores, values)
            reason = np.where(raw, np.int8(Reason.CREDITED), reason)
        return self._term(table, values, reason, steps.group)

    def _step_term(self, table: StepTable) -> Term:
        steps = table.arranged
        groups = self._state_groups(table)
        returns = reward_to_go(self._rewards(steps), steps.trajectory, self.gamma)
        values, reason = step_relative(
            returns - self._late_penalties(steps),
            np.where(self._out(steps), -1, groups.labels),
            groups.count,
            self._norm(self.normalise),
            trajectory=steps.trajectory,
            trajectory_count=steps.trajectory_count,
            revisits=self.revisits,
        )
        reason[steps.state < 0] = Reason.MISSING_STATE
        return self._term(table, values, reason, groups.labels, self.weight)

    def _state_groups(self, table: StepTable) -> Groups:
        steps = table.arranged
        task = np.zeros_like(steps.group) if self.scope == "batch" else steps.group
        if self.grouping == "similar":
            return similar(task, steps.state, table.state.values, self.similarity)
        return exact(task, steps.state, table.state.values.size)
