"""Step-level credit: an action's return against those of other actions in the same state."""

from typing import Literal

import numpy as np

from ascribe.estimators.credit import Explanation, Reason, Sentence
from ascribe.estimators.relative import Norm, explained, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints

Revisits = Literal["each", "first", "average"]
"""How a trajectory counts that comes back to a state.

``each`` visit is a member of the state's group (GiGPO, Eq. 6). With ``first``, later visits take no
part. With ``average``, a trajectory is one member with the mean return of its visits, and they
share its advantage. The last two keep a trajectory from being compared with itself, where only
the time to go differs.
"""


def step_relative(
    returns: Floats,
    labels: Ints,
    count: int,
    norm: Norm,
    *,
    trajectory: Ints,
    trajectory_count: int,
    revisits: Revisits = "each",
) -> tuple[Floats, Codes8]:
    r"""Step relative advantage (GiGPO, Eq. 7), inside groups of equal states.

    ``A^S = (R_t - mean over the group) / F_norm``, F_norm as in ``relative``.

    Args:
        returns: discounted return of each row.
        labels: state group of each row; -1 takes no part.
        count: number of state groups.
        norm: what a return is compared with.
        trajectory: label of each row's trajectory, rows in canonical order.
        trajectory_count: number of trajectories.
        revisits: how a trajectory counts that comes back to a state.

    Returns:
        The advantages and, for each, its ``Reason``.
    """
    if revisits == "each":
        return relative(returns, labels, count, norm)
    visit, visits = segments.pairs(labels, trajectory, trajectory_count)
    first = segments.first_rows(visit, visits)
    if revisits == "first":
        later = labels >= 0
        later[first] = False
        advantage, reason = relative(returns, np.where(later, -1, labels), count, norm)
        reason[later] = Reason.REVISIT
        return advantage, reason
    averaged = segments.mean(returns, visit, visits)
    shared, why = relative(averaged, labels[first], count, norm)
    reason = np.append(why, np.int8(Reason.SINGLETON))[visit]
    return segments.pick(shared, visit), reason


STEP = Sentence(
    "{peers} peers in this state returned {baseline} in the mean; this step returned {own}"
)
VISITS = Sentence(
    "{peers} trajectories came to this state and returned {baseline} in the mean; "
    "this one returned {own}"
)


def step_explained(
    returns: Floats,
    labels: Ints,
    count: int,
    *,
    trajectory: Ints,
    trajectory_count: int,
    revisits: Revisits = "each",
) -> Explanation:
    """The explanation of ``step_relative``, whose arguments these are."""
    if revisits == "each":
        return explained(returns, labels, count, STEP)
    visit, visits = segments.pairs(labels, trajectory, trajectory_count)
    first = segments.first_rows(visit, visits)
    values = returns[first] if revisits == "first" else segments.mean(returns, visit, visits)
    # Rows without a state are members of nothing: one more, that takes no part.
    return explained(
        np.append(values, 0.0), np.append(labels[first], -1), count, VISITS, members=visit
    )
