"""Verifiers of texts: the same string, the same words, nearly the same words."""

from importlib import import_module
from unicodedata import normalize

from ascribe.steps.errors import InputError
from ascribe_lab.envs.protocol import MissingExtraError
from ascribe_lab.pivots.candidates import Candidate
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier, act

LONGEST = 20_000
"""Characters up to which edits are counted, which takes quadratic time."""


def strict(candidate: Candidate, response: str) -> Verdict:
    """The very string: r_strict(s, a) = 1[a = a*(s)] (Eq. 2)."""
    same = response == candidate.action
    return Verdict(same, "same_text" if same else "other_text")


def exact() -> Verifier:
    """The verifier ``strict``."""
    return strict


def normalised() -> Verifier:
    """The same action in the same words: thoughts, case, white space and Unicode forms aside."""

    def verify(candidate: Candidate, response: str) -> Verdict:
        same = _plain(response) == _plain(candidate.action)
        return Verdict(same, "same_text" if same else "other_text")

    return verify


def edit(threshold: float = 0.9) -> Verifier:
    """The same action in nearly the same words.

    The similarity is 1 - d / max(|a|, |a*|), where d is the number of characters that are inserted,
    deleted or replaced. Texts of more than 20,000 characters must be the same.

    Args:
        threshold: the least similarity that is accepted.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must lie in (0, 1], not {threshold}")
    try:
        similarity = import_module("rapidfuzz.distance").Levenshtein.normalized_similarity
    except ImportError as error:
        raise MissingExtraError("rapidfuzz", "pivots") from error

    def verify(candidate: Candidate, response: str) -> Verdict:
        text, demonstrated = _plain(response), _plain(candidate.action)
        if max(len(text), len(demonstrated)) > LONGEST:
            share = float(text == demonstrated)
        else:
            share = float(similarity(text, demonstrated))
        close = share >= threshold
        return Verdict(close, "close" if close else "far", f"{share:.3f}", share)

    return verify


def _plain(response: str) -> str:
    return " ".join(normalize("NFKC", act(response)).casefold().split())
