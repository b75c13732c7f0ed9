"""Entropy: another recipe's credit, larger where the policy was sure of its response.

Page: docs/estimators/columns.md. Test: tests/estimators/test_entropy.py.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ascribe.estimators import recipe
from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence, Term
from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange
from ascribe.steps.returns import following
from ascribe.steps.table import StepTable

CLARITY = Sentence(
    "a clear response next is worth {own}; the mean advantage of {peers} steps is {baseline}"
)
BEYOND = "the value is scaled by how sure the policy was"


def certainty(entropy: Floats, k: float) -> Floats:
    """``e^{-kH̃}``, H̃ the entropy scaled to go from 0 to 1; NaN where the entropy is."""
    above = entropy - np.fmin.reduce(entropy)
    return np.asarray(np.exp(-k * above / (np.fmax.reduce(above) or 1.0)))


@dataclass(frozen=True, kw_only=True)
class Entropy(Recipe):
    """Another recipe's credit, larger where the policy was sure of its response.

    ``A'_t = A_t g(H_t) + ζ f(H_{t+1}) - mean over the batch``, with A the advantage of the wrapped
    recipe, ``g(H) = e^{-kH̃} / mean over the batch of e^{-kH̃}`` and ``f(H) = e^{-k'H̃}``. H is the
    column ``entropy``: the mean entropy of the policy over the tokens of the response. H̃ is H,
    scaled to go from 0 to 1 over the batch. f rewards a step after which the policy is sure; there
    is none after the last step. A row that the wrapped recipe does not credit stays without credit.
    The parameters that all recipes have (``truncation`` and the penalty) go to the wrapped one.

    Attributes:
        wraps: the wrapped recipe, and its parameters: ``gigpo normalise=mean gamma=0.9``.
        k: how fast g falls with entropy; 0 leaves the advantage as it is.
        clarity: ζ, weight of the bonus for a step after which the policy is sure.
        k_next: k', how fast f falls with the entropy of the next response.
    """

    name: ClassVar[str] = "entropy"
    paper: ClassVar[str] = "EMPG, arXiv 2509.09265"
    columns: ClassVar[tuple[str, ...]] = ("entropy",)
    ranges: ClassVar[dict[str, tuple[float, float]]] = Recipe.ranges | {
        name: (0.0, most) for name, most in (("k", 100.0), ("k_next", 100.0), ("clarity", 1e9))
    }

    wraps: str = "grpo"
    k: float = 1.0
    clarity: float = 0.1
    k_next: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner  # what it needs and takes, this recipe needs and takes
        taken = ("inputs", "notes", "without_recurrence", "fingerprint", "states", "bootstrap")
        for name in (*taken, "memory"):
            if hasattr(inner, name):
                object.__setattr__(self, name, getattr(inner, name))
        object.__setattr__(self, "columns", (*type(self).columns, *inner.columns))

    @property
    def has_history(self) -> bool:
        """Whether the wrapped recipe carries state."""
        return self.inner.has_history

    @cached_property
    def inner(self) -> Recipe:
        """The wrapped recipe."""
        name, *changes = self.wraps.split() or [""]
        shared = ("invalid_penalty", "penalty_timing", "truncation")
        parameters = {parameter: getattr(self, parameter) for parameter in shared}
        for parameter, _, text in (change.partition("=") for change in changes):
            try:
                parameters[parameter] = json.loads(text)
            except ValueError:
                parameters[parameter] = text
        return recipe(name, **parameters)

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps, credit = arrange(table), self.inner.compute(table, inputs)
        entropy = np.where(self.excluded(steps), np.nan, self.numbers(table, "entropy"))
        unknown, inner = np.isnan(entropy), credit.rows(steps.rows)
        sure, then = np.where(unknown, 0.0, [certainty(entropy, k) for k in (self.k, self.k_next)])
        scale = sure * (~unknown).sum() / (sure[~unknown].sum() or 1.0)
        bonus = self.clarity * following(then, steps.trajectory)
        credited = inner.credited & ~unknown
        count, labels = np.full(credited.size, int(credited.sum())), np.where(credited, 0, -1)
        mean = (inner.advantage * scale + bonus)[credited].sum() / np.maximum(count, 1)
        why = partial(Explanation, bonus, mean, count, (CLARITY,))
        terms = {
            name: replace(each, values=scale * each.values, explain=partial(_explain_scaled, each))
            for name, each in inner.terms.items()
        }
        terms["clarity"] = Term(credited * (bonus - mean), inner.reason, labels, 1.0, why)
        out = {}
        for name, term in terms.items():
            reason = np.where(term.credited & unknown, np.int8(Reason.MISSING_INPUT), term.reason)
            rows = (table, term.values, reason, term.labels)
            out[name] = self.term(*rows, weight=term.weight, explain=term.explain)
        return Credit.of(out, repr(self), credit.metrics, credit.history)


def _explain_scaled(term: Term) -> Explanation:
    said = (replace(each, beyond=each.beyond or BEYOND) for each in term.explanation.sentences)
    return replace(term.explanation, sentences=tuple(said))
