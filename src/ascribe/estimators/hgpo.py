"""HGPO: step credit in nested groups of rows that share a longer and longer history."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import Std, explained, relative
from ascribe.estimators.scale import TermScale, equalised
from ascribe.groups.history import history
from ascribe.steps.arrays import Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

CONTEXTS = "the recipe averages such comparisons over longer and longer histories"
SHARED = Sentence(
    "{peers} peers in this state returned {baseline} in the mean; this step returned {own}",
    CONTEXTS,
)
ALONE = Sentence("no other step is in this state; this one returned {own}", CONTEXTS)


@dataclass(frozen=True, kw_only=True)
class HGPO(Standardising):
    """Hierarchy-of-groups policy optimization: step terms in nested contexts, averaged.

    For k = 1 ... ``history_length`` + 1, rows of a task that share their last k states form a
    group, and ``A_k = (R_t - mean) / (std + std_epsilon)`` inside it. ``A = Σ_k w_k A_k`` over the
    contexts in which the row has peers, ``w_k ∝ (k + 1)^alpha``, adding up to 1.

    Attributes:
        gamma: discount γ of the return of a step.
        history_length: earlier states in the longest context (paper: 2 or 4).
        alpha: how much more a longer context weighs; 0 weighs all alike.
        normalise: ``std`` or ``mean``, as for GiGPO.
        episode: whether the task group takes part as the context of no states (weight 1).
        drop_zeros: leave out contexts whose advantage is zero (to 1e-9) before weighting, as
            verl-agent does; the weights then depend on the data.
        std: ``population`` (n), as the authors' code computes it.
        scale: as in the ``paper``, or rescaled so that the root mean square over the rows of the
            batch that it credits is ``equal`` to that of the episode term that ``gigpo`` would
            have there, with the same ``normalise`` and ``std``.
    """

    name: ClassVar[str] = "hgpo"
    paper: ClassVar[str] = "HGPO, arXiv 2602.22817"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "verl-agent": {"drop_zeros": True, "penalty_timing": "after", "invalid_penalty": 0.1},
    }

    gamma: float = 0.95
    history_length: int = 2
    alpha: float = 1.0
    normalise: Literal["std", "mean"] = "std"
    episode: bool = False
    drop_zeros: bool = False
    std: Std = "population"
    scale: TermScale = "paper"

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        steps = arrange(table)
        late, out, norm = self._late_penalties(steps), self._out(steps), self._norm(self.normalise)
        returns = self.step_returns(table)
        states = table.state.values.size
        levels = history(steps.group, steps.trajectory, steps.state, states, self.history_length)
        parts = [
            relative(returns, np.where(out, -1, level.labels), level.count, norm)
            for level in levels
        ]
        weights = [(k + 1.0) ** self.alpha for k in range(1, len(levels) + 1)]
        if self.episode:
            scores = self._episode_returns(steps)[steps.trajectory] - late
            group = np.where(out, -1, steps.group)
            parts.insert(0, relative(scores, group, steps.group_count, norm))
            weights.insert(0, 1.0)
        values, reason = self._average(parts, weights)
        reason[(steps.state < 0) & (reason == Reason.SINGLETON)] = Reason.MISSING_STATE
        explain = partial(_explained, returns, np.where(out, -1, levels[0].labels), levels[0].count)
        terms = {"step": self._term(table, values, reason, levels[0].labels, explain=explain)}
        numbers = {}
        if self.scale == "equal":
            episode = self._broadcast(table, *self._against_group(steps, norm))
            terms, numbers["scale_factor"] = equalised(terms, ["step"], episode, steps.rows)
        return Credit.of(terms, repr(self), numbers)

    def _average(
        self, parts: list[tuple[Floats, Codes8]], weights: list[float]
    ) -> tuple[Floats, Codes8]:
        """Weighted mean over the contexts in which a row has peers."""
        top, bottom = np.zeros(parts[0][0].size), np.zeros(parts[0][0].size)
        reason = np.full(top.size, Reason.SINGLETON, dtype=np.int8)
        for (values, why), weight in zip(parts, weights, strict=True):
            peers = why != Reason.SINGLETON
            counts = np.abs(values) > 1e-9 if self.drop_zeros else peers
            top += np.where(counts, weight * values, 0.0)
            bottom += np.where(counts, weight, 0.0)
            reason = np.where(peers & (reason != Reason.CREDITED), why, reason)
        return np.divide(top, bottom, out=np.zeros(top.size), where=bottom > 0), reason


def _explained(returns: Floats, labels: Ints, count: int) -> Explanation:
    """Each row's return beside its state, the shortest context."""
    out = explained(returns, labels, count, SHARED)
    return replace(out, sentences=(SHARED, ALONE), way=(out.peers < 2).astype(np.int8))
