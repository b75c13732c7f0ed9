"""How much better than its peers: a value against the mean, and the spread, of its group."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ascribe import segments
from ascribe.arrays import Codes8, Floats, Ints
from ascribe.credit import Reason

Std = Literal["sample", "population"]
"""``sample`` divides the squares by n - 1 (torch's default), ``population`` by n."""


@dataclass(frozen=True)
class Norm:
    """What a value is compared with, and on what scale.

    Attributes:
        by: ``mean`` subtracts the group's mean; ``std`` divides by its standard deviation besides;
            ``leave_one_out`` subtracts the mean of the others.
        std: which standard deviation.
        epsilon: added to the standard deviation.
        floor: the standard deviation is at least this, so that near-equal values are not blown up
            to full size.
    """

    by: Literal["std", "mean", "leave_one_out"] = "std"
    std: Std = "sample"
    epsilon: float = 1e-6
    floor: float = 0.0


def relative(
    values: Floats, labels: Ints, count: int, norm: Norm, alone: Reason = Reason.SINGLETON
) -> tuple[Floats, Codes8]:
    r"""Relative advantage of each value inside its group.

    With μ the mean, σ the standard deviation and n the size of the group of value x:

    - ``mean``: ``A = x - μ``
    - ``std``: ``A = (x - μ) / (max(σ, floor) + epsilon)``
    - ``leave_one_out``: ``A = x - (n μ - x) / (n - 1) = n / (n - 1) (x - μ)``

    A group of one, and a group whose values are all exactly equal, give no credit: 0 and a reason.

    Args:
        values: what is compared, one per member.
        labels: group of each member; -1 takes no part (0, and the reason ``alone``).
        count: number of groups.
        norm: what a value is compared with.
        alone: the reason for a member of a group of one.

    Returns:
        The advantages and, for each, its ``Reason``.
    """
    size = segments.size(labels, count)
    advantage = values - segments.pick(segments.mean(values, labels, count), labels)
    if norm.by == "std":
        ddof = 1 if norm.std == "sample" else 0
        spread = np.sqrt(segments.variance(values, labels, count, ddof=ddof))
        scale = segments.pick(np.maximum(spread, norm.floor) + norm.epsilon, labels)
        # Rows that take no part, and groups of no spread without an epsilon, get no credit below.
        advantage = np.divide(advantage, scale, out=np.zeros(scale.size), where=scale > 0)
    elif norm.by == "leave_one_out":
        advantage = advantage * segments.pick(size / np.maximum(size - 1, 1), labels)

    same = segments.constant(values, labels, count)
    reason_of = np.where(same, Reason.ZERO_VARIANCE, Reason.CREDITED).astype(np.int8)
    reason_of[size <= 1] = alone
    reason = np.append(reason_of, np.int8(alone))[labels]
    return np.where(reason == Reason.CREDITED, advantage, 0.0), reason
