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


def episode_outcome(reward: Floats, trajectory: Ints, count: int) -> Floats:
    """What each trajectory earned, to compare and to count: its return without rounding.

    Returns that differ by rounding alone are one outcome, so .1 + .2 + .3 is .3 + .2 + .1, and
    .1 + .2 - .3 is no reward above 0.
    """
    size = segments.total(np.abs(reward), trajectory, count)
    return snap(episode_return(reward, trajectory, count), size)


def snap(values: Floats, size: Floats) -> Floats:
    """Sums, of which those that differ by rounding alone are made equal.

    Neighbours closer than ``ROUNDING`` times the larger of their ``size`` are one value: a number
    of at most six digits if there is one so near, else the smallest of them. Others stay.

    Args:
        values: sums.
        size: of each one, the sum of its absolute terms.
    """
    if values.size == 0:
        return values
    order = np.argsort(values, kind="stable")
    value, near = values[order], segments.ROUNDING * size[order]
    apart = np.append(True, np.diff(value) > np.maximum(near[1:], near[:-1]))
    first = np.flatnonzero(apart)
    low, high = value[first], value[np.append(first[1:], value.size) - 1]
    near = np.maximum.reduceat(near, first)
    # The place of the sixth digit of the size. With more, numbers of chance would be near one.
    digit = 5 - np.floor(np.log10(np.maximum(near / segments.ROUNDING, 1e-290)))
    power = 10.0 ** np.abs(digit)
    up = digit >= 0
    short = np.where(up, np.rint(low * power) / power, np.rint(low / power) * power) + 0.0
    is_short = np.maximum(np.abs(low - short), np.abs(high - short)) <= near
    snapped = np.empty_like(values)
    snapped[order] = np.where(is_short, short, low)[np.cumsum(apart) - 1]
    return snapped


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
