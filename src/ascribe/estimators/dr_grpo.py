"""Dr. GRPO: GRPO without the division by the standard deviation.

Page: docs/estimators/grpo.md. Test: tests/estimators/test_dr_grpo.py.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit
from ascribe.estimators.relative import Norm
from ascribe.steps.table import StepTable


@dataclass(frozen=True, kw_only=True)
class DrGRPO(Recipe):
    """GRPO without the division by the standard deviation.

    ``A(τ_i) = R(τ_i) - mean_j R(τ_j)``, the same for every step, with R the return of a trajectory
    and j those of the task group. Dividing favours tasks that are very easy or very hard.
    """

    name: ClassVar[str] = "dr_grpo"
    paper: ClassVar[str] = "Understanding R1-Zero-like training, arXiv 2503.20783"
    credits_steps: ClassVar[bool] = False
    compares_in_groups: ClassVar[bool] = True

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        return Credit.of({"episode": self.episode_term(table, Norm("mean"))}, repr(self))
