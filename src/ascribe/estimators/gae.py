"""GAE over steps: what a step brought beyond what a critic expected.

Page: docs/estimators/returns.md. Test: tests/estimators/test_gae.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.returns import following, reward_to_go
from ascribe.steps.table import StepTable

EXPECTED = Sentence(
    "the critic expected {baseline} from this state; the step and what followed were worth {own}"
)


def generalised_advantage(
    reward: Floats, value: Floats, trajectory: Ints, cut: Bools, *, gamma: float, lam: float
) -> Floats:
    r"""``A_t = Σ_{k≥t} (γλ)^{k-t} δ_k`` with ``δ_t = r_t + γ V(s_{t+1}) - V(s_t)``.

    ``value`` is V of the state before each row; where it is unknown (NaN), the advantages of this
    row and of those before it are NaN. After a ``cut`` row, ``V(s_{t+1})`` is ``V(s_t)``.
    """
    after = np.where(cut, value, following(value, trajectory))
    surprise = reward + gamma * after - value
    unknown = reward_to_go(np.isnan(value).astype(np.float64), trajectory, 1.0) > 0
    advantage = reward_to_go(np.where(unknown, 0.0, surprise), trajectory, gamma * lam)
    return np.where(unknown, np.nan, advantage)


@dataclass(frozen=True, kw_only=True)
class GAE(Recipe):
    """Generalised advantage estimation over steps, with a critic's values.

    ``A_t = Σ_{k≥t} (γλ)^{k-t} δ_k`` with ``δ_t = r_t + γ V(s_{t+1}) - V(s_t)``. V is the column
    ``value``: the return that a critic expects from the state before the step, and 0 after the end
    of an episode. A trajectory that a limit has cut has not ended: the state after it, which no
    critic saw, counts as worth what its last state is. No trajectories are compared, so a task may
    have a single one.

    Attributes:
        gamma: discount γ of a return; the critic's values should have the same.
        lam: λ, from 0 (trust the critic after one step) to 1 (trust the rewards that were paid).
        bootstrap: a cut trajectory goes on from the value of its last state; otherwise it counts
            as ended, as in verl, where failures that end by the turn limit are to be learned from.
            ``truncation="exclude"`` leaves it out.
    """

    name: ClassVar[str] = "gae"
    paper: ClassVar[str] = "GAE, arXiv 1506.02438; Turn-PPO, arXiv 2512.17008"
    compares_in_groups: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("value",)
    ranges: ClassVar[dict[str, tuple[float, float]]] = {**Recipe.ranges, "lam": (0.0, 1.0)}

    gamma: float = 0.95
    lam: float = 0.95
    bootstrap: bool = True

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, value = arrange(table), self.numbers(table, "value")
        cut = np.zeros(value.size, dtype=np.bool_)
        if self.bootstrap:
            cut[np.append(steps.starts[1:], value.size) - 1] = True
            cut &= steps.truncated
        rows = (self.rewards(steps), value, steps.trajectory, cut)
        values = generalised_advantage(*rows, gamma=self.gamma, lam=self.lam)
        values -= self.late_penalties(steps)
        reason = np.where(np.isnan(values), Reason.MISSING_INPUT, Reason.CREDITED).astype(np.int8)
        expected, worth = np.nan_to_num(value), np.nan_to_num(values)
        peers = np.zeros(value.size, np.int64)
        explain = partial(Explanation, expected + worth, expected, peers, (EXPECTED,))
        term = self.term(table, values, reason, steps.trajectory, explain=explain)
        return Credit.of({"gae": term}, repr(self))
