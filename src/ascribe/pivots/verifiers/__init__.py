"""Verifiers: functional rewards by name, and how they are put together.

A spec is plain data that a config or a command line can hold: a name, ``{name: options}``, or
``{"any": [...]}``, ``{"all": [...]}``, ``{"first": [...]}`` and ``{"weighted": ...}`` of specs.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ascribe.pivots.verifiers.compose import all_of, any_of, first_of, weighted
from ascribe.pivots.verifiers.effect import effect
from ascribe.pivots.verifiers.judge import judge
from ascribe.pivots.verifiers.progress import progress
from ascribe.pivots.verifiers.shell import shell
from ascribe.pivots.verifiers.text import edit, exact, normalised, strict
from ascribe.pivots.verifiers.tools import schema, tool_call, tool_name
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why
from ascribe.steps.strict_json import canonical, loads

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
"""Every verifier by name: a function that takes its options and gives it."""

COMPOSERS: dict[str, Callable[[list[Verifier]], Verifier]] = {
    "any": any_of,
    "all": all_of,
    "first": first_of,
}
"""How several become one, by name; ``weighted`` besides."""

Spec = str | Mapping[str, Any]


def make_verifier(spec: Spec) -> Verifier:
    """The verifier that a spec describes.

    Raises:
        ValueError: if it describes none.
        MissingExtraError: if it needs a package that is not installed.
    """
    if isinstance(spec, str):
        return _named(spec, {})
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise ValueError("a verifier is a name, or an object with one key: {name: options}")
    ((name, given),) = spec.items()
    if name in COMPOSERS:
        if not isinstance(given, list | tuple):
            raise ValueError(f"{name} takes a list of verifiers")
        return COMPOSERS[name]([make_verifier(part) for part in given])
    if name == "weighted":
        return _weighted(given)
    if not isinstance(given, Mapping):
        raise ValueError(f"the options of {name} are an object")
    return _named(name, given)


def read_spec(text: str) -> Spec:
    """A spec as the command line gives it: a name, or JSON.

    Raises:
        ValueError: if it is neither.
    """
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        found: dict[str, Any] = loads(text)
    except ValueError as error:
        raise ValueError(f"the verifier is not JSON: {error}") from error
    return found


def spec_text(spec: Spec) -> str:
    """A spec as one text, the same for the same verifier."""
    return spec if isinstance(spec, str) else canonical(spec)


def _named(name: str, options: Mapping[str, Any]) -> Verifier:
    if name not in VERIFIERS:
        known = ", ".join([*VERIFIERS, *COMPOSERS, "weighted"])
        raise ValueError(f"there is no verifier {name[:60]!r}; there are: {known}")
    try:
        return VERIFIERS[name](**options)
    except TypeError as error:
        raise ValueError(f"the verifier {name} does not take these options: {error}") from error


def _weighted(given: Any) -> Verifier:
    if not isinstance(given, Mapping) or set(given) - {"parts", "threshold"}:
        raise ValueError("weighted takes parts, a list of [verifier, weight], and a threshold")
    parts = given.get("parts")
    if not isinstance(parts, list | tuple) or not all(map(_is_weighed, parts)):
        raise ValueError("the parts of weighted are pairs [verifier, weight]")
    made = [(make_verifier(part), float(weight)) for part, weight in parts]
    return weighted(made, given.get("threshold", 0.5))


def _is_weighed(part: Any) -> bool:
    return isinstance(part, list | tuple) and len(part) == 2 and isinstance(part[1], int | float)


__all__ = [
    "COMPOSERS",
    "VERIFIERS",
    "Spec",
    "Verdict",
    "Verifier",
    "Why",
    "all_of",
    "any_of",
    "first_of",
    "make_verifier",
    "read_spec",
    "spec_text",
    "strict",
    "weighted",
]
