"""Verifiers of texts: the same string, the same words, nearly the same words."""

from importlib import import_module
from unicodedata import normalize

from ascribe.envs.protocol import MissingExtraError
from ascribe.pivots.calls import act
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, verdict

LONGEST = 20_000
"""Characters up to which texts are compared letter by letter; that takes quadratic time."""


def strict(candidate: Candidate, answer: str) -> Verdict:
    """The very string: r_strict(s, a) = 1[a = a*(s)] (Eq. 2)."""
    return verdict(answer == candidate.action, Why.SAME_TEXT, Why.OTHER_TEXT)


def exact() -> Verifier:
    """The verifier ``strict``."""
    return strict


def normalised() -> Verifier:
    """What is done, in the same words: thoughts, case, white space and Unicode forms aside."""

    def verify(candidate: Candidate, answer: str) -> Verdict:
        same = _plain(act(answer)) == _plain(act(candidate.action))
        return verdict(same, Why.SAME_TEXT, Why.OTHER_TEXT)

    return verify


def edit(threshold: float = 0.9) -> Verifier:
    """What is done, in nearly the same words.

    The similarity is 1 - d / max(|a|, |a*|), where d is the number of characters that are put in,
    taken out or exchanged. Texts of more than 20,000 characters must be the same.

    Args:
        threshold: the least similarity that is accepted.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], not {threshold}")
    try:
        similarity = import_module("rapidfuzz.distance").Levenshtein.normalized_similarity
    except ImportError as error:
        raise MissingExtraError("rapidfuzz", "pivots") from error

    def verify(candidate: Candidate, answer: str) -> Verdict:
        said, wanted = _plain(act(answer)), _plain(act(candidate.action))
        if max(len(said), len(wanted)) > LONGEST:
            share = float(said == wanted)
        else:
            share = float(similarity(said, wanted))
        close = share >= threshold
        return Verdict(close, Why.CLOSE if close else Why.FAR, f"{share:.3f}", share)

    return verify


def _plain(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().split())
