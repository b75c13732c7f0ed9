"""Rewards to returns: episode return, discounted reward-to-go, penalties, truncation.

All functions take rows in the canonical order of ``arrange``: trajectories contiguous,
steps rising.
"""

from typing import Literal

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints

PenaltyTiming = Literal["before", "after"]
"""When the invalid-action penalty is subtracted.

``before`` discounting it is part of the reward and lowers the returns of earlier steps, as in the
GiGPO paper ("a reward penalty"). ``after`` discounting it lowers the return of the invalid step
alone, as in verl-agent.
"""


def episode_return(reward: Floats, trajectory: Ints, count: int) -> Floats:
    """Return of each trajectory: ``R(τ) = Σ_t r_t`` (GiGPO, Section 4.1)."""
    return segments.total(reward, trajectory, count)


def following(values: Floats, trajectory: Ints) -> Floats:
    """The value of the next row of each row's trajectory; 0 at its last row."""
    goes_on = np.append(trajectory[1:] == trajectory[:-1], False)
    return np.where(goes_on, np.append(values[1:], 0.0), 0.0)


def reward_to_go(reward: Floats, trajectory: Ints, gamma: float) -> Floats:
    r"""Discounted return from each step on: ``R_t = Σ_{k≥t} γ^{k-t} r_k`` (GiGPO, Eq. 5).

    Computed by doubling: after the pass with reach d, a row holds the sum over its next 2d steps.
    So a batch costs rows times log2 of the longest trajectory, without a loop over rows, and equal
    reward sequences give equal bits.
    """
    returns = reward.copy()
    reach, factor, later = 1, gamma, np.empty_like(returns)
    while reach < returns.size and factor != 0.0:
        same_trajectory = trajectory[reach:] == trajectory[:-reach]
        if not same_trajectory.any():
            break
        np.multiply(returns[reach:], factor, out=later[reach:])
        np.add(returns[:-reach], later[reach:], out=returns[:-reach], where=same_trajectory)
        reach, factor = 2 * reach, factor * factor
    return returns


def penalties(valid: Bools, amount: float) -> Floats:
    """The penalty of each row: ``amount`` for an invalid action, else 0."""
    return np.where(valid, 0.0, amount)
