"""GiGPO: credit for the episode, and for the step among visits to the same state."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.two_level import TwoLevel
from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.groups.similar import similar
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable


@dataclass(frozen=True, kw_only=True)
class GiGPO(TwoLevel):
    """Group-in-group policy optimization: an episode term and a step term.

    ``A = A^E + ω A^S`` (Eq. 8). ``A^E`` compares a trajectory's return with its task group
    (Eq. 3), ``A^S`` a step's discounted return with the other visits to the same state (Eq. 7).

    Attributes:
        grouping: states are the same if their texts are equal (``exact``), or ``similar``.
        similarity: smallest ratio of similar states (paper: 0.9 for search).
        scope: compare states inside a task ``group`` (paper) or over the ``batch``.
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
        "trinity": {
            "gamma": 1.0,
            "normalise": "mean",
            "scope": "batch",
            "group_of_one": "raw",
        },
        "roll": {"scope": "batch", "baseline_unit": "step"},
    }

    grouping: Literal["exact", "similar"] = "exact"
    similarity: float = 0.9
    scope: Literal["group", "batch"] = "group"

    def state_groups(
        self,
        table: StepTable,
        inputs: dict[str, Any],
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order, and metrics about how they were made."""
        steps = arrange(table)
        task = np.zeros_like(steps.group) if self.scope == "batch" else steps.group
        if self.grouping == "similar":
            # A trajectory that is left out must not be the link between two states.
            state = np.where(self._out(steps), -1, steps.state)
            return similar(task, state, table.state.values, self.similarity), {}
        return exact(task, steps.state, table.state.values.size), {}
