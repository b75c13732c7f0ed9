"""Selection: the turns with mixed outcomes that are still hard.

    μ̂(s) = (1/K) Σ_k r_func(s, a_k)      σ̂²(s) = (1/K) Σ_k (r_func(s, a_k) - μ̂(s))²    (Eq. 4)
    D_adv = {(s, a*) : σ̂²(s) > 0, μ̂(s) < λ_diff}                                       (Eq. 5)

A turn without variance gives every response of a group the advantage 0 (Proposition 3.1), and along
the path of a KL-regularised update the signal is the standard deviation (Theorem 3.2).

``report`` shows where the signal is, and how much of it the strict reward would miss.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ascribe.estimators.diagnostics import wilson
from ascribe.steps.errors import InputError
from ascribe_lab.pivots.candidates import KINDS, Candidate, write_turns
from ascribe_lab.pivots.profile import ProfileResponse
from ascribe_lab.pivots.verifiers.text import strict
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier

LAMBDA_DIFF = 0.6
"""Ascribe's choice, since the paper gives no number: turns that fail four times in ten or more.
``ascribe pivots report`` counts what other thresholds would keep."""

THRESHOLDS = (0.25, 0.5, LAMBDA_DIFF, 0.75, 1.0)


LEFT_OUT = {
    "all_right": "Every response was accepted: the policy can do this.",
    "all_wrong": "No response was accepted: the policy does not find it.",
    "too_easy": "Mixed, but the mean is not below the threshold.",
    "not_profiled": "There are fewer responses than K: continue profiling.",
    "not_verifiable": "The verifier does not apply to this turn.",
    "too_long": "The history leaves no room for a response in the model's context.",
    "refused": "The server refused a request for this turn for good, and gave a reason.",
}
"""Why a candidate is not kept."""


@dataclass(frozen=True)
class Scored:
    """A candidate with its responses and their verdicts."""

    candidate: Candidate
    responses: tuple[ProfileResponse, ...]
    verdicts: tuple[Verdict, ...]
    wanted: int
    """K."""

    @cached_property
    def rewards(self) -> tuple[float, ...]:
        """r_func of each response."""
        return tuple(verdict.reward for verdict in self.verdicts)

    @property
    def strict(self) -> tuple[float, ...]:
        """r_strict of each response."""
        return tuple(strict(self.candidate, one.text).reward for one in self.responses)

    @property
    def mean(self) -> float:
        """μ̂; 0 without responses."""
        return _mean(self.rewards)

    @property
    def variance(self) -> float:
        """σ̂² = μ̂(1 - μ̂), since rewards are 0 or 1."""
        return self.mean * (1 - self.mean)

    @property
    def unusable(self) -> str | None:
        """Why the responses cannot be used, if so."""
        if len(self.responses) < self.wanted:
            return "not_profiled"
        if all(one.finish == "prompt_too_long" for one in self.responses):
            return "too_long"
        if any(one.refusal for one in self.responses):
            return "refused"
        if any(verdict.accepted is None for verdict in self.verdicts):
            return "not_verifiable"
        return None

    def left_out(self, threshold: float) -> str | None:
        """Why the candidate is no pivot; None if it is one."""
        if self.unusable is not None:
            return self.unusable
        if all(self.rewards):
            return "all_right"
        if not any(self.rewards):
            return "all_wrong"
        return None if self.mean < threshold else "too_easy"


def score(
    candidates: Iterable[Candidate],
    responses: Iterable[ProfileResponse],
    verifier: Verifier,
    k: int | None = None,
) -> list[Scored]:
    """The verdicts on the responses to each candidate.

    Args:
        candidates: in the order of the result.
        responses: of one reference; those to other candidates are ignored.
        verifier: gives the rewards.
        k: use the first K responses to each candidate; None: as many as any candidate has.
    """
    by_candidate: dict[str, dict[int, ProfileResponse]] = {}
    for one in responses:
        by_candidate.setdefault(one.candidate, {})[one.k] = one
    wanted = k or max((1 + number for ones in by_candidate.values() for number in ones), default=1)
    scored = []
    for turn in candidates:
        own = by_candidate.get(turn.id, {})
        used = tuple(own[number] for number in sorted(own) if 0 <= number < wanted)
        verdicts: tuple[Verdict, ...] = ()
        # Verdicts on other profiles are not needed, and some cost a judge's time.
        if len(used) == wanted and not any(response.refusal for response in used):
            by_text = {text: verifier(turn, text) for text in dict.fromkeys(r.text for r in used)}
            verdicts = tuple(by_text[response.text] for response in used)
        scored.append(Scored(turn, used, verdicts, wanted))
    return scored


@dataclass(frozen=True)
class Selection:
    """The pivots, and why the others are none."""

    kept: tuple[Scored, ...]
    left_out: Mapping[str, tuple[Scored, ...]]
    """By reason, in the order of ``LEFT_OUT``."""

    @property
    def counts(self) -> dict[str, int]:
        """How many were left out for each reason."""
        return {reason: len(ones) for reason, ones in self.left_out.items()}


def select(scored: Sequence[Scored], threshold: float = LAMBDA_DIFF) -> Selection:
    """The candidates of Eq. 5.

    Args:
        scored: the candidates with their rewards.
        threshold: λ_diff, in (0, 1]; at 1 every turn with mixed outcomes is kept.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"the threshold must lie in (0, 1], not {threshold}")
    by_reason: dict[str | None, list[Scored]] = {}
    for one in scored:
        by_reason.setdefault(one.left_out(threshold), []).append(one)
    kept = tuple(by_reason.get(None, ()))
    return Selection(kept, {kind: tuple(by_reason[kind]) for kind in LEFT_OUT if kind in by_reason})


def write_pivots(path: str | Path, scored: Sequence[Scored], facts: Mapping[str, Any]) -> None:
    """Write a file of pivots with the mean, variance and rewards of each."""
    profiles = (
        {"profile": {"mean": one.mean, "variance": one.variance, "rewards": list(one.rewards)}}
        for one in scored
    )
    write_turns(path, [one.candidate for one in scored], KINDS[1], facts, profiles)


# The report.


def report(
    scored: Sequence[Scored], threshold: float = LAMBDA_DIFF, examples: int = 3
) -> dict[str, Any]:
    """The metrics of a profile, as plain values.

    Shares are of the turns that have K responses and a verdict. A share has a ``value``, Wilson's
    95 % interval from ``low`` to ``high``, and the number of ``turns``, which are its trials:
    responses to one turn are alike.

    - ``without_signal``: the share of turns whose responses are all accepted or all refused (the
      paper: 71 %); None without a turn.
    - ``histogram``: turns by their mean: 0, 1/K, ..., 1.
    - ``kept_at``: how many turns each threshold would keep.
    - ``functional``, ``strict``: means of r_func and r_strict over all responses.
    - ``miss_rate``: Pr[r_strict = 0 | r_func = 1] (Section 2); None if nothing was accepted.
    - ``reasons``: how often the verifier gave each reason.
    - ``examples``: pivots, each with an accepted response, if possible one that is not the
      demonstrated text, and a refused one.

    Args:
        scored: the candidates with their rewards.
        threshold: λ_diff.
        examples: how many pivots to show.
    """
    chosen = select(scored, threshold)
    usable = [one for one in scored if one.unusable is None]
    rewards = [reward for one in usable for reward in one.rewards]
    exact = [reward for one in usable for reward in one.strict]
    silent = sum(len(set(one.rewards)) == 1 for one in usable)
    missed = sum(reward > match for reward, match in zip(rewards, exact, strict=True))
    return {
        "candidates": len(scored),
        "copies": sum(one.candidate.copies for one in scored),
        "k": max((one.wanted for one in scored), default=0),
        "profiled": len(usable),
        "kept": len(chosen.kept),
        "threshold": threshold,
        "left_out": chosen.counts,
        "without_signal": _share(silent, len(usable), len(usable)),
        "histogram": _histogram(usable),
        "kept_at": [(limit, len(select(scored, limit).kept)) for limit in THRESHOLDS],
        "functional": _mean(rewards),
        "strict": _mean(exact),
        "miss_rate": _share(missed, sum(rewards), sum(any(one.rewards) for one in usable)),
        "reasons": dict(Counter(v.reason for one in usable for v in one.verdicts).most_common()),
        "examples": [_example(one) for one in _spread(chosen.kept, examples)],
    }


def _share(count: float, total: float, turns: int) -> dict[str, float] | None:
    if not total:
        return None
    low, high = wilson(count / total, turns)
    return {"value": count / total, "low": low, "high": high, "turns": turns}


def _histogram(usable: Sequence[Scored]) -> list[tuple[float, int]]:
    counts = Counter((sum(one.rewards), one.wanted) for one in usable)
    means = sorted({(right, k) for _, k in counts for right in range(k + 1)})
    return [(right / k, counts[right, k]) for right, k in means]


def _spread(kept: Sequence[Scored], count: int) -> list[Scored]:
    """Some of the pivots, from the hardest to the easiest."""
    ranked = sorted(kept, key=lambda one: (one.mean, one.candidate.id))
    if count < 1 or not ranked:
        return []
    step = max(1, len(ranked) // count)
    return ranked[::step][:count]


def _example(one: Scored) -> dict[str, Any]:
    pairs = list(zip(one.responses, one.verdicts, strict=True))
    right = [response.text for response, verdict in pairs if verdict.accepted]
    other = [text for text in right if text != one.candidate.action]
    # A pivot has both.
    refused, verdict = next(pair for pair in pairs if not pair[1].accepted)
    return {
        "candidate": one.candidate.id,
        "trace": one.candidate.origin.trace,
        "turn": one.candidate.origin.turn,
        "mean": one.mean,
        "situation": one.candidate.messages[-1]["content"],
        "demonstrated": one.candidate.action,
        "accepted": (other or right)[0],
        "refused": refused.text,
        "why": f"{verdict.reason} {verdict.detail}".strip(),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
