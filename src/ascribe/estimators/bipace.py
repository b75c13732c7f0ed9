"""BiPACE: state clusters from fingerprints (BiGPO), and credit from their actions (PACE).

Page: docs/estimators/bipace.md. Test: tests/estimators/test_bipace.py.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ascribe.estimators.clusters import Clustering
from ascribe.estimators.credit import Explanation, Metric, Reason, Sentence
from ascribe.estimators.gigpo import StepTerms, TwoLevel
from ascribe.estimators.relative import Comparison, Norm, relative
from ascribe.groups import Groups
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

Form = Literal["q", "diff"]
"""``q``: mean of the same-action peers minus mean of the cluster (Eq. 5-7). ``diff``: the row's own
return minus the mean of the peers that took another action (Eq. 4)."""

StepNormalise = Literal["raw", "std"]
"""``raw``: in units of the return, as the equations are written. ``std``: divided by the standard
deviation of the cluster, so that the step term has the scale of a standardised episode term."""


class Branch(IntEnum):
    """How a row got its step credit (the row mix of BiPACE, Appendix L)."""

    NONE = -1
    """The row takes no part."""
    PACE = 0
    """Compared by action: with peers that took the same one, or another."""
    LEAVE_ONE_OUT = 1
    """Compared with the mean of the others, because it has no such peers."""
    SINGLETON = 2
    """Alone in its cluster: no step credit."""


OTHERS = Sentence(
    "this step returned {own}; the {peers} others in this state returned {baseline} on average"
)
SAME = Sentence(
    "{peers} steps in this state; the {alike} that did the same returned {own}; "
    "all {peers} returned {baseline}"
)
DIFFERENT = Sentence(
    "this step returned {own}; the {peers} peers in this state that did something else "
    "returned {baseline}"
)


class PeerCredit(NamedTuple):
    """Advantage of each row, its ``Reason``, its ``Branch``, and what explains it."""

    values: Floats
    reason: Codes8
    branch: Codes8
    explain: "partial[Explanation]"


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

    With R the discounted return from a row on, C the cluster of row i, C⁼ its members with the same
    action key (i included) and C≠ the others:

    - ``q``: ``A = mean_{C⁼} R - mean_C R``, for |C⁼| ≥ 2 (BiPACE, Eq. 5-7);
    - ``diff``: ``A = R_i - mean_{C≠} R``, for |C≠| ≥ 1 (BiPACE, Eq. 4);
    - otherwise leave-one-out: ``A = R_i - mean_{C∖i} R``; and no credit if the row is alone.

    A row with the key -1 has no same-action peers. A cluster with equal returns gives no credit
    (``ZERO_VARIANCE``). With ``q``, neither does a cluster in which every member took the same
    action (``SAME_ACTION``). With ``norm``, credit is divided by the cluster's standard deviation.
    """
    leave_one_out, reason = compared = relative(returns, clusters, count, Norm("leave_one_out"))
    in_cluster, state_value = compared.size[compared.labels], compared.mean[compared.labels]
    pair, pairs = segments.pairs(clusters, keys, key_count)
    alike = np.where(pair >= 0, np.append(segments.size(pair, pairs), 0)[pair], 1)
    if form == "q":
        by_peers, peers, baseline, sentence = alike >= 2, in_cluster, state_value, SAME
        own = np.where(by_peers, segments.pick(segments.mean(returns, pair, pairs), pair), returns)
    else:
        own, peers, sentence = returns, in_cluster - alike, DIFFERENT
        by_peers = peers >= 1
        total = segments.pick(segments.total(returns, pair, pairs), pair)
        rest = in_cluster * state_value - np.where(pair >= 0, total, returns)
        baseline = rest / np.maximum(peers, 1)

    values = np.where(by_peers, own - baseline, leave_one_out)
    if norm is not None:
        ddof = 1 if norm.std == "sample" else 0
        spread = np.sqrt(segments.variance(returns, clusters, count, ddof=ddof))
        scale = segments.pick(np.maximum(spread, norm.floor) + norm.epsilon, clusters)
        values = np.divide(values, scale, out=np.zeros(values.size), where=scale > 0)

    branch = np.where(by_peers, Branch.PACE, Branch.LEAVE_ONE_OUT).astype(np.int8)
    branch[in_cluster == 1] = Branch.SINGLETON
    branch[clusters < 0] = Branch.NONE
    if form == "q":  # actions cannot be compared where all are the same
        same = by_peers & (alike == in_cluster) & (reason == Reason.CREDITED)
        reason[same] = Reason.SAME_ACTION
    explain = partial(_explained, compared, by_peers, (own, baseline, peers, alike), sentence)
    return PeerCredit(np.where(reason == Reason.CREDITED, values, 0.0), reason, branch, explain)


def _explained(
    compared: Comparison, by_peers: Bools, peers: tuple[Any, ...], sentence: Sentence
) -> Explanation:
    """The comparison by action where there are such peers, else with all others."""
    others, (own, baseline, count, alike) = compared.explained(OTHERS), peers
    return Explanation(
        own=own,
        baseline=np.where(by_peers, baseline, others.baseline),
        peers=np.where(by_peers, count, others.peers),
        sentences=(OTHERS, sentence),
        way=by_peers.astype(np.int8),
        alike=alike,
    )


def row_mix(
    branch: Codes8, clusters: Ints, count: int, keys: Ints, key_count: int
) -> dict[str, float]:
    """How rows got their step credit (BiPACE, Appendix L), by the branches of ``pace``.

    The share of rows of each branch; the share of clusters of two or more that hold two or more
    action keys, and the mean number of keys in these.
    """
    taken = branch[branch >= 0]
    pair, pairs = segments.pairs(clusters, keys, key_count)
    first_row = segments.first_rows(pair, pairs)
    keys_in = segments.size(clusters[first_row], count)
    # A row without a key counts as an action of its own.
    keys_in = keys_in + segments.size(np.where(keys < 0, clusters, -1), count)
    several = segments.size(clusters, count) > 1
    return {
        "pace": Metric(taken == Branch.PACE),
        "leave_one_out": Metric(taken == Branch.LEAVE_ONE_OUT),
        "singleton": Metric(taken == Branch.SINGLETON),
        "contrasting_clusters": Metric(keys_in[several] > 1),
        "keys_per_cluster": Metric(keys_in[several]),
    }


@dataclass(frozen=True, kw_only=True)
class BiGPO(Clustering, TwoLevel):
    """Bisimulation-guided grouping: GiGPO inside clusters of state fingerprints.

    ``A = A^E + ω A^S`` as GiGPO, with states grouped by greedy cosine clustering of their
    fingerprints (BiPACE, Eq. 3 and Algorithm 1) instead of by their exact text.
    """

    name: ClassVar[str] = "bigpo"
    paper: ClassVar[str] = "BiPACE, arXiv 2606.25556"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen2.5-7b": {"radius": 0.10},
        "qwen2.5-1.5b": {"radius": 0.05},
        "ngram": {"fingerprint": "ngram", "radius": 0.25},
    }


@dataclass(frozen=True, kw_only=True)
class _BiPACE(BiGPO):
    """PACE on top of BiGPO's clusters.

    Attributes:
        action_key: when two actions are the same: by the body of the ``<action>`` ``tag``, the
            ``first_tokens`` (8) of the response, the ``tool_call`` (name and arguments) or the
            ``whole`` text.
        step_normalise: the step term ``raw``, as the equations are written, or divided by the
            cluster's ``std``.
        revisits: ``each`` visit is a peer, as the equations are written; there is no other form.
    """

    form: ClassVar[Form]

    action_key: Literal["tag", "first_tokens", "tool_call", "whole"] = "tag"
    step_normalise: StepNormalise = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.revisits != "each":
            raise InputError(
                f"{self.name}: revisits is {self.revisits!r}, but every visit to a state is a "
                "peer here",
                hint="leave it at 'each'",
            )

    def step_terms(self, table: StepTable, groups: Groups) -> StepTerms:
        """The step term from comparisons by action, and how rows got it."""
        returns, keys = self.step_returns(table), self.action_keys(table)
        labels = np.where(self.excluded(arrange(table)), -1, groups.labels)
        norm = self.norm("std") if self.step_normalise == "std" else None
        members = (labels, groups.count, keys.labels, keys.count)
        values, reason, branch, explain = pace(returns, *members, form=self.form, norm=norm)
        self.leave_out_alone(arrange(table), labels, groups.count, reason)
        term = self.term(table, values, reason, groups.labels, weight=self.weight, explain=explain)
        mix = row_mix(branch, *members)
        return {"step": term}, {"key_share": Metric(keys.labels >= 0, empty=1.0)} | mix


@dataclass(frozen=True, kw_only=True)
class BiPACEDiff(_BiPACE):
    """BiPACE with the diff-peer baseline: an action against peers that did something else.

    ``A^S = R_i - mean over C≠ of R`` (Eq. 4): C≠ are the members of the row's state cluster with
    another action key. Falls back to leave-one-out where all did the same. The safer form where
    actions hardly ever repeat.
    """

    name: ClassVar[str] = "bipace_diff"
    form: ClassVar[Form] = "diff"


@dataclass(frozen=True, kw_only=True)
class BiPACEQ(_BiPACE):
    """BiPACE with the Q-style baseline: what the action was worth minus what the state was worth.

    ``A^S = Q̂ - V̂ = mean over C⁼ of R - mean over C of R`` (Eq. 5-7): C is the row's state cluster,
    C⁼ its members with the same action key. Falls back to leave-one-out where an action is alone.
    """

    name: ClassVar[str] = "bipace_q"
    form: ClassVar[Form] = "q"
