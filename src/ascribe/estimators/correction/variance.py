"""Whether shaping lowers the variance of rewards inside tasks (IBPO, Theorem A.2)."""

import math
from dataclasses import dataclass

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints


@dataclass(frozen=True)
class Moments:
    r"""Variances and covariance inside tasks, from which the range of λ follows.

    ``Var(r + λ Δ) = Var(r) + 2 λ Cov(r, Δ) + λ² Var(Δ)``, so the variance falls exactly for
    ``0 < λ < -2 Cov(r, Δ) / Var(Δ)``, and most at half of that. Advantages centred inside a task of
    G trajectories have (G - 1) / G of all three, which cancels. The paper leaves the factor out of
    the covariance alone, and its range is G / (G - 1) times too long.

    Attributes:
        reward: variance of the reward r.
        signal: variance of the bonus Δ = β s at λ = 1.
        covariance: of both.
    """

    reward: float
    signal: float
    covariance: float

    @property
    def limit(self) -> float:
        """Below this λ the variance falls; 0 if it never does, as where Δ does not vary."""
        return max(-2.0 * self.covariance / self.signal, 0.0) if self.signal > 0 else 0.0

    def ratio(self, weight: float) -> float:
        """Variance with shaping at λ = ``weight`` over that without; NaN where that is 0."""
        shaped = self.reward + 2.0 * weight * self.covariance + weight * weight * self.signal
        return shaped / self.reward if self.reward > 0 else math.nan


def moments(reward: Floats, signal: Floats, group: Ints, count: int) -> Moments:
    """Moments pooled over tasks: ``Σ over tasks of sums of products / Σ over tasks of (G - 1)``.

    Args:
        reward: terminal reward r of each trajectory.
        signal: bonus Δ of each trajectory at λ = 1: β s where it is wrong, 0 where it is right.
        group: task of each trajectory; -1 takes no part.
        count: number of tasks.
    """
    part = group >= 0
    one = (reward - segments.pick(segments.mean(reward, group, count), group))[part]
    two = (signal - segments.pick(segments.mean(signal, group, count), group))[part]
    if segments.constant(signal, group, count).all():
        two[:] = 0.0  # what is left is rounding, and the limit divides by it
    freedom = max(int(np.maximum(segments.size(group, count) - 1, 0).sum()), 1)
    return Moments(
        float(one @ one) / freedom, float(two @ two) / freedom, float(one @ two) / freedom
    )
