"""Running statistics of rewards: a value that goes in, comes out, and into a checkpoint."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascribe.steps.arrays import Floats


@dataclass(frozen=True)
class Statistics:
    r"""Exponential moving averages of the mean and the variance of some streams of numbers.

    ``μ_t = λ μ_{t-1} + (1 - λ) mean_t`` and ``σ²_t = λ σ²_{t-1} + (1 - λ) var_t`` (CCPO, Eq. 2-3),
    with the mean and the variance (over n) of the batch. The first batch is taken as it is.

    Nothing else is remembered: a run that saves ``to_dict()`` with its checkpoint, and goes on from
    ``from_dict()``, computes what the run would have computed that was not stopped, bit for bit.

    Attributes:
        streams: what is averaged, one name each: agents, or kinds of reward.
        mean: μ of each stream.
        variance: σ² of each stream.
        samples: numbers seen so far, per stream.
    """

    streams: tuple[str, ...]
    mean: tuple[float, ...]
    variance: tuple[float, ...]
    samples: int

    def __post_init__(self) -> None:
        if not len(self.streams) == len(self.mean) == len(self.variance):
            raise ValueError("statistics need one mean and one variance per stream")
        if not all(map(math.isfinite, (*self.mean, *self.variance))):
            raise ValueError("statistics must be finite")
        if self.samples < 0 or min(self.variance, default=0.0) < 0:
            raise ValueError("statistics have negative variances or counts")

    @staticmethod
    def start(streams: Sequence[str]) -> "Statistics":
        """Before the first batch."""
        nothing = (0.0,) * len(streams)
        return Statistics(tuple(streams), nothing, nothing, 0)

    def updated(self, batch: Floats, decay: float) -> "Statistics":
        """The statistics after one more batch.

        Args:
            batch: the numbers, (rows, streams). Without rows nothing changes.
            decay: λ, how much of the old statistics stays.

        Raises:
            ValueError: if the batch has other streams, or numbers that are not finite, which would
                stay in the averages for ever.
        """
        if batch.ndim != 2 or batch.shape[1] != len(self.streams):
            raise ValueError(f"a batch of shape {batch.shape} for {len(self.streams)} streams")
        if not np.isfinite(batch).all():
            raise ValueError("a batch with numbers that are not finite")
        rows = len(batch)
        if rows == 0:
            return self
        old = decay if self.samples else 0.0
        mean = old * np.array(self.mean) + (1.0 - old) * batch.mean(axis=0)
        variance = old * np.array(self.variance) + (1.0 - old) * batch.var(axis=0)
        return Statistics(
            self.streams, tuple(mean.tolist()), tuple(variance.tolist()), self.samples + rows
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for a checkpoint; JSON keeps them exactly."""
        return {
            "streams": list(self.streams),
            "mean": list(self.mean),
            "variance": list(self.variance),
            "samples": self.samples,
        }

    @staticmethod
    def from_dict(saved: Mapping[str, Any]) -> "Statistics":
        """The statistics that ``to_dict`` gave.

        Raises:
            ValueError: if something is missing or is no such thing.
        """
        try:
            return Statistics(
                tuple(map(str, saved["streams"])),
                tuple(map(float, saved["mean"])),
                tuple(map(float, saved["variance"])),
                int(saved["samples"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no saved statistics: {error}") from error
