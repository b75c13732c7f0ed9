"""G2PO: steps as transitions between states whose values are means over all visits.

    A = A^E + ω (A^next + A^gain)
    next_t = r_t + Φ(s_{t+1})                                Φ(s) = γ · mean of R over visits to s
    A^next = (next_t - mean over the state group) / F_norm
    A^gain = (next_t - Φ(s_t) - mean over the task) / F_norm

A^E, F_norm and R are those of GiGPO. Φ is 0 after the last step, whose reward says how it ended. A
row without a state is a visit of its own. Paper: G2PO, arXiv 2606.22995.

Page: docs/estimators/graphs.md. Test: tests/estimators/test_g2po.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.credit import Reason, Sentence
from ascribe.estimators.gigpo import StepTerms, TwoLevel
from ascribe.estimators.relative import relative
from ascribe.groups import Groups
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.returns import following, reward_to_go
from ascribe.steps.table import StepTable

NEXT = Sentence("{peers} steps in this state came to what is worth {baseline}; this one {own}")
GAIN = Sentence("the {peers} steps of this task gained {baseline:+} in value; this one {own:+}")


def transitions(
    reward: Floats, labels: Ints, count: int, trajectory: Ints, gamma: float
) -> tuple[Floats, Floats]:
    """What each step led to, ``r_t + Φ(s_{t+1})``, and where it came from, ``Φ(s_t)``.

    ``labels`` are state groups, -1 a state of its own.
    """
    returns = reward_to_go(reward, trajectory, gamma)
    mean = segments.pick(segments.mean(returns, labels, count), labels)
    here = gamma * np.where(labels < 0, returns, mean)
    return reward + following(here, trajectory), here


@dataclass(frozen=True, kw_only=True)
class G2PO(TwoLevel):
    """Group-graph policy optimization: transitions between states of pooled value.

    ``A = A^E + ω (A^next + A^gain)``. ``A^next`` compares what a step led to with its peers in the
    same state, ``A^gain`` how much value it gained with all steps of the task. The value of a state
    is the mean return of its visits, discounted once.
    """

    name: ClassVar[str] = "g2po"
    paper: ClassVar[str] = "G2PO, arXiv 2606.22995"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "public": {
            "baseline_unit": "step",
            "group_of_one": "raw",
            "penalty_timing": "after",
            "invalid_penalty": 0.1,
        }
    }
    sentences: ClassVar[tuple[Sentence, Sentence]] = (NEXT, NEXT)

    normalise: Literal["std", "mean"] = "mean"

    def without_recurrence(self) -> str:
        """No two actions were taken in one state; the gain to the next state remains."""
        return f"{self.name} compares no actions and has its episode term and gains alone"

    def step_terms(self, table: StepTable, groups: Groups) -> StepTerms:
        """``A^next`` and ``A^gain``; excluded rows give no values to states."""
        steps, out = arrange(table), self.excluded(arrange(table))
        task, tasks = np.where(out, -1, steps.group), steps.group_count
        labels = np.where(out, -1, groups.labels)
        rows = (self.rewards(steps), labels, groups.count, steps.trajectory)
        led_to, came_from = transitions(*rows, self.gamma)
        gained, norm = led_to - came_from, self.norm(self.normalise)
        values, reason = compared = relative(gained, task, tasks, norm, Reason.GROUP_OF_ONE)
        if self.group_of_one == "no_credit":  # steps of one trajectory are not compared alone
            reason[self.alone(steps)] = Reason.GROUP_OF_ONE
        explain = partial(compared.explained, GAIN)
        gain = self.term(table, values, reason, task, weight=self.weight, explain=explain)
        step = self.step_term(table, groups, led_to - self.late_penalties(steps))
        return {"step": step, "gain": gain}, {}
