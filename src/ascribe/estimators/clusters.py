"""State groups from fingerprints: what ``bigpo``, ``bipace_*`` and ``sbc`` share.

States whose fingerprints lie close together count as one: greedy cosine clustering inside each task
(BiPACE, Eq. 3 and Algorithm 1, arXiv 2606.25556).
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Metric
from ascribe.groups import Groups
from ascribe.groups.cluster import cluster, collapsed
from ascribe.groups.exact import exact
from ascribe.groups.fingerprints import FloatMatrix, normalised, present, refuse_masked
from ascribe.groups.identity import identity
from ascribe.groups.ngram import ngram
from ascribe.groups.radius import OnlineRadius, Target, search
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

SEARCH_GROUPS = 16
"""How many task groups, evenly spaced, a search for the radius looks at."""

BY_TEXT = "No row has a fingerprint, so states are compared by their exact text."


@dataclass(frozen=True, kw_only=True)
class Clustering(Recipe):
    """A recipe that groups states by their fingerprints.

    Attributes:
        fingerprint: ``given`` by the caller or in the table (hidden states of the policy, as in
            the paper), and equal texts where no row has one; or computed from the state:
            ``ngram``, ``identity``.
        radius: largest cosine distance of a state to its cluster's centroid (paper: 0.10 for
            Qwen2.5-7B, 0.05 for Qwen2.5-1.5B, 0.25 for n-grams). Calibrate it once per model.
        radius_rule: ``fixed``; ``search`` for the radius of median cluster size 4 to 8 in the first
            iteration and keep it (Appendix F); or ``online``: begin with ``radius``, and follow the
            median from iteration to iteration.
        on_collapse: what to do with a task whose states fall into one cluster (failure mode F1):
            group it by ``exact`` text, or ``keep`` the one cluster.
    """

    compares_in_groups: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("fingerprints", "history")

    fingerprint: Literal["given", "ngram", "identity"] = "given"
    radius: float = 0.10
    radius_rule: Literal["fixed", "search", "online"] = "fixed"
    on_collapse: Literal["exact", "keep"] = "exact"

    @property
    def has_history(self) -> bool:
        """Whether the radius of an iteration depends on those before."""
        return self.radius_rule != "fixed"

    def carried(self, metrics: dict[str, float], inputs: dict[str, Any]) -> dict[str, Any] | None:
        """The radius for the next iteration, with what an online one needs to know."""
        if not self.has_history or "radius" not in metrics:
            return inputs.get("history")
        if self.radius_rule == "search":
            return {"radius": metrics["radius"]}
        now = _online(self.radius, inputs.get("history"))
        return asdict(now.updated(float(metrics["median_size"])))

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """Cluster of each row in canonical order; the radius and the number of collapsed tasks."""
        return self.clusters(table, inputs, self.excluded(arrange(table)))

    def clusters(
        self, table: StepTable, inputs: dict[str, Any], excluded: Bools
    ) -> tuple[Groups, dict[str, float]]:
        """As ``state_groups``, for other rows that take no part in the clustering."""
        steps = arrange(table)
        texts = exact(steps.group, steps.state, table.state.values.size)
        found = self._fingerprints(table, inputs)
        if found is None:
            return texts, {}
        vectors, at = found
        taking_part = present(vectors)[at] & ~excluded
        radius, history = float(self.radius), inputs.get("history")
        if self.radius_rule == "online":
            radius = _online(radius, history).radius
        elif self.radius_rule == "search" and history is not None:
            radius = float(history["radius"])
        elif self.radius_rule == "search" and taking_part.any():
            tasks = np.unique(steps.group[taking_part])
            some = np.linspace(0, tasks.size - 1, min(SEARCH_GROUPS, tasks.size)).astype(int)
            by_task = (vectors[at[(steps.group == task) & taking_part]] for task in tasks[some])
            grams = [unit @ unit.T for unit in map(normalised, by_task)]
            radius = search(grams, Target()).radius
        unit = self.fingerprint != "given"
        groups = cluster(vectors, steps.group, radius, taking_part, at=at, unit=unit)
        is_collapsed = collapsed(groups.labels, groups.count, steps.group)
        owner = steps.group[segments.first_rows(texts.labels, texts.count)]
        is_collapsed &= segments.size(owner, steps.group_count) > 1
        metrics = {"radius": radius, "collapsed_groups": Metric(is_collapsed, np.sum)}
        metrics["median_size"] = Metric(segments.size(groups.labels, groups.count), np.median)
        if self.on_collapse == "exact" and is_collapsed.any():
            text_labels = np.where(texts.labels < 0, -1, texts.labels + groups.count)
            labels = np.where(is_collapsed[steps.group], text_labels, groups.labels)
            labels, count = segments.by_appearance(labels, groups.count + texts.count)
            groups = Groups(labels, count)
        return groups, metrics

    def notes(self, table: StepTable, inputs: dict[str, Any]) -> tuple[str, ...]:
        """Says so if no row has a fingerprint."""
        missing = self.fingerprint == "given" and _given(table, inputs) is None
        return (*super().notes(table, inputs), *((BY_TEXT,) if missing else ()))

    def _fingerprints(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[FloatMatrix, Ints] | None:
        """Fingerprints, zeros for none, and where that of each row in canonical order is.

        None if no row has one. Given ones need not be of unit length.
        """
        steps = arrange(table)
        if self.fingerprint == "identity":
            vectors = identity(steps.group, steps.state, table.state.values.size)
            return vectors, np.arange(steps.rows.size)
        if self.fingerprint == "ngram":
            by_state = ngram(table.state.values)
            zero_row = np.zeros((1, by_state.shape[1]), by_state.dtype)
            return np.vstack([by_state, zero_row]), steps.state
        given = _given(table, inputs)
        return None if given is None else (given, steps.rows)


def _given(table: StepTable, inputs: dict[str, Any]) -> FloatMatrix | None:
    """The fingerprints of a call or else of the table; None if no row has one."""
    vectors: FloatMatrix | None = inputs.get("fingerprints")
    vectors = table.fingerprint if vectors is None else vectors
    if vectors is None:
        return None
    refuse_masked(vectors)
    if vectors.shape[0] != len(table):
        raise InputError(f"{len(table):,} rows, but {vectors.shape[0]:,} fingerprints")
    values = np.asarray(vectors)
    return vectors if values[:1].any() or values.any() else None  # mostly the first row says it


def _online(radius: float, history: dict[str, Any] | None) -> OnlineRadius:
    return OnlineRadius(radius) if history is None else OnlineRadius(**history)
