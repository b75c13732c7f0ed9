"""The discount that suits the successes of a table.

``1 / (1 - γ)`` is how many steps before a reward an action is still credited with much of it. The
proposal sets it to 1.5 times the median length of the successes. What a policy learns by this rule,
and by others, is in ``benchmarks/discount.py``.
"""

from dataclasses import dataclass

import numpy as np

from ascribe.steps.check import arrange
from ascribe.steps.problems import counted
from ascribe.steps.returns import episode_return
from ascribe.steps.table import StepTable

REACH = 1.5
"""How far back a reward is credited, in lengths of a success."""
FEWEST = 4
"""Successes that a proposal needs."""
USUAL = 0.95
"""The default discount of recipes."""
LITTLE = 0.05
"""A discount that leaves less of a reward over the median length is too small."""


@dataclass(frozen=True)
class Discount:
    """A proposed discount.

    Attributes:
        gamma: the discount; None if none can be proposed.
        successes: trajectories behind it: those whose return is above the mean.
        length: median number of steps of a trajectory.
        problem: why none can be proposed.
    """

    gamma: float | None
    successes: int
    length: float
    problem: str = ""

    def too_small(self, gamma: float) -> bool:
        """Whether a discount leaves little over the median length, and the proposal leaves more."""
        return gamma < (self.gamma or 0.0) and gamma**self.length < LITTLE

    def compared(self, gamma: float) -> str:
        """What a recipe's discount leaves of a reward, and the proposal, as a sentence."""
        steps = counted(round(self.length), "step")
        proposal = f"No discount is proposed: {self.problem}"
        if self.gamma is not None:
            # Recipes that compare states lose by less than their default, and returns seldom does.
            basis = f"{'for returns, ' * (self.gamma < gamma)}from {self.successes:,} successes"
            kept = f"{self.gamma**self.length:.2g}"
            proposal = f"Proposed {basis}: {self.gamma:g}, which gives {kept}"
        return (
            f"With discount {gamma:g}, a step gets {gamma**self.length:.2g} of a reward {steps} "
            f"later (the median length). {proposal}."
        )


def propose_discount(table: StepTable) -> Discount:
    """The discount for recipes with a parameter ``gamma``: ``1 / (1 - γ) = 1.5 median length``.

    The median is over trajectories that returned more than the mean of all.

    Raises:
        TableError: if the rows of the table cannot be put in order.
    """
    steps = arrange(table)
    length = np.bincount(steps.trajectory)
    returns = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
    last = np.append(steps.starts[1:], steps.rows.size) - 1
    better = returns > returns.mean() + 1e-9 * np.abs(returns).max()
    sizes = np.abs(steps.reward) * better[steps.trajectory]
    successes, median = int(better.sum()), float(np.median(length))
    if length.max() == 1:
        problem = "all trajectories have one step"
    elif not successes:
        problem = "all trajectories returned the same"
    elif sizes[last].sum() <= sizes.sum() / 2:
        problem = "successes are not paid at their last step"
    elif successes < FEWEST:
        problem = f"fewer than {FEWEST} trajectories returned more than the mean"
    else:
        share = min(1.0 / (REACH * float(np.median(length[better]))), 0.5)
        return Discount(round(1.0 - float(f"{share:.2g}"), 9), successes, median)
    return Discount(None, successes, median, problem)
