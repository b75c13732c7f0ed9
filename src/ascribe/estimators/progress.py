"""Progress: each step is paid for how much better it made the state, by a score of states.

IGPO (arXiv 2510.14967) standardises the rewards of a task before it sums them. Others: TRACE, arXiv
2607.13988; ΔBelief, arXiv 2602.12342.

Page: docs/estimators/columns.md. Test: tests/estimators/test_progress.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import relative
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.returns import following, reward_to_go
from ascribe.steps.table import StepTable

RETURNED = Sentence(
    "with its progress, this step returned {own}; {peers} others returned {baseline} on average"
)
SUMMED = Sentence(
    "progress and rewards from this step on, each compared with {peers} of the task, sum to {own}",
    "it is a sum of comparisons",
)


def rewards_with_progress(reward: Floats, score: Floats, trajectory: Ints, weight: float) -> Floats:
    """``r_t + ω (φ(s_{t+1}) - φ(s_t))``, and the reward alone for a last step.

    ``score`` is φ of the state before each row. Where it is unknown (NaN), so are the rewards of
    this row and of those before it.
    """
    last = following(np.ones(score.size), trajectory) == 0
    unknown = reward_to_go(np.isnan(score).astype(np.float64), trajectory, 1.0) > 0
    change = np.where(last, 0.0, following(score, trajectory) - score)
    return np.where(unknown, np.nan, reward + weight * change)


@dataclass(frozen=True, kw_only=True)
class Progress(Standardising):
    """Rewards for progress: by how much a step raised the score of the state.

    ``A_t = (R'_t - b) / F_norm``, R' the discounted sum of ``r_t + ω (φ(s_{t+1}) - φ(s_t))`` from a
    step on. φ is the column ``score``, such as the policy's probability of the right answer. The
    last step has no state after it: it is paid its reward alone.

    Attributes:
        gamma: discount γ of a return.
        weight: ω, weight of progress against rewards.
        normalise: F_norm is the standard deviation of the task (``std``), or 1 (``mean``).
        baseline: b is the mean of R' over all steps of the ``task``. With ``rewards`` (IGPO), each
            r' is compared with those of the task first, and the results are summed; ``separate``
            compares last steps with last steps, and progress with progress.
    """

    name: ClassVar[str] = "progress"
    paper: ClassVar[str] = "IGPO, arXiv 2510.14967"
    compares_in_groups: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("score",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        name: {"gamma": 1.0, "baseline": baseline, "normalise": "std", "std": "population"}
        for name, baseline in (("igpo", "rewards"), ("igpo-code", "separate"))
    }

    gamma: float = 0.95
    weight: float = 1.0
    normalise: Literal["std", "mean"] = "mean"
    baseline: Literal["task", "rewards", "separate"] = "task"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, score = arrange(table), self.numbers(table, "score")
        paid = rewards_with_progress(self.rewards(steps), score, steps.trajectory, self.weight)
        unknown, late = np.isnan(paid), self.late_penalties(steps)
        paid[unknown] = 0.0
        labels, count = np.where(self.excluded(steps) | unknown, -1, steps.group), steps.group_count
        if self.baseline == "separate":
            goes_on = following(np.ones(paid.size), steps.trajectory).astype(np.int64)
            labels, count = segments.pairs(labels, goes_on, 2)
        to_go = partial(reward_to_go, trajectory=steps.trajectory, gamma=self.gamma)
        own, norm = (
            to_go(paid) - late if self.baseline == "task" else paid,
            self.norm(self.normalise),
        )
        values, reason = compared = relative(own, labels, count, norm, Reason.GROUP_OF_ONE)
        explain = partial(compared.explained, RETURNED)
        if self.baseline != "task":
            credited = to_go((reason == Reason.CREDITED).astype(np.float64)) > 0
            reason[credited] = Reason.CREDITED
            values = to_go(values) - late
            peers = compared.size[compared.labels]
            explain = partial(Explanation, values, np.zeros(values.size), peers, (SUMMED,))
        reason[self.alone(steps)] = Reason.GROUP_OF_ONE
        reason[unknown] = Reason.MISSING_INPUT
        term = self.term(table, values, reason, labels, explain=explain)
        return Credit.of({"progress": term}, repr(self))
