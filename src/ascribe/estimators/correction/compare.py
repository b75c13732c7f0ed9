r"""Comparison operators ``M : {τ^(k)} -> s ∈ [0, 1]`` (IBPO, Eq. 5): how close a wrong one came.

Every operator is called with tuples and answers with a ``Signal``. Which trajectories are wrong is
said by the rule-based reward alone, before any operator is asked.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from ascribe.estimators.correction.tuples import Tuples
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints


class Compared(IntEnum):
    """What became of the comparison of a trajectory."""

    OUT = -1
    """The trajectory takes no part."""
    RIGHT = 0
    """It is right: nothing to compare, and no bonus (Eq. 6)."""
    COMPARED = 1
    """It has a signal, which may be zero."""
    NO_REFERENCE = 2
    """Its task has no other trajectory to compare it with: no signal."""
    UNJUDGED = 3
    """The comparison gave no answer (no correction judged, no score, no state): no signal."""


@dataclass(frozen=True, eq=False)
class Signal:
    """The signal s of each tuple from 0 to 1, and why there is none where it is not ``COMPARED``.

    ``values`` is 0 wherever there is none.
    """

    values: Floats
    why: Codes8


class Operator(Protocol):
    """Anything that compares the trajectories of each tuple."""

    def __call__(self, tuples: Tuples) -> Signal:
        """The signal of each tuple."""
        ...


@dataclass(frozen=True, eq=False)
class Correction:
    r"""Comparison by correction: can the model put it right (IBPO, Appendix C)?

    ``s = mean over corrections ŷ of 1[r(x, ŷ) = 1]``. With one correction it is the paper's
    indicator; with several, an estimate of the same chance with less noise.

    Attributes:
        outcomes: for each tuple its corrections, [tuples, corrections]: 1 right, 0 wrong, NaN not
            judged.
    """

    outcomes: Floats

    def __post_init__(self) -> None:
        if self.outcomes.ndim != 2:
            raise ValueError(
                "outcomes must have a row for each tuple, a column for each correction"
            )
        if not (np.isnan(self.outcomes) | np.isin(self.outcomes, (0.0, 1.0))).all():
            raise ValueError("an outcome must be 0, 1 or NaN")

    def __call__(self, tuples: Tuples) -> Signal:
        """The share of each tuple's judged corrections that are right."""
        _must_fit("outcomes", self.outcomes.shape[0], len(tuples))
        judged = ~np.isnan(self.outcomes)
        number = judged.sum(axis=1)
        values = np.where(judged, self.outcomes, 0.0).sum(axis=1) / np.maximum(number, 1)
        return _signal(tuples, values, number > 0)


@dataclass(frozen=True, eq=False)
class Consistency:
    r"""Consistency: how much of its way did it share with the references?

    ``s = mean over references j of |S_i ∩ S_j| / |S_i|``, S the distinct states of a trajectory.
    It needs no decoding.

    Attributes:
        states: state of each row (``groups.exact``, ``groups.cluster``); -1 is not known.
        state_count: number of states.
        trajectory: trajectory of each row.
    """

    states: Ints
    state_count: int
    trajectory: Ints

    def __call__(self, tuples: Tuples) -> Signal:
        """The share of each target's states that its references were in."""
        known = self.states >= 0
        visits = np.unique(self.trajectory[known] * self.state_count + self.states[known])
        owner, state = visits // self.state_count, visits % self.state_count
        most = max(int(tuples.target.max(initial=0)), int(tuples.references.max(initial=0)))
        size = np.bincount(owner, minlength=most + 1)
        first = np.cumsum(size) - size

        # One line for each tuple and each distinct state of its target.
        lengths = size[tuples.target]
        line = np.repeat(np.arange(len(tuples)), lengths)
        at = np.arange(line.size) - (np.cumsum(lengths) - lengths)[line]
        wanted = state[first[tuples.target][line] + at]
        total, seen = np.zeros(len(tuples)), np.zeros(len(tuples))
        for reference in tuples.references.T:
            told = (reference >= 0) & (size[reference] > 0)
            shared = _contains(visits, reference[line] * self.state_count + wanted)
            shares = segments.mean(shared.astype(np.float64), line, len(tuples))
            total += np.where(told, shares, 0.0)
            seen += told
        return _signal(tuples, total / np.maximum(seen, 1), (lengths > 0) & (seen > 0))


@dataclass(frozen=True, eq=False)
class Ranking:
    r"""Relative ranking: how many references does it come before, by somebody's score?

    ``s = mean over references j of 1[v_j < v_i] + 1[v_j = v_i] / 2``. The score may be a
    validator's, or the share of tests passed. It needs no decoding by the policy.

    Attributes:
        scores: v, one per trajectory; NaN is not known.
    """

    scores: Floats

    def __call__(self, tuples: Tuples) -> Signal:
        """The share of each tuple's references that its target outranks, ties counting half."""
        own = self.scores[tuples.target][:, None]
        other = np.where(tuples.references >= 0, self.scores[tuples.references], np.nan)
        known = ~np.isnan(other) & ~np.isnan(own)
        wins = np.where(known, (other < own) + 0.5 * (other == own), 0.0)
        number = known.sum(axis=1)
        return _signal(tuples, wins.sum(axis=1) / np.maximum(number, 1), number > 0)


def _signal(tuples: Tuples, values: Floats, answered: Bools) -> Signal:
    why = np.where(answered, Compared.COMPARED, Compared.UNJUDGED).astype(np.int8)
    why[~tuples.complete] = Compared.NO_REFERENCE
    return Signal(np.where(why == Compared.COMPARED, values, 0.0), why)


def _contains(ordered: Ints, wanted: Ints) -> Bools:
    """Whether each wanted key is among the ordered ones."""
    if ordered.size == 0:
        return np.zeros(wanted.size, dtype=np.bool_)
    at = np.minimum(np.searchsorted(ordered, wanted), ordered.size - 1)
    return np.asarray(ordered[at] == wanted)


def _must_fit(what: str, rows: int, tuples: int) -> None:
    if rows != tuples:
        raise ValueError(f"{what} has {rows} rows for {tuples} tuples")
