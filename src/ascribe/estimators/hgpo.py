"""HGPO: step credit in nested groups of rows that share a longer and longer history.

Page: docs/estimators/gigpo.md. Test: tests/estimators/test_hgpo.py.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import Comparison, Std, TermScale, equalised, relative
from ascribe.groups.exact import history
from ascribe.steps.arrays import Codes8, Floats
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable

CONTEXTS = "the recipe averages such comparisons over longer and longer histories"
SHARED = Sentence(
    "{peers} steps in this state returned {baseline} on average; this step returned {own}",
    CONTEXTS,
)
ALONE = Sentence("no other step is in this state; this one returned {own}", CONTEXTS)


def averaged(
    contexts: list[Comparison], weights: list[float], *, drop_zeros: bool
) -> tuple[Floats, Codes8]:
    """Weighted mean over the contexts in which a row has peers, and its reason.

    With ``drop_zeros``, contexts whose advantage is zero (to 1e-9) are left out as well.
    """
    total, mass = np.zeros((2, contexts[0].values.size))
    reason = np.full(total.size, Reason.SINGLETON, dtype=np.int8)
    for (values, cause), weight in zip(contexts, weights, strict=True):
        peers = cause != Reason.SINGLETON
        counts = np.abs(values) > 1e-9 if drop_zeros else peers
        total += np.where(counts, weight * values, 0.0)
        mass += np.where(counts, weight, 0.0)
        reason = np.where(peers & (reason != Reason.CREDITED), cause, reason)
    return np.divide(total, mass, out=np.zeros(total.size), where=mass > 0), reason


@dataclass(frozen=True, kw_only=True)
class HGPO(Standardising):
    """Hierarchy-of-groups policy optimization: step terms in nested contexts, averaged.

    For k = 1 ... ``history_length`` + 1, rows of a task that share their last k states form a
    context, and ``A_k = (R_t - mean) / (max(std, std_floor) + std_epsilon)`` inside it, with
    R_t the discounted return from the row on. ``A = Σ_k w_k A_k`` over the contexts in which the
    row has peers, ``w_k ∝ (k + 1)^alpha``, adding up to 1.

    Attributes:
        gamma: discount γ of the return of a step.
        history_length: earlier states in the longest context (paper: 2 or 4).
        alpha: how much more a longer context weighs; 0 weighs all alike.
        normalise: ``std`` or ``mean``, as for GiGPO.
        episode: whether the task group takes part as the context of no states (weight 1).
        drop_zeros: leave out contexts whose advantage is zero (to 1e-9) before weighting, as
            verl-agent does; the weights then depend on the data.
        group_of_one: a task with one trajectory gives ``no_credit``, or its visits to a state are
            compared with each other (``raw``).
        std: ``population`` (n), as the authors' code computes it.
        scale: as in the ``paper``, or rescaled to ``equal`` the episode term of ``gigpo`` (with the
            same ``normalise`` and ``std``) in root mean square, each over the rows of the batch
            that it credits.
    """

    name: ClassVar[str] = "hgpo"
    paper: ClassVar[str] = "HGPO, arXiv 2602.22817"
    compares_in_groups: ClassVar[bool] = True
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **Standardising.ranges,
        "alpha": (-100.0, 100.0),
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "verl-agent": {
            "drop_zeros": True,
            "group_of_one": "raw",
            "penalty_timing": "after",
            "invalid_penalty": 0.1,
        },
    }

    gamma: float = 0.95
    history_length: int = 2
    alpha: float = 1.0
    normalise: Literal["std", "mean"] = "std"
    episode: bool = False
    drop_zeros: bool = False
    group_of_one: Literal["no_credit", "raw"] = "no_credit"
    std: Std = "population"
    scale: TermScale = "paper"

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, norm, returns = arrange(table), self.norm(self.normalise), self.step_returns(table)
        excluded, states = self.excluded(steps), table.state.values.size
        levels = history(steps.group, steps.trajectory, steps.state, states, self.history_length)
        contexts = [
            relative(returns, np.where(excluded, -1, level.labels), level.count, norm)
            for level in levels
        ]
        in_state = contexts[0]
        weights = [(k + 1.0) ** self.alpha for k in range(1, len(levels) + 1)]
        if self.episode:
            scores = self.episode_returns(steps)[steps.trajectory] - self.late_penalties(steps)
            group = np.where(excluded, -1, steps.group)
            contexts.insert(0, relative(scores, group, steps.group_count, norm))
            weights.insert(0, 1.0)
        values, reason = averaged(contexts, weights, drop_zeros=self.drop_zeros)
        if self.group_of_one == "no_credit":
            reason[self.alone(steps)] = Reason.GROUP_OF_ONE  # their own visits alone are no peers
        reason[(steps.state < 0) & (reason == Reason.SINGLETON)] = Reason.MISSING_STATE
        explain = partial(_explained, in_state)
        terms = {"step": self.term(table, values, reason, levels[0].labels, explain=explain)}
        metrics = {}
        if self.scale == "equal":
            sizes = ["step"], self.episode_term(table, norm), steps.rows
            terms, metrics["scale_factor"] = equalised(terms, *sizes)
        return Credit.of(terms, repr(self), metrics)

    def without_recurrence(self) -> str:
        """No row has peers in any context of states."""
        return f"{self.name} {'compares episodes alone' if self.episode else 'gives no credit'}"


def _explained(in_state: Comparison) -> Explanation:
    """Each row's return, compared with others in its state (the shortest context)."""
    state = in_state.explained(SHARED)
    return replace(state, sentences=(SHARED, ALONE), way=(state.peers < 2).astype(np.int8))
