"""A recipe in a package of its own: returns of trajectories against the median of their group.

    A(τ_i) = R(τ_i) - median_j R(τ_j)

The entry point in ``pyproject.toml`` makes it known: after ``pip install .`` in this folder,
``ascribe.recipe("median")``, ``ascribe credit --recipe median``, the engines and the report use it
like any other.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ascribe import Credit, Reason, Recipe, StepTable
from ascribe.estimators.credit import Explanation, Sentence
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import arrange

SENTENCE = Sentence(
    "the median return of the {peers} trajectories is {baseline}; this one returned {own}"
)


def group_medians(values: Floats, group: Ints, count: int) -> Floats:
    """Median of ``values`` in each group; 0 for a group without members.

    Args:
        values: one per member.
        group: group of each member; -1 takes no part.
        count: number of groups.
    """
    order = np.lexsort((values, group))
    ranked = values[order[np.count_nonzero(group < 0) :]]
    size = segments.size(group, count)
    first = np.cumsum(size) - size
    low, high = first + (size - 1) // 2, first + size // 2
    medians = np.zeros(count)
    some = size > 0
    medians[some] = (ranked[low[some]] + ranked[high[some]]) / 2
    return medians


@dataclass(frozen=True, kw_only=True)
class MedianBaseline(Recipe):
    """Returns of trajectories against the median of their task group.

    ``A(τ_i) = R(τ_i) - median_j R(τ_j)``. One outlier does not move the baseline.
    """

    name: ClassVar[str] = "median"
    paper: ClassVar[str] = "an example"
    credits_steps: ClassVar[bool] = False

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps = arrange(table)
        returns, group = self.episode_returns(steps), self.trajectory_groups(steps)
        size = np.append(segments.size(group, steps.group_count), 0)[group]
        same = np.append(segments.constant(returns, group, steps.group_count), True)[group]
        baseline = np.append(group_medians(returns, group, steps.group_count), 0.0)[group]
        reason = np.where(same, Reason.ZERO_VARIANCE, Reason.CREDITED).astype(np.int8)
        reason[size < 2] = Reason.GROUP_OF_ONE
        values = np.where(reason == Reason.CREDITED, returns - baseline, 0.0)

        of = steps.trajectory  # what a trajectory gets, each of its steps gets
        explain = partial(Explanation, returns[of], baseline[of], size[of], (SENTENCE,))
        term = self.term(table, values[of], reason[of], steps.group, explain=explain)
        return Credit.of({"episode": term}, repr(self))
