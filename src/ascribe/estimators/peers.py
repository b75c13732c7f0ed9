"""Same-action peers: what an action was worth against the state it was taken in (PACE)."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np

from ascribe.estimators.credit import Explanation, Reason, Sentence
from ascribe.estimators.relative import Norm, explained, relative
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints

Form = Literal["q", "diff"]
"""``q``: mean of the same-action peers minus mean of the cluster (Eq. 5-7). ``diff``: the row's own
return minus the mean of the peers that did something else (Eq. 4)."""

StepNormalise = Literal["raw", "std"]
"""``raw``: in units of the return, as the equations are written. ``std``: divided by the standard
deviation of the cluster, so that the step term has the scale of a standardised episode term."""


class Branch(IntEnum):
    """Which way a row got its step credit (the row mix of BiPACE, Appendix L)."""

    NONE = -1
    """The row takes no part."""
    PACE = 0
    """By its action's peers."""
    LEAVE_ONE_OUT = 1
    """Against the mean of the others, for want of peers."""
    SINGLETON = 2
    """Alone in its cluster: no step credit."""


@dataclass(frozen=True, eq=False)
class PeerCredit:
    """Step credit of each row, why where there is none, and which way it came about."""

    values: Floats
    reason: Codes8
    branch: Codes8


def pace(
    returns: Floats,
    clusters: Ints,
    count: int,
    keys: Ints,
    key_count: int,
    *,
    form: Form,
    norm: Norm | None = None,
) -> PeerCredit:
    r"""Advantage of each row from the peers in its state cluster.

    With C the cluster of row i, C⁼ its members with the same action key (i included) and C≠ the
    others:

    - ``q``: ``A = mean_{C⁼} R - mean_C R``, for |C⁼| ≥ 2 (BiPACE, Eq. 5-7);
    - ``diff``: ``A = R_i - mean_{C≠} R``, for |C≠| ≥ 1 (BiPACE, Eq. 4);
    - otherwise leave-one-out: ``A = R_i - mean_{C∖i} R``; and no credit if the row is alone.

    Args:
        returns: discounted return of each row.
        clusters: state cluster of each row; -1 takes no part.
        count: number of clusters.
        keys: action key of each row; -1 has no same-action peers.
        key_count: number of action keys.
        form: which of the two estimators.
        norm: divide by the cluster's standard deviation as this says; by default do not.

    Returns:
        The credit. A cluster in which every return is the same gives none (``ZERO_VARIANCE``),
        nor, for ``q``, one in which every member did the same (``SAME_ACTION``).
    """
    size = segments.size(clusters, count)
    together, reason = relative(returns, clusters, count, Norm("leave_one_out"))
    kind, kinds = segments.pairs(clusters, keys, key_count)
    same_size = segments.size(kind, kinds)
    in_cluster = segments.pick(size.astype(np.float64), clusters)
    alike = np.where(kind >= 0, segments.pick(same_size.astype(np.float64), kind), 1.0)
    state_value = segments.pick(segments.mean(returns, clusters, count), clusters)

    if form == "q":
        by_peers = alike >= 2
        values = segments.pick(segments.mean(returns, kind, kinds), kind) - state_value
        silent = by_peers & (alike == in_cluster)
    else:
        others = in_cluster - alike
        by_peers = others >= 1
        same_total = np.where(
            kind >= 0, segments.pick(segments.total(returns, kind, kinds), kind), returns
        )
        values = returns - (in_cluster * state_value - same_total) / np.maximum(others, 1.0)
        silent = np.zeros(returns.size, dtype=np.bool_)

    values = np.where(by_peers, values, together)
    if norm is not None:
        ddof = 1 if norm.std == "sample" else 0
        spread = np.sqrt(segments.variance(returns, clusters, count, ddof=ddof))
        scale = segments.pick(np.maximum(spread, norm.floor) + norm.epsilon, clusters)
        values = np.divide(values, scale, out=np.zeros(values.size), where=scale > 0)

    alone = in_cluster == 1
    branch = np.where(by_peers, Branch.PACE, Branch.LEAVE_ONE_OUT).astype(np.int8)
    branch[alone] = Branch.SINGLETON
    branch[clusters < 0] = Branch.NONE
    reason[(reason == Reason.CREDITED) & silent] = Reason.SAME_ACTION
    return PeerCredit(np.where(reason == Reason.CREDITED, values, 0.0), reason, branch)


OTHERS = Sentence("this step returned {own}; the {peers} other peers in this state {baseline}")
SAME = Sentence(
    "{peers} peers in this state; the {alike} that did the same returned {own}; "
    "all {peers} returned {baseline}"
)
DIFFERENT = Sentence(
    "this step returned {own}; the {peers} peers in this state that did something else "
    "returned {baseline}"
)


def pace_explained(
    returns: Floats, clusters: Ints, count: int, keys: Ints, key_count: int, *, form: Form
) -> Explanation:
    """The explanation of ``pace``, whose arguments these are."""
    whole = explained(returns, clusters, count, SAME)
    others = explained(returns, clusters, count, OTHERS, leave_one_out=True)
    kind, kinds = segments.pairs(clusters, keys, key_count)
    alike = np.where(kind >= 0, np.append(segments.size(kind, kinds), 0)[kind], 1)
    if form == "q":
        by_peers = alike >= 2
        own = np.where(by_peers, segments.pick(segments.mean(returns, kind, kinds), kind), returns)
        baseline, peers, sentence = whole.baseline, whole.peers, SAME
    else:
        own, peers, sentence = returns, whole.peers - alike, DIFFERENT
        by_peers = peers >= 1
        total = segments.pick(segments.total(returns, kind, kinds), kind)
        same = np.where(kind >= 0, total, returns)
        baseline = (whole.peers * whole.baseline - same) / np.maximum(peers, 1)
    return Explanation(
        own=own,
        baseline=np.where(by_peers, baseline, others.baseline),
        peers=np.where(by_peers, peers, others.peers),
        sentences=(OTHERS, sentence),
        way=by_peers.astype(np.int8),
        alike=alike,
    )


@dataclass(frozen=True)
class RowMix:
    """How rows got their step credit (BiPACE, Appendix L).

    Attributes:
        pace: share of rows credited by their action's peers.
        leave_one_out: share of rows that fell back to the mean of the others.
        singleton: share of rows that are alone in their cluster.
        contrasting_clusters: share of clusters of two or more that hold two or more action keys.
        keys_per_cluster: mean number of action keys in clusters of two or more.
    """

    pace: float
    leave_one_out: float
    singleton: float
    contrasting_clusters: float
    keys_per_cluster: float


def row_mix(branch: Codes8, clusters: Ints, count: int, keys: Ints, key_count: int) -> RowMix:
    """The row mix of a peer credit; arguments as for ``pace``."""
    counted = np.bincount(branch[branch >= 0], minlength=3)
    rows = max(int(counted.sum()), 1)
    kind, kinds = segments.pairs(clusters, keys, key_count)
    first = segments.first_rows(kind, kinds)
    keys_in = segments.size(clusters[first], count)
    # A row without a key did something that no other row is known to have done.
    keys_in = keys_in + segments.size(np.where(keys < 0, clusters, -1), count)
    several = segments.size(clusters, count) > 1
    return RowMix(
        pace=float(counted[Branch.PACE]) / rows,
        leave_one_out=float(counted[Branch.LEAVE_ONE_OUT]) / rows,
        singleton=float(counted[Branch.SINGLETON]) / rows,
        contrasting_clusters=float((keys_in[several] > 1).mean()) if several.any() else 0.0,
        keys_per_cluster=float(keys_in[several].mean()) if several.any() else 0.0,
    )
