"""Verifiers: functional rewards by name, and how to combine them.

A spec is plain data that a config or a command line can hold: a name, ``{name: options}``, or
``{"any": [...]}``, ``{"all": [...]}``, ``{"first": [...]}`` and ``{"weighted": ...}`` of specs. A
combination skips the verifiers that do not apply to a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.effect import effect, progress
from ascribe.pivots.verifiers.judge import judge
from ascribe.pivots.verifiers.shell import shell
from ascribe.pivots.verifiers.text import edit, exact, normalised
from ascribe.pivots.verifiers.tools import schema, tool_call, tool_name
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, not_applicable
from ascribe.steps.strict_json import loads

Spec = str | Mapping[str, Any]

VERIFIERS: dict[str, Callable[..., Verifier]] = {
    "exact": exact,
    "normalised": normalised,
    "edit": edit,
    "tool_name": tool_name,
    "tool_call": tool_call,
    "schema": schema,
    "shell": shell,
    "effect": effect,
    "progress": progress,
    "judge": judge,
}
"""Every verifier by name: a function from its options to the verifier."""


HEAVIEST = 1_000_000
"""The largest weight, so that sums of weights stay finite."""

COMPOSERS = {"any": (True,), "all": (False,), "first": (True, False)}
"""How several verifiers become one, by name, and the verdicts after which no further one is called.

``any``: accepted by at least one, so put the cheap ones first; ``all``: by every one that applies;
``first``: the verdict of the first that applies. There is also ``weighted``.
"""


def combine(parts: Sequence[Verifier], decisive: Sequence[bool]) -> Verifier:
    """The first verdict that is decisive; without one the last that applies."""
    if not parts:
        raise ValueError("a combination needs at least one verifier")

    def verify(candidate: Candidate, response: str) -> Verdict:
        last = not_applicable("no part applies")
        for part in parts:
            verdict = part(candidate, response)
            if verdict.accepted in decisive:
                return verdict
            if verdict.accepted is not None or last.accepted is None:
                last = verdict
        return last

    return verify


def weighted(parts: Sequence[tuple[Verifier | Spec, float]], threshold: float = 0.5) -> Verifier:
    """Accepted if Σ w x / Σ w ≥ threshold, over the parts that apply.

    x is the part's share where it gives one (``edit``: the similarity), else its reward.

    Args:
        parts: pairs of a verifier, or its spec, and its weight.
        threshold: the least weighted mean that is accepted.
    """
    if not parts:
        raise ValueError("a combination needs at least one verifier")
    if not isinstance(parts, list | tuple) or not all(
        isinstance(part, list | tuple) and len(part) == 2 and isinstance(part[1], int | float)
        for part in parts
    ):
        raise ValueError("the parts of weighted are pairs [verifier, weight]")
    if not all(0 < weight <= HEAVIEST for _, weight in parts):
        raise ValueError(f"weights must be more than 0, and at most {HEAVIEST:,}")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], not {threshold}")

    verifiers = [(one if callable(one) else make_verifier(one), weight) for one, weight in parts]

    def verify(candidate: Candidate, response: str) -> Verdict:
        verdicts = [(part(candidate, response), weight) for part, weight in verifiers]
        counted = [(one, weight) for one, weight in verdicts if one.accepted is not None]
        if not counted:
            return verdicts[-1][0]
        total = sum(weight for _, weight in counted)
        shares = [(one.reward if one.share is None else one.share) * w for one, w in counted]
        share = sum(shares) / total
        # One rounding error below the threshold is not below it.
        enough = share >= threshold - 1e-12
        return Verdict(enough, "enough" if enough else "too_little", f"{share:.3f}", share)

    return verify


def make_verifier(spec: Spec) -> Verifier:
    """The verifier that a spec describes.

    Raises:
        ValueError: if it describes none.
        MissingExtraError: if it needs a package that is not installed.
    """
    if isinstance(spec, str):
        spec = {spec: {}}
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise ValueError("a verifier is a name, or an object with one key: {name: options}")
    ((name, options),) = spec.items()
    if name in COMPOSERS:
        if not isinstance(options, list | tuple):
            raise ValueError(f"{name} takes a list of verifiers")
        return combine([make_verifier(part) for part in options], COMPOSERS[name])
    makers = VERIFIERS | {"weighted": weighted}
    if name not in makers:
        known = ", ".join([*VERIFIERS, *COMPOSERS, "weighted"])
        raise ValueError(f"there is no verifier {name[:60]!r}; there are: {known}")
    if not isinstance(options, Mapping):
        raise ValueError(f"the options of {name} are an object")
    try:
        return makers[name](**options)
    except TypeError as error:
        raise ValueError(f"the verifier {name} does not take these options: {error}") from error


def read_spec(text: str) -> Spec:
    """A spec as the command line gives it: a name, or JSON.

    Raises:
        ValueError: if it is neither.
    """
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        spec: dict[str, Any] = loads(text)
    except ValueError as error:
        raise ValueError(f"the verifier is not JSON: {error}") from error
    return spec
