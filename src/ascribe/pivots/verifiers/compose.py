"""Verifiers made of verifiers. A part that does not apply to a turn takes no part in it."""

from collections.abc import Sequence

from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, not_applicable


def any_of(parts: Sequence[Verifier]) -> Verifier:
    """Accepted by one at least. Parts after that are not asked: put the cheap ones first."""
    _some(parts)

    def verify(candidate: Candidate, answer: str) -> Verdict:
        last = _NONE
        for part in parts:
            found = part(candidate, answer)
            if found.accepted:
                return found
            last = found if found.accepted is not None or last.accepted is None else last
        return last

    return verify


def all_of(parts: Sequence[Verifier]) -> Verifier:
    """Accepted by every one that applies. Parts after the first that refuses are not asked."""
    _some(parts)

    def verify(candidate: Candidate, answer: str) -> Verdict:
        last = _NONE
        for part in parts:
            found = part(candidate, answer)
            if found.accepted is False:
                return found
            last = found if found.accepted is not None or last.accepted is None else last
        return last

    return verify


def first_of(parts: Sequence[Verifier]) -> Verifier:
    """What the first part says that applies to the turn: calls by one, sentences by another."""
    _some(parts)

    def verify(candidate: Candidate, answer: str) -> Verdict:
        found = _NONE
        for part in parts:
            found = part(candidate, answer)
            if found.accepted is not None:
                break
        return found

    return verify


def weighted(parts: Sequence[tuple[Verifier, float]], threshold: float = 0.5) -> Verifier:
    """Accepted if Σ w x / Σ w ≥ threshold, over the parts that apply.

    x is the part's share where it gives one (``edit``: the similarity), else its reward.

    Args:
        parts: verifiers and their weights.
        threshold: the least weighted mean that is accepted.
    """
    _some(parts)
    if any(weight <= 0 for _, weight in parts):
        raise ValueError("weights must be more than 0")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], not {threshold}")

    def verify(candidate: Candidate, answer: str) -> Verdict:
        found = [(part(candidate, answer), weight) for part, weight in parts]
        counted = [(one, weight) for one, weight in found if one.accepted is not None]
        if not counted:
            return found[-1][0]
        total = sum(weight for _, weight in counted)
        share = sum(_share(one) * weight for one, weight in counted) / total
        # One rounding error below the threshold is not below it.
        enough = share >= threshold - 1e-12
        why = Why.ENOUGH if enough else Why.TOO_LITTLE
        return Verdict(enough, why, f"{share:.3f}", share)

    return verify


def _share(found: Verdict) -> float:
    return found.reward if found.share is None else found.share


def _some(parts: Sequence[object]) -> None:
    if not parts:
        raise ValueError("a verifier made of others needs at least one")


_NONE = not_applicable("no part applies")
