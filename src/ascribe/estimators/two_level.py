"""What GiGPO and its descendants share: an episode term and a step term inside state groups."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence, Term
from ascribe.estimators.relative import explained, relative
from ascribe.estimators.scale import TermScale, equalised
from ascribe.estimators.step import Revisits, step_explained, step_relative
from ascribe.groups import Groups
from ascribe.steps.arrays import Codes8, Floats
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

BY_STEPS = Sentence(
    "{peers} steps of this task, each by its whole trajectory, returned {baseline} in the mean; "
    "this one returned {own}"
)
RAW = Sentence("alone in its task: its return counts as it is")


@dataclass(frozen=True, kw_only=True)
class TwoLevel(Standardising):
    """``A = A^E + ω A^S`` (GiGPO, Eq. 8).

    ``A^E`` compares a trajectory's return with its task group (Eq. 3), ``A^S`` a step's discounted
    return with the other rows of its state group (Eq. 7).

    Attributes:
        gamma: discount γ of the return of a step (paper: 0.95).
        weight: ω, weight of the step term (paper: 1).
        scale: the step term as in the ``paper``, or rescaled so that its root mean square over the
            rows of the batch that it credits is ``equal`` to that of the episode term over the
            rows that that one credits; ω comes on top.
        normalise: ``std`` (F_norm = std) or ``mean`` (F_norm = 1), the paper's two forms.
        baseline_unit: the episode baseline counts each ``trajectory`` once (paper) or each
            ``step``, so that long trajectories weigh more.
        group_of_one: a task with one trajectory gives ``no_credit``, or its ``raw`` return.
        revisits: how a trajectory counts that comes back to a state (paper: ``each`` visit).
    """

    gamma: float = 0.95
    weight: float = 1.0
    scale: TermScale = "paper"
    normalise: Literal["std", "mean"] = "std"
    baseline_unit: Literal["trajectory", "step"] = "trajectory"
    group_of_one: Literal["no_credit", "raw"] = "no_credit"
    revisits: Revisits = "each"

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        groups, numbers = self.state_groups(table, inputs)
        terms = {
            "episode": self._episode_term(table),
            "step": self._step_term(table, groups, numbers),
        }
        if self.scale == "equal":
            terms, numbers["scale_factor"] = equalised(
                terms, ["step"], terms["episode"], arrange(table).rows
            )
        return Credit.of(terms, repr(self), numbers)

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order, and numbers about how they were made."""
        raise NotImplementedError

    def _episode_term(self, table: StepTable) -> Term:
        steps = arrange(table)
        norm, alone = self._norm(self.normalise), Reason.GROUP_OF_ONE
        returns = self._episode_returns(steps)
        scores = returns[steps.trajectory] - self._late_penalties(steps)
        if self.baseline_unit == "trajectory":
            values, reason = self._against_group(steps, norm)
            values, reason = values[steps.trajectory], reason[steps.trajectory]
        else:
            group = np.where(self._out(steps), -1, steps.group)
            values, reason = relative(scores, group, steps.group_count, norm, alone)
        if self.group_of_one == "raw":
            raw = reason == Reason.GROUP_OF_ONE
            values = np.where(raw, scores, values)
            reason = np.where(raw, np.int8(Reason.CREDITED), reason)
        return self._term(
            table, values, reason, steps.group, explain=partial(self._explain_baseline, table)
        )

    def _explain_baseline(self, table: StepTable) -> Explanation:
        """The baseline of the episode term, by trajectories or by steps; none for a raw return."""
        steps = arrange(table)
        scores = self._episode_returns(steps)[steps.trajectory] - self._late_penalties(steps)
        out = self._explain_episode(table)
        if self.baseline_unit == "step":
            group = np.where(self._out(steps), -1, steps.group)
            out = explained(scores, group, steps.group_count, BY_STEPS)
        if self.group_of_one == "no_credit":
            return out
        raw = out.peers == 1
        return replace(
            out,
            own=np.where(raw, scores, out.own),
            baseline=np.where(raw, 0.0, out.baseline),
            sentences=(*out.sentences, RAW),
            way=raw.astype(np.int8),
        )

    def _step_term(self, table: StepTable, groups: Groups, numbers: dict[str, float]) -> Term:
        steps = arrange(table)
        returns = self.step_returns(table)
        members = Groups(
            np.where(self._out(steps), -1, groups.labels), groups.count, groups.made_by
        )
        values, reason = self._step_values(table, returns, members, numbers)
        reason[groups.labels < 0] = Reason.MISSING_STATE
        explain = partial(self._explain_step, table, returns, members)
        return self._term(table, values, reason, groups.labels, weight=self.weight, explain=explain)

    def _explain_step(self, table: StepTable, returns: Floats, groups: Groups) -> Explanation:
        steps = arrange(table)
        return step_explained(
            returns,
            groups.labels,
            groups.count,
            trajectory=steps.trajectory,
            trajectory_count=steps.trajectory_count,
            revisits=self.revisits,
        )

    def _step_values(
        self,
        table: StepTable,
        returns: Floats,
        groups: Groups,
        numbers: dict[str, float],
    ) -> tuple[Floats, Codes8]:
        """Step advantage of each row in canonical order, and its reason."""
        steps = arrange(table)
        return step_relative(
            returns,
            groups.labels,
            groups.count,
            self._norm(self.normalise),
            trajectory=steps.trajectory,
            trajectory_count=steps.trajectory_count,
            revisits=self.revisits,
        )
