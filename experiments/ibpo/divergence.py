"""Where a wrong trajectory leaves the right ones: a step-level credit that needs no more decoding.

The right trajectories of a task mark the states that lead somewhere. A wrong one that started among
them was led out by one decision: the one in the last such state before the first that no right
trajectory was in.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints

Which = Literal["first", "final"]
"""``first``: the first time that it leaves. ``final``: the time after which it does not come back.
"""


class Departure(IntEnum):
    """Whether a trajectory left the states of the right ones, or why that cannot be said."""

    OUT = -1
    """It takes no part."""
    RIGHT = 0
    """It is right: others are measured by it."""
    LEFT = 1
    """It left, by a decision that is known."""
    STAYED = 2
    """It is wrong, but stayed, or came back, to where right ones were: states do not tell why."""
    AT_START = 3
    """Where it began, no right one ever was: none of its decisions led it there."""
    NO_RIGHT = 4
    """No trajectory of its task is right."""
    UNSEEN = 5
    """It left, if at all, from a state that was not written, so the decision is not known."""


@dataclass(frozen=True, eq=False)
class Divergence:
    """For each trajectory: the row of the decision by which it left (-1: none), and its kind."""

    row: Ints
    kind: Codes8

    def blame(self, rows: int) -> Floats:
        """-1 for each row by which a trajectory left, 0 for the others."""
        out = np.zeros(rows)
        out[self.row[self.row >= 0]] = -1.0
        return out


def divergence(
    labels: Ints,
    count: int,
    trajectory: Ints,
    right: Bools,
    group: Ints,
    *,
    which: Which,
) -> Divergence:
    r"""The decision by which each wrong trajectory left the states of the right ones of its task.

    With ``H(x) = {c(s) : s a state of a right trajectory of task x}`` the clusters of right ones,
    a wrong trajectory leaves by its decision t where ``c(s_t) ∈ H`` and ``c(s_{t+1}) ∉ H``: the
    smallest such t (``first``), or the largest if it ends outside (``final``).

    Args:
        labels: state cluster of each row (``groups.exact``, ``groups.cluster``), rows in canonical
            order; -1 for a state that is not known.
        count: number of clusters.
        trajectory: label of each row's trajectory.
        right: whether each trajectory is right.
        group: task of each trajectory; -1 takes no part.
        which: which time it left, if it left several times.
    """
    trajectories = right.size
    clusters, found = segments.pairs(group[trajectory], labels, count)
    home = np.zeros(found + 1, dtype=np.bool_)
    home[clusters[right[trajectory]]] = True
    home[-1] = False  # where states that are not known meet
    inside = home[clusters]
    foreign = (clusters >= 0) & ~inside

    if which == "final":
        last_inside = _last_rows(np.where(inside, trajectory, -1), trajectories)
        foreign &= np.arange(labels.size) > last_inside[trajectory]
    entry = segments.first_rows(np.where(foreign, trajectory, -1), trajectories)
    enters = entry < labels.size
    entry = np.where(enters, entry, 0)
    before = entry - 1
    starts = segments.first_rows(trajectory, trajectories)

    kind = np.full(trajectories, Departure.STAYED, dtype=np.int8)
    was_inside = np.zeros(trajectories, dtype=np.bool_)
    was_inside[trajectory[inside]] = True
    kind[~was_inside] = Departure.UNSEEN
    kind[enters] = Departure.UNSEEN
    kind[enters & (entry == starts)] = Departure.AT_START
    kind[enters & (entry > starts) & inside[before]] = Departure.LEFT
    kind[~_any_right(right, group)] = Departure.NO_RIGHT
    kind[right] = Departure.RIGHT
    kind[group < 0] = Departure.OUT
    return Divergence(np.where(kind == Departure.LEFT, before, -1), kind)


def divergence_credit(
    found: Divergence, labels: Ints, count: int, norm: Norm
) -> tuple[Floats, Codes8]:
    r"""Credit of each decision: did it lead out, and did others in the same state stay?

    ``A_t = b_t - mean of b over the rows of the state cluster``, with b = -1 for a decision by
    which a wrong trajectory left and 0 for every other. So where nobody left, and where there are
    no peers, there is no credit; where some left and some stayed, those who left are blamed, and
    the others share what they avoided.

    Args:
        found: what ``divergence`` found.
        labels: state cluster of each row, inside tasks; -1 takes no part.
        count: number of clusters.
        norm: what a decision is compared with.

    Returns:
        The credit and, for each row, its ``Reason``.
    """
    values, reason = relative(found.blame(labels.size), labels, count, norm)
    reason[labels < 0] = Reason.MISSING_STATE
    return values, reason


def _any_right(right: Bools, group: Ints) -> Bools:
    """Whether each trajectory's task has a right one."""
    tasks = int(group.max(initial=-1)) + 1
    found = segments.size(np.where(right, group, -1), tasks) > 0
    return np.append(found, False)[group]


def _last_rows(labels: Ints, count: int) -> Ints:
    """The last row of each segment, or -1 for a segment without any."""
    out = np.full(count + 1, -1, dtype=np.int64)
    # Where an index repeats, numpy keeps the last value assigned.
    out[labels] = np.arange(labels.size)
    return out[:count]
