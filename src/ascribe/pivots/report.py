"""What profiling shows: where the signal is, and how much of it the strict reward would miss."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ascribe.pivots.select import LAMBDA_DIFF, NoSignal, Scored, Selection, select
from ascribe.rollout.summary import wilson

THRESHOLDS = (0.25, 0.5, LAMBDA_DIFF, 0.75, 1.0)
FIFTHS = 5


@dataclass(frozen=True)
class Share:
    """A share with Wilson's 95 % interval; turns count once, for answers to one turn are alike."""

    value: float
    low: float
    high: float
    turns: int


@dataclass(frozen=True)
class Example:
    """A turn of the selection, with an answer of each kind."""

    candidate: str
    trace: str
    turn: int
    mean: float
    situation: str
    demonstrated: str
    accepted: str | None
    """An answer that the verifier accepts; one that is not the demonstrated text, if there is."""
    refused: str | None
    why: str | None
    """Why it is refused."""


@dataclass(frozen=True)
class Report:
    """The numbers. Shares of turns are of those that have K answers and a verdict."""

    candidates: int
    copies: int
    k: int
    profiled: int
    kept: int
    threshold: float
    left_out: dict[str, int]
    without_signal: Share | None
    """Turns whose answers are all accepted or all refused (the paper: 71 %)."""
    histogram: tuple[tuple[float, int], ...]
    """Turns by their mean: 0, 1/K, ..., 1."""
    kept_at: tuple[tuple[float, int], ...]
    """How many other thresholds would keep."""
    by_turn: tuple[tuple[int, int, int], ...]
    """The number of the turn in its trace, turns that were kept there, and all."""
    by_fifth: tuple[tuple[int, int, int], ...]
    """The same by the place in the trace: its first fifth, ..., its last."""
    functional: float
    """Mean of r_func over all answers."""
    strict: float
    """Mean of r_strict."""
    miss_rate: Share | None
    """Pr[r_strict = 0 | r_func = 1] (the paper's Section 2)."""
    reasons: dict[str, int]
    """How often the verifier gave each reason."""
    examples: tuple[Example, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def report(scored: Sequence[Scored], threshold: float = LAMBDA_DIFF, examples: int = 3) -> Report:
    """The numbers of a profile.

    Args:
        scored: the candidates with their rewards.
        threshold: λ_diff.
        examples: how many turns to show.
    """
    chosen = select(scored, threshold)
    usable = [one for one in scored if one.unusable is None]
    kept = {one.candidate.id for one in chosen.kept}
    rewards = [reward for one in usable for reward in one.rewards]
    matched = [reward for one in usable for reward in one.strict]
    return Report(
        candidates=len(scored),
        copies=sum(one.candidate.copies for one in scored),
        k=max((one.wanted for one in scored), default=0),
        profiled=len(usable),
        kept=len(kept),
        threshold=threshold,
        left_out={kind.value: len(ones) for kind, ones in chosen.left_out.items()},
        without_signal=_silent(chosen, usable),
        histogram=_histogram(usable),
        kept_at=tuple((limit, len(select(scored, limit).kept)) for limit in THRESHOLDS),
        by_turn=_counted(usable, kept, lambda one: one.candidate.origin.turn),
        by_fifth=_counted(usable, kept, _fifth),
        functional=_mean(rewards),
        strict=_mean(matched),
        miss_rate=_missed(usable),
        reasons=dict(Counter(v.why.value for one in usable for v in one.verdicts).most_common()),
        examples=tuple(map(_example, _spread(chosen.kept, examples))),
    )


def _silent(chosen: Selection, usable: Sequence[Scored]) -> Share | None:
    if not usable:
        return None
    silent = sum(
        len(chosen.left_out.get(kind, ())) for kind in (NoSignal.ALL_RIGHT, NoSignal.ALL_WRONG)
    )
    rate = silent / len(usable)
    return Share(rate, *wilson(rate, len(usable)), len(usable))


def _missed(usable: Sequence[Scored]) -> Share | None:
    accepted = [one for one in usable if any(one.rewards)]
    if not accepted:
        return None
    right = sum(sum(one.rewards) for one in accepted)
    missed = sum(
        reward and not matched
        for one in accepted
        for reward, matched in zip(one.rewards, one.strict, strict=True)
    )
    rate = missed / right
    return Share(rate, *wilson(rate, len(accepted)), len(accepted))


def _histogram(usable: Sequence[Scored]) -> tuple[tuple[float, int], ...]:
    counts = Counter((sum(one.rewards), one.wanted) for one in usable)
    means = sorted({(right, k) for _, k in counts for right in range(k + 1)})
    return tuple((right / k, counts[right, k]) for right, k in means)


def _counted(usable: Sequence[Scored], kept: set[str], place: Any) -> tuple[Any, ...]:
    every = Counter(place(one) for one in usable)
    chosen = Counter(place(one) for one in usable if one.candidate.id in kept)
    return tuple((where, chosen[where], every[where]) for where in sorted(every))


def _fifth(one: Scored) -> int:
    origin = one.candidate.origin
    return min(FIFTHS - 1, FIFTHS * origin.turn // max(1, origin.turns)) + 1


def _spread(kept: Sequence[Scored], count: int) -> list[Scored]:
    """Some of the pivots, from the hardest to the easiest."""
    ranked = sorted(kept, key=lambda one: (one.mean, one.candidate.id))
    if count < 1 or not ranked:
        return []
    step = max(1, len(ranked) // count)
    return ranked[::step][:count]


def _example(one: Scored) -> Example:
    answers = list(zip(one.answers, one.verdicts, strict=True))
    right = [answer.text for answer, verdict in answers if verdict.accepted]
    other = [text for text in right if text != one.candidate.action]
    wrong = next((pair for pair in answers if not pair[1].accepted), None)
    origin = one.candidate.origin
    return Example(
        candidate=one.candidate.id,
        trace=origin.trace,
        turn=origin.turn,
        mean=one.mean,
        situation=one.candidate.messages[-1]["content"],
        demonstrated=one.candidate.action,
        accepted=next(iter(other or right), None),
        refused=None if wrong is None else wrong[0].text,
        why=None if wrong is None else f"{wrong[1].why} {wrong[1].detail}".strip(),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
