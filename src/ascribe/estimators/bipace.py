"""BiPACE: state clusters from fingerprints (BiGPO), and credit from same-action peers (PACE)."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.credit import Explanation
from ascribe.estimators.peers import Form, StepNormalise, pace, pace_explained, row_mix
from ascribe.estimators.two_level import TwoLevel
from ascribe.fingerprints import FloatMatrix, normalised, present
from ascribe.fingerprints.identity import identity
from ascribe.fingerprints.ngram import ngram
from ascribe.groups import Groups
from ascribe.groups.cluster import cluster, collapsed
from ascribe.groups.exact import exact
from ascribe.groups.radius import Target, search
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

SEARCH_GROUPS = 16
"""How many task groups, evenly spaced, a search for the radius looks at."""


@dataclass(frozen=True, kw_only=True)
class BiGPO(TwoLevel):
    """Bisimulation-guided grouping: GiGPO inside clusters of state fingerprints.

    ``A = A^E + ω A^S`` as GiGPO, with states grouped by greedy cosine clustering of their
    fingerprints (BiPACE, Eq. 3 and Algorithm 1) instead of by their exact text.

    Attributes:
        fingerprint: ``given`` by the caller or in the table (hidden states of the policy, as in
            the paper); or computed from the state: ``ngram``, ``identity``.
        radius: largest cosine distance of a state to its cluster's centroid (paper: 0.10 for
            Qwen2.5-7B, 0.05 for Qwen2.5-1.5B, 0.25 for n-grams). Calibrate it once per model.
        radius_rule: ``fixed``, or ``search`` for the radius of median cluster size 4 to 8 in this
            table (Appendix F). To let it follow training, keep an ``OnlineRadius`` and pass its
            radius as the input ``radius``.
        on_collapse: what to do with a task whose states fall into one cluster (failure mode F1):
            group it by ``exact`` text, or ``keep`` the one cluster.
    """

    name: ClassVar[str] = "bigpo"
    paper: ClassVar[str] = "BiPACE, arXiv 2606.25556"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen2.5-7b": {"radius": 0.10},
        "qwen2.5-1.5b": {"radius": 0.05},
        "ngram": {"fingerprint": "ngram", "radius": 0.25},
    }
    inputs: ClassVar[tuple[str, ...]] = ("fingerprints", "radius")

    fingerprint: Literal["given", "ngram", "identity"] = "given"
    radius: float = 0.10
    radius_rule: Literal["fixed", "search"] = "fixed"
    on_collapse: Literal["exact", "keep"] = "exact"

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order, and metrics about how they were made."""
        steps = arrange(table)
        vectors = self._fingerprints(table, inputs.get("fingerprints"))
        taking_part = present(vectors) & ~self._out(steps)
        radius = float(inputs.get("radius", self.radius))
        if self.radius_rule == "search" and "radius" not in inputs:
            radius = self._searched(vectors, steps.group, taking_part)
        groups = cluster(vectors, steps.group, radius, taking_part)
        fell = collapsed(groups.labels, groups.count, steps.group)
        texts = exact(steps.group, steps.state, table.state.values.size)
        owner = steps.group[segments.first_rows(texts.labels, texts.count)]
        fell &= segments.size(owner, steps.group_count) > 1
        numbers = {"radius": radius, "collapsed_groups": float(fell.sum())}
        if self.on_collapse == "exact" and fell.any():
            apart = np.where(texts.labels < 0, -1, texts.labels + groups.count)
            labels = np.where(fell[steps.group], apart, groups.labels)
            labels, count = segments.by_appearance(labels, groups.count + texts.count)
            groups = Groups(labels, count, groups.made_by)
        return groups, numbers

    def _fingerprints(self, table: StepTable, given: FloatMatrix | None) -> FloatMatrix:
        """Unit fingerprints of the rows in canonical order; zeros where a row has none."""
        steps = arrange(table)
        if self.fingerprint == "identity":
            return identity(steps.group, steps.state, table.state.values.size)
        if self.fingerprint == "ngram":
            by_state = ngram(table.state.values)
            nothing = np.zeros((1, by_state.shape[1]), by_state.dtype)
            return np.vstack([by_state, nothing])[steps.state]
        vectors = table.fingerprint if given is None else given
        if vectors is None:
            raise ValueError(
                f"{self.name} needs a fingerprint of each row's state: pass fingerprints=ARRAY, "
                "write a fingerprint column, or choose fingerprint='ngram'"
            )
        if vectors.shape[0] != len(table):
            raise ValueError(f"{len(table):,} rows, but {vectors.shape[0]:,} fingerprints")
        return normalised(vectors[steps.rows])

    def _searched(self, vectors: FloatMatrix, task: Ints, part: Bools) -> float:
        tasks = np.unique(task[part])
        chosen = tasks[np.linspace(0, tasks.size - 1, min(SEARCH_GROUPS, tasks.size)).astype(int)]
        picked = (vectors[(task == number) & part] for number in chosen)
        return search([unit @ unit.T for unit in picked], Target()).radius


@dataclass(frozen=True, kw_only=True)
class _BiPACE(BiGPO):
    """PACE on top of BiGPO's clusters.

    Attributes:
        action_key: when two actions are the same: by the body of the ``<action>`` ``tag``, the
            ``first_tokens`` (8), the ``tool_call`` (name and arguments) or the ``whole`` text.
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
            raise ValueError(
                f"{self.name}: revisits is {self.revisits!r}, but every visit to a state is a peer "
                "here; leave it at 'each'"
            )

    def _step_values(
        self, table: StepTable, returns: Floats, groups: Groups, numbers: dict[str, float]
    ) -> tuple[Floats, Codes8]:
        keys = self.action_keys(table)
        norm = self._norm("std") if self.step_normalise == "std" else None
        given = (groups.labels, groups.count, keys.labels, keys.count)
        found = pace(returns, *given, form=self.form, norm=norm)
        numbers |= {"parse_rate": keys.parse_rate}
        numbers |= asdict(row_mix(found.branch, *given))
        return found.values, found.reason

    def _explain_step(self, table: StepTable, returns: Floats, groups: Groups) -> Explanation:
        keys = self.action_keys(table)
        given = (groups.labels, groups.count, keys.labels, keys.count)
        return pace_explained(returns, *given, form=self.form)


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
