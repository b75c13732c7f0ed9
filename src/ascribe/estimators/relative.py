"""Relative advantages: a value against the mean and the standard deviation of its group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ascribe.estimators.credit import Explanation, Reason, Sentence, Term
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints

Std = Literal["sample", "population"]
"""``sample`` divides the squares by n - 1 (torch's default), ``population`` by n."""


@dataclass(frozen=True)
class Norm:
    """What a value is compared with, and on what scale.

    Attributes:
        by: ``mean`` subtracts the group's mean; ``std`` also divides by its standard deviation;
            ``leave_one_out`` subtracts the mean of the others.
        std: which standard deviation.
        epsilon: added to the standard deviation.
        floor: smallest standard deviation, so that tiny differences are not amplified.
    """

    by: Literal["std", "mean", "leave_one_out"] = "std"
    std: Std = "sample"
    epsilon: float = 1e-6
    floor: float = 0.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Members compared inside their groups; unpacks into ``values`` and ``reason``.

    Attributes:
        values: the advantage of each member.
        reason: the ``Reason`` of each.
        own: what was compared.
        labels: group of each member; that of members which take no part is the last.
        mean: mean of each group.
        size: members of each group.
        leave_one_out: whether a member was compared with the mean of the others.
    """

    values: Floats
    reason: Codes8
    own: Floats
    labels: Ints
    mean: Floats
    size: Ints
    leave_one_out: bool

    def __iter__(self) -> Iterator[Any]:
        return iter((self.values, self.reason))

    def explained(self, sentence: Sentence, members: Ints | None = None) -> Explanation:
        """What was compared with what.

        Args:
            sentence: how the comparison reads.
            members: the member that each row belongs to, as its trajectory, -1 for none; by default
                rows are members.
        """
        baseline, peers = self.mean[self.labels], self.size[self.labels]
        if self.leave_one_out:
            baseline = (peers * baseline - self.own) / np.maximum(peers - 1, 1)
            peers = np.maximum(peers - 1, 0)
        if members is None:
            return Explanation(self.own, baseline, peers, (sentence,))
        own, baseline = np.append(self.own, 0.0)[members], np.append(baseline, 0.0)[members]
        return Explanation(own, baseline, np.append(peers, 0)[members], (sentence,))


def relative(
    values: Floats, labels: Ints, count: int, norm: Norm, alone: Reason = Reason.SINGLETON
) -> Comparison:
    r"""Relative advantage of each value inside its group.

    With μ the mean, σ the standard deviation and n the size of the group of value x:

    - ``mean``: ``A = x - μ``
    - ``std``: ``A = (x - μ) / (max(σ, floor) + epsilon)``
    - ``leave_one_out``: ``A = x - (n μ - x) / (n - 1) = n / (n - 1) (x - μ)``

    A group of one, and a group whose values are all equal but for rounding, give no credit: 0 and a
    reason.

    Args:
        values: what is compared, one per member.
        labels: group of each member; -1 takes no part (0, and the reason ``alone``).
        count: number of groups.
        norm: what a value is compared with.
        alone: the reason for a member of a group of one.
    """
    if labels.min(initial=0) < 0:
        labels = np.where(labels < 0, count, labels)
    count += 1  # rows that take no part share one segment more, the last
    size = segments.size(labels, count)
    mean = segments.total(values, labels, count) / np.maximum(size, 1)
    advantage = values - mean[labels]
    if norm.by == "std":
        freedom = size - (1 if norm.std == "sample" else 0)
        squares = segments.total(advantage * advantage, labels, count)
        scale = np.maximum(np.sqrt(squares / np.maximum(freedom, 1)), norm.floor) + norm.epsilon
        # A group of no spread, without an epsilon, gets no credit below.
        advantage /= np.where(scale > 0, scale, 1.0)[labels]
    elif norm.by == "leave_one_out":
        advantage *= (size / np.maximum(size - 1, 1))[labels]

    is_constant = segments.constant(values, labels, count)
    reason_of = np.where(is_constant, Reason.ZERO_VARIANCE, Reason.CREDITED).astype(np.int8)
    reason_of[size <= 1] = alone
    reason_of[-1] = alone
    reason = reason_of[labels]
    advantage[reason != Reason.CREDITED] = 0.0
    mean[-1], size[-1] = 0.0, 0
    return Comparison(advantage, reason, values, labels, mean, size, norm.by == "leave_one_out")


TermScale = Literal["paper", "equal"]
"""``paper``: as the equations are written. ``equal``: rescaled to the size of the episode term.

A standardised term has values near 1; a difference of returns has the size of the reward. Their
ratio acts as a hidden weight, and the learning rate that suits one recipe is not that of another.
``equal`` takes this out of a comparison.
"""

NEGLIGIBLE = 1e-9
"""A root mean square up to this is rounding error, which must not be amplified."""


def equalised(
    terms: dict[str, Term], names: Sequence[str], episode: Term, rows: Ints
) -> tuple[dict[str, Term], float]:
    """The terms, those of ``names`` times ``c = rms(episode) / rms(sum of those terms)``.

    A root mean square is over the rows of the batch that are credited: by the episode term for the
    one, by any of the named terms for the other. Weights are left out, so they act on top. Where
    either is zero (up to 1e-9), c is 1: there is nothing to rescale, or no size to rescale it to.
    ``rows`` are those that count, in canonical order: padding stays out, and row order cannot
    matter.
    """
    rescaled = [terms[name] for name in names]
    credited = np.any([term.credited for term in rescaled], axis=0)
    total: Floats = np.sum([term.values for term in rescaled], axis=0)
    size = _rms(total[rows][credited[rows]])
    target = _rms(episode.values[rows][episode.credited[rows]])
    factor = target / size if min(size, target) > NEGLIGIBLE else 1.0
    changed = {name: replace(terms[name], values=factor * terms[name].values) for name in names}
    return terms | changed, factor


def _rms(values: Floats) -> float:
    """Root mean square; 0 of no values."""
    return float(np.sqrt(np.mean(values * values))) if values.size else 0.0
