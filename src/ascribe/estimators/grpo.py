"""GRPO: returns standardised inside the task group.

Page: docs/estimators/grpo.md. Test: tests/estimators/test_grpo.py.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit
from ascribe.steps.table import StepTable


@dataclass(frozen=True, kw_only=True)
class GRPO(Standardising):
    """Group relative policy optimization: returns standardised inside the task group.

    ``A(τ_i) = (R(τ_i) - mean_j R(τ_j)) / (std_j R(τ_j) + std_epsilon)``, the same for every step.
    R is the return of a trajectory, and j runs over those of the task group, each counted once.
    """

    name: ClassVar[str] = "grpo"
    paper: ClassVar[str] = "DeepSeekMath, arXiv 2402.03300"
    credits_steps: ClassVar[bool] = False
    compares_in_groups: ClassVar[bool] = True

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        return Credit.of({"episode": self.episode_term(table, self.norm("std"))}, repr(self))
