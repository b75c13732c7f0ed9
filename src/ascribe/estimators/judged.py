"""Judged: the outcome of the episode, and what a judge says about each step.

    A_t = z(R(τ)) + ω z(G_t),    G_t = Σ_{k≥t} γ^{k-t} q_k

q is the column ``step_score``, from a judge, a tool or a reward model. z compares inside the task:
R(τ) with the other trajectories, G_t with all steps. MT-GRPO (arXiv 2505.11821) compares q_t itself
with the scores of the trajectories at the same step number (``compare="turn"``). Where the policy
decides when to stop, that form is biased: every further step is charged the mean score of its step
number, and a trajectory that ends early is not (verl #7244). Sums from a step on have no such bias.

Page: docs/estimators/columns.md. Test: tests/estimators/test_judged.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Reason, Sentence, Term
from ascribe.estimators.relative import relative
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import StepTable

SUM = Sentence(
    "the judge gave {own} from this step on; {baseline} on average over the {peers} steps of the "
    "task"
)
UNSCORED = "Where a step_score is missing, a row has the credit of its episode alone."
TURN = Sentence(
    "the judge gave this step {own}, and {baseline} on average to the {peers} trajectories at its "
    "step number"
)


def scores_to_go(score: Floats, trajectory: Ints, gamma: float) -> tuple[Floats, Bools]:
    """``G_t = Σ_{k≥t} γ^{k-t} q_k``, and where it is unknown, since a q is NaN from there on."""
    unknown = reward_to_go(np.isnan(score).astype(np.float64), trajectory, 1.0) > 0
    return reward_to_go(np.where(unknown, 0.0, score), trajectory, gamma), unknown


@dataclass(frozen=True, kw_only=True)
class Judged(Standardising):
    """The outcome of the episode, and what a judge says about each step.

    ``A_t = z(R(τ)) + ω z(G_t)``, G_t the discounted sum of the column ``step_score`` from a step
    on; or with ``compare="turn"`` the score of the step alone, at the same step number (MT-GRPO).

    Attributes:
        gamma: discount γ of the scores; ``compare="turn"`` sums nothing.
        weight: ω, weight of the judge.
        normalise: z divides by the standard deviation (``std``), or centres alone (``mean``).
        compare: the sums from a step on in the task (``returns``), or scores at the same ``turn``,
            which is biased where the policy decides when to stop.
    """

    name: ClassVar[str] = "judged"
    paper: ClassVar[str] = "MT-GRPO, arXiv 2505.11821"
    compares_in_groups: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("step_score",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mt-grpo": {"compare": "turn", "std_epsilon": 1e-4}
    }

    gamma: float = 0.95
    weight: float = 1.0
    normalise: Literal["std", "mean"] = "std"
    compare: Literal["returns", "turn"] = "returns"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        episode = self.episode_term(table, self.norm(self.normalise))
        return Credit.of({"episode": episode, "step": self._step(table)}, repr(self))

    def notes(self, table: StepTable, inputs: dict[str, Any]) -> tuple[str, ...]:
        """Says so if a row has no score."""
        missing = np.isnan(self.numbers(table, "step_score")).any()
        return (*super().notes(table, inputs), *((UNSCORED,) if missing else ()))

    def _step(self, table: StepTable) -> Term:
        steps, score = arrange(table), self.numbers(table, "step_score")
        if self.compare == "turn":
            own, unknown = np.where(np.isnan(score), 0.0, score), np.isnan(score)
        else:
            own, unknown = scores_to_go(score, steps.trajectory, self.gamma)
        own = own - self.late_penalties(steps)
        task, tasks = np.where(self.excluded(steps) | unknown, -1, steps.group), steps.group_count
        labels, count, sentence = task, tasks, SUM
        if self.compare == "turn":
            labels, count = segments.pairs(task, steps.step, int(steps.step.max()) + 1)
            sentence = TURN
        values, reason = compared = relative(own, labels, count, self.norm(self.normalise))
        reason[self.alone(steps)] = Reason.GROUP_OF_ONE
        reason[unknown] = Reason.MISSING_INPUT
        explain = partial(compared.explained, sentence)
        return self.term(table, values, reason, labels, weight=self.weight, explain=explain)
