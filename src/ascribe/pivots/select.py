"""Selection: the turns with mixed outcomes that are still hard.

    μ̂(s) = (1/K) Σ_k r_func(s, a_k)      σ̂²(s) = (1/K) Σ_k (r_func(s, a_k) - μ̂(s))²    (Eq. 4)
    D_adv = {(s, a*) : σ̂²(s) > 0, μ̂(s) < λ_diff}                                       (Eq. 5)

A turn without variance gives every answer of a group the advantage 0 (Proposition 3.1), and along
the path of a KL-regularised update the signal is the standard deviation (Theorem 3.2).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from ascribe.pivots.candidates import Candidate
from ascribe.pivots.profile import Answer
from ascribe.pivots.verifiers import Verdict, Verifier, strict

LAMBDA_DIFF = 0.6
"""Ascribe's choice, for the paper gives no number: turns that fail four times in ten or more.
``ascribe pivots report`` counts what other thresholds would keep."""


class NoSignal(StrEnum):
    """Why a candidate is not kept."""

    ALL_RIGHT = "all_right"
    """Every answer was accepted: the policy can do this."""
    ALL_WRONG = "all_wrong"
    """No answer was accepted: the policy does not find it."""
    TOO_EASY = "too_easy"
    """Mixed, but the mean is not below the threshold."""
    NOT_PROFILED = "not_profiled"
    """There are fewer answers than K: profile on."""
    NOT_VERIFIABLE = "not_verifiable"
    """The verifier has nothing to say of this turn."""
    TOO_LONG = "too_long"
    """The history leaves no room for an answer in the model's context."""
    REFUSED = "refused"
    """The server refuses this turn for good, and has said why."""


@dataclass(frozen=True)
class Scored:
    """A candidate with its answers and what the verifier says of them."""

    candidate: Candidate
    answers: tuple[Answer, ...]
    verdicts: tuple[Verdict, ...]
    wanted: int
    """K."""

    @cached_property
    def rewards(self) -> tuple[float, ...]:
        """r_func of each answer."""
        return tuple(verdict.reward for verdict in self.verdicts)

    @property
    def strict(self) -> tuple[float, ...]:
        """r_strict of each answer."""
        return tuple(strict(self.candidate, answer.text).reward for answer in self.answers)

    @property
    def mean(self) -> float:
        """μ̂; 0 without answers."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else 0.0

    @property
    def variance(self) -> float:
        """σ̂² = μ̂(1 - μ̂), since rewards are 0 or 1."""
        return self.mean * (1 - self.mean)

    @property
    def unusable(self) -> NoSignal | None:
        """Why the answers say nothing about the turn, if so."""
        if len(self.answers) < self.wanted:
            return NoSignal.NOT_PROFILED
        if all(answer.finish == "prompt_too_long" for answer in self.answers):
            return NoSignal.TOO_LONG
        if any(answer.refusal for answer in self.answers):
            return NoSignal.REFUSED
        if any(verdict.accepted is None for verdict in self.verdicts):
            return NoSignal.NOT_VERIFIABLE
        return None

    def left_out(self, threshold: float) -> NoSignal | None:
        """Why the candidate is no pivot; None if it is one."""
        if self.unusable is not None:
            return self.unusable
        if all(self.rewards):
            return NoSignal.ALL_RIGHT
        if not any(self.rewards):
            return NoSignal.ALL_WRONG
        return None if self.mean < threshold else NoSignal.TOO_EASY


def score(
    candidates: Iterable[Candidate],
    answers: Iterable[Answer],
    verifier: Verifier,
    k: int | None = None,
) -> list[Scored]:
    """What the verifier says of the answers to each candidate.

    Args:
        candidates: in the order of the result.
        answers: of one reference; those to other candidates are passed over.
        verifier: gives the rewards.
        k: answers to each candidate that count, the first; None: as many as there are for any.
    """
    found: dict[str, dict[int, Answer]] = {}
    for answer in answers:
        found.setdefault(answer.candidate, {})[answer.k] = answer
    wanted = k or max((number + 1 for given in found.values() for number in given), default=1)
    return [_scored(one, found.get(one.id, {}), verifier, wanted) for one in candidates]


def _scored(one: Candidate, given: Mapping[int, Answer], verifier: Verifier, wanted: int) -> Scored:
    kept = tuple(given[number] for number in range(wanted) if number in given)
    # Verdicts on such profiles are not needed, and some cost a judge's time.
    if len(kept) < wanted or any(answer.refusal for answer in kept):
        return Scored(one, kept, (), wanted)
    said: dict[str, Verdict] = {}
    for answer in kept:
        if answer.text not in said:
            said[answer.text] = verifier(one, answer.text)
    return Scored(one, kept, tuple(said[answer.text] for answer in kept), wanted)


@dataclass(frozen=True)
class Selection:
    """The pivots, and why the others are none."""

    kept: tuple[Scored, ...]
    left_out: Mapping[NoSignal, tuple[Scored, ...]]
    threshold: float


def select(scored: Sequence[Scored], threshold: float = LAMBDA_DIFF) -> Selection:
    """The candidates of Eq. 5.

    Args:
        scored: the candidates with their rewards.
        threshold: λ_diff, in (0, 1]; at 1 every turn with mixed outcomes is kept.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"the threshold must lie in (0, 1], not {threshold}")
    reasons = [one.left_out(threshold) for one in scored]
    pairs = list(zip(scored, reasons, strict=True))
    return Selection(
        tuple(one for one, reason in pairs if reason is None),
        {
            kind: tuple(one for one, reason in pairs if reason is kind)
            for kind in NoSignal
            if kind in reasons
        },
        threshold,
    )


def random_set(scored: Sequence[Scored], size: int, seed: int = 0) -> list[Scored]:
    """A random set of the candidates that could be verified, for comparison with the pivots.

    The paper's D_cand; at most as many as there are. It depends on the candidates and the seed, and
    not on their order.
    """
    pool = sorted((one for one in scored if one.unusable is None), key=lambda s: s.candidate.id)
    order = np.random.default_rng(seed).permutation(len(pool))[:size]
    return [pool[place] for place in sorted(order.tolist())]


def profiles(scored: Iterable[Scored]) -> dict[str, dict[str, object]]:
    """What a file of pivots says of each: mean, variance and rewards."""
    return {
        one.candidate.id: {
            "mean": one.mean,
            "variance": one.variance,
            "rewards": list(one.rewards),
        }
        for one in scored
    }
