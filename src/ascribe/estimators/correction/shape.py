"""Shaped rewards, and the advantages that follow from them (IBPO, Eq. 7, 8, 13, 14, 18)."""

import math
from dataclasses import dataclass

import numpy as np

from ascribe.estimators.correction.compare import Compared, Signal
from ascribe.estimators.correction.tuples import Tuples
from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm, relative
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints

NORM = Norm("std", "population", 1e-8)
"""Population standard deviation, 1e-8 added (Algorithm 1, lines 29 and 31)."""


@dataclass(frozen=True)
class Shaping:
    """How much a comparison counts.

    Attributes:
        weight: λ (paper: best around 0.6, of 0.4 to 1.2).
        scale: β, in units of the reward between wrong and right (paper: 0.5).
    """

    weight: float = 0.6
    scale: float = 0.5

    def __post_init__(self) -> None:
        for name, value in (("weight", self.weight), ("scale", self.scale)):
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r}, but must be finite and not negative")


@dataclass(frozen=True, eq=False)
class Shaped:
    """Shaped rewards; arrays have one entry per trajectory."""

    reward: Floats
    """r'."""
    bonus: Floats
    """λ β s: what the comparison added."""
    why: Codes8
    """``Compared``: a bonus of zero is another answer than no comparison."""
    overtakes: Bools
    """Wrong trajectories whose shaped reward reaches that of a right one of their task: λ β is too
    large for these rewards, and the order of right and wrong is lost."""


def shape(
    reward: Floats,
    right: Bools,
    group: Ints,
    tuples: Tuples,
    signal: Signal,
    *,
    shaping: Shaping = Shaping(),  # noqa: B008 (frozen)
) -> Shaped:
    r"""Rewards with the comparison in them.

    ``r' = r + λ β s`` for a wrong trajectory that was compared, ``r' = r`` for every other. A
    comparison that failed costs nothing: what failed may be the correction, not the trajectory
    (Appendix C.2).

    Args:
        reward: terminal reward r of each trajectory.
        right: whether each trajectory is right.
        group: task of each trajectory; -1 takes no part.
        tuples: the tuples of the wrong trajectories.
        signal: what an operator said of them.
        shaping: λ and β.
    """
    bonus = np.zeros(reward.size)
    bonus[tuples.target] = shaping.weight * shaping.scale * signal.values
    why = np.full(reward.size, Compared.RIGHT, dtype=np.int8)
    why[tuples.target] = signal.why
    why[group < 0] = Compared.OUT
    shaped = reward + bonus

    lowest = np.full(int(group.max(initial=-1)) + 2, math.inf)  # the last: rows that take no part
    np.minimum.at(lowest, np.where(right, group, -1), np.where(right, reward, math.inf))
    lowest[-1] = math.inf
    overtakes = (bonus > 0) & (shaped >= lowest[group])
    return Shaped(shaped, bonus, why, overtakes)


def advantages(reward: Floats, group: Ints, count: int) -> tuple[Floats, Codes8]:
    r"""``A = (r' - μ') / (σ' + 1e-8)`` inside each task (Eq. 18), and reasons.

    Args:
        reward: shaped reward r' of each trajectory.
        group: task of each trajectory; -1 takes no part.
        count: number of tasks.
    """
    return relative(reward, group, count, NORM, Reason.GROUP_OF_ONE)
