"""Progress: each step is paid for how much better it made the state, by a score of states.

    r'_t = r_t + ω (φ(s_{t+1}) - φ(s_t))                 for a step that another one follows
    A_t = (R'_t - b) / F_norm,    R'_t = Σ_{k≥t} γ^{k-t} r'_k

φ is the column ``score``, such as the policy's probability of the right answer. The last step has
no state after it: it is paid its reward alone. IGPO (arXiv 2510.14967) standardises the rewards r'
of a task first, and sums then. Others: TRACE, arXiv 2607.13988; ΔBelief, arXiv 2602.12342.

Page: docs/estimators/progress.md. Test: tests/estimators/test_progress.py.
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
from ascribe.steps.returns import reward_to_go
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

    Args:
        reward: reward of each row, rows in canonical order.
        score: φ of the state before each row; NaN where it is unknown.
        trajectory: label of each row's trajectory.
        weight: ω.

    Returns:
        One reward per row: NaN if a score is unknown in the row or in a later one.
    """
    goes_on = np.append(trajectory[1:] == trajectory[:-1], False)
    unknown = reward_to_go(np.isnan(score).astype(np.float64), trajectory, 1.0) > 0
    change = np.where(goes_on, np.append(score[1:], 0.0) - score, 0.0)
    return np.where(unknown, np.nan, reward + weight * change)


@dataclass(frozen=True, kw_only=True)
class Progress(Standardising):
    """Rewards for progress: by how much a step raised the score of the state.

    ``A_t = (R'_t - b) / F_norm``, R' the discounted sum of ``r_t + ω (φ(s_{t+1}) - φ(s_t))`` from a
    step on, φ from the column ``score``.

    Attributes:
        gamma: discount γ of a return.
        weight: ω, weight of progress against rewards.
        normalise: F_norm is the standard deviation of the task (``std``), or 1 (``mean``).
        baseline: b is the mean of R' over all steps of the ``task``; or over its trajectories at
            the same ``turn``, where one that has ended counts as 0; or ``rewards``: each r' is
            compared with those of the task first, and summed then (IGPO).
    """

    name: ClassVar[str] = "progress"
    paper: ClassVar[str] = "IGPO, arXiv 2510.14967"
    compares_in_groups: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("score",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "igpo": {"gamma": 1.0, "baseline": "rewards", "normalise": "std"},
        "igpo-code": {"gamma": 1.0, "baseline": "turn"},
    }

    gamma: float = 0.95
    weight: float = 1.0
    normalise: Literal["std", "mean"] = "mean"
    baseline: Literal["task", "turn", "rewards"] = "task"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline == "turn" and self.normalise == "std":
            raise ValueError("progress: baseline 'turn' has no normalise 'std'; leave it at 'mean'")

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, score = arrange(table), self.numbers(table, "score")
        paid = rewards_with_progress(self.rewards(steps), score, steps.trajectory, self.weight)
        unknown, sentence = np.isnan(paid), RETURNED
        paid[unknown] = 0.0
        to_go = partial(reward_to_go, trajectory=steps.trajectory, gamma=self.gamma)
        own, late = to_go(paid) - self.late_penalties(steps), self.late_penalties(steps)
        task, tasks = np.where(self.excluded(steps) | unknown, -1, steps.group), steps.group_count
        members = np.append(segments.size(self.trajectory_groups(steps), tasks), 0)[task]
        compared = paid if self.baseline == "rewards" else own
        norm = self.norm(self.normalise)
        values, reason = relative(compared, task, tasks, norm, Reason.GROUP_OF_ONE)
        mean, labels = segments.pick(segments.mean(compared, task, tasks), task), task
        peers = np.append(segments.size(task, tasks), 0)[task]
        if self.baseline == "turn":  # the sum over those that came so far, by all trajectories
            labels, turns = segments.pairs(task, steps.step, int(steps.step.max()) + 1)
            at_turn = segments.pick(segments.total(own, labels, turns), labels)
            mean, peers = at_turn / np.maximum(members, 1), members
            values = own - mean
        elif self.baseline == "rewards":
            values = own = to_go(values) - late
            mean, sentence = np.zeros(own.size), SUMMED
        reason[(members < 2) & (task >= 0)] = Reason.GROUP_OF_ONE
        reason[unknown] = Reason.MISSING_INPUT
        explain = partial(Explanation, own, mean, peers, (sentence,))
        values = np.where(reason == Reason.CREDITED, values, 0.0)
        term = self.term(table, values, reason, labels, explain=explain)
        return Credit.of({"progress": term}, repr(self))
