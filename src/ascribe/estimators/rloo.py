"""RLOO: REINFORCE with a leave-one-out baseline.

Page: docs/estimators/grpo.md. Test: tests/estimators/test_rloo.py.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit, Sentence
from ascribe.estimators.relative import Norm
from ascribe.steps.table import StepTable

OTHERS = Sentence(
    "this one returned {own}; the {peers} other trajectories returned {baseline} on average"
)


@dataclass(frozen=True, kw_only=True)
class RLOO(Recipe):
    """REINFORCE with a leave-one-out baseline.

    ``A(τ_i) = R(τ_i) - 1/(N-1) Σ_{j≠i} R(τ_j)``, the same for every step, with R the return of a
    trajectory and j the N of the task group: unbiased, and N/(N-1) times the mean-centred form.
    """

    name: ClassVar[str] = "rloo"
    paper: ClassVar[str] = "Back to basics, arXiv 2402.14740"
    credits_steps: ClassVar[bool] = False
    compares_in_groups: ClassVar[bool] = True

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        term = self.episode_term(table, Norm("leave_one_out"), OTHERS)
        return Credit.of({"episode": term}, repr(self))
