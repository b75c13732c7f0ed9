"""Rewards seen against their history: standardised, bounded, and a gate of trust."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ascribe.estimators.relative import Norm
from ascribe.estimators.team.statistics import Statistics
from ascribe.steps.arrays import Floats


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """The parameters of CCPO; the defaults are the paper's (Appendix C).

    Attributes:
        alpha: α, how soon a contribution counts fully.
        eta: η, how sharply the solver's trust follows the thinker's contributions.
        decay: λ of the running statistics.
        minimum: samples that statistics must have seen before they are used. Until then rewards are
            compared as they are.
        epsilon: ε, added to every standard deviation (the paper gives no number; its code has
            1e-6).
        statistics: those ``after`` the batch is taken in (Eq. 4), or ``before``: then they do not
            depend on what they are used for.
        flat: what divides if a stream has not varied, σ² ≤ ε: ``epsilon`` alone as in Eq. 4, or
            ``one``.
    """

    alpha: float = 1.0
    eta: float = 1.0
    decay: float = 0.99
    minimum: int = 50
    epsilon: float = 1e-6
    statistics: Literal["after", "before"] = "after"
    flat: Literal["epsilon", "one"] = "epsilon"

    def __post_init__(self) -> None:
        good = {
            "alpha": 0 < self.alpha < math.inf,
            "eta": 0 <= self.eta < math.inf,
            "decay": 0 <= self.decay < 1,
            "minimum": self.minimum >= 0,
            "epsilon": 0 < self.epsilon < math.inf,
            "statistics": self.statistics in {"after", "before"},
            "flat": self.flat in {"epsilon", "one"},
        }
        for name, fits in good.items():
            if not fits:
                raise ValueError(f"shaping: {name} cannot be {getattr(self, name)!r}")

    @property
    def norm(self) -> Norm:
        """How rewards are compared inside a prompt (Eq. 5)."""
        return Norm("std", "sample", self.epsilon)


PAPER = Shaping()
"""The paper's form."""

FIRST_RELEASE = Shaping(minimum=10, statistics="before", flat="one")
"""What the authors' code first computed (commit 824bb27, for think-solve), with its defaults."""


def statistics_for(
    batch: Floats, history: Statistics, shaping: Shaping
) -> tuple[Statistics | None, Statistics]:
    """The statistics to shape a batch with, None while there are too few; and those to hand on.

    Args:
        batch: the numbers of this batch, (rows, streams).
        history: the statistics of the batches before.
        shaping: which statistics are used, and from when.
    """
    after = history.updated(batch, shaping.decay)
    used = after if shaping.statistics == "after" else history
    return (used if used.samples >= max(shaping.minimum, 1) else None), after


def standardised(values: Floats, used: Statistics, shaping: Shaping) -> Floats:
    """``z = (x - μ) / (σ + ε)`` of each column, with the μ and σ of its stream."""
    scores: Floats = (values - np.array(used.mean)) / _scale(used, shaping)
    return scores


def bounded(values: Floats, used: Statistics, shaping: Shaping) -> Floats:
    """``r = tanh(α z)`` of each column (CCPO, Eq. 4): no outlier counts more than 1."""
    return np.tanh(shaping.alpha * standardised(values, used, shaping))


def trust(used: Statistics, stream: str, shaping: Shaping) -> float:
    """``g = 1 / (1 + exp(-η μ / (σ + ε)))`` of a stream of contributions, between 0 and 1.

    One half if they were worth nothing in the mean, more if they helped, less if they did harm.
    """
    column = used.streams.index(stream)
    helpful = used.mean[column] / float(_scale(used, shaping)[column])
    return 0.5 + 0.5 * math.tanh(0.5 * shaping.eta * helpful)  # as above, and cannot overflow


def _scale(used: Statistics, shaping: Shaping) -> Floats:
    variance = np.array(used.variance)
    if shaping.flat == "one":
        variance = np.where(variance > shaping.epsilon, variance, 1.0)
    deviation: Floats = np.sqrt(variance)
    return deviation + shaping.epsilon
