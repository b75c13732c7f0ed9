"""Verifiers: functional rewards by name, and how to combine them.

A spec is plain data that a config or a command line can hold: a name, ``{name: options}``, or
``{"any": [...]}``, ``{"all": [...]}`` and ``{"first": [...]}`` of specs. A combination skips the
verifiers that do not apply to a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ascribe.steps.errors import InputError
from ascribe.steps.strict_json import loads
from ascribe_lab.pivots.candidates import Candidate
from ascribe_lab.pivots.verifiers.effect import effect, progress
from ascribe_lab.pivots.verifiers.judge import judge
from ascribe_lab.pivots.verifiers.shell import shell
from ascribe_lab.pivots.verifiers.text import edit, exact, normalised
from ascribe_lab.pivots.verifiers.tools import tool_call, tool_name
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier, not_applicable

Spec = str | Mapping[str, Any]

VERIFIERS: dict[str, Callable[..., Verifier]] = {
    "exact": exact,
    "normalised": normalised,
    "edit": edit,
    "tool_name": tool_name,
    "tool_call": tool_call,
    "shell": shell,
    "effect": effect,
    "progress": progress,
    "judge": judge,
}
"""Every verifier by name: a function from its options to the verifier."""


COMPOSERS = {"any": (True,), "all": (False,), "first": (True, False)}
"""How several verifiers become one, by name, and the verdicts after which no further one is called.

``any``: accepted by at least one, so put the cheap ones first; ``all``: by every one that applies;
``first``: the verdict of the first that applies.
"""


def combine(parts: Sequence[Verifier], decisive: Sequence[bool]) -> Verifier:
    """The first verdict that is decisive; without one the last that applies."""
    if not parts:
        raise InputError("a combination needs at least one verifier")

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


def make_verifier(spec: Spec) -> Verifier:
    """The verifier that a spec describes.

    Raises:
        ValueError: if it describes none.
        MissingExtraError: if it needs a package that is not installed.
    """
    if isinstance(spec, str):
        spec = {spec: {}}
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise InputError("a verifier is a name, or an object with one key: {name: options}")
    ((name, options),) = spec.items()
    if name in COMPOSERS:
        if not isinstance(options, list | tuple):
            raise InputError(f"{name} takes a list of verifiers")
        return combine([make_verifier(part) for part in options], COMPOSERS[name])
    if name not in VERIFIERS:
        known = ", ".join([*VERIFIERS, *COMPOSERS])
        raise InputError(f"there is no verifier {name[:60]!r}", hint=f"there are: {known}")
    if not isinstance(options, Mapping):
        raise InputError(f"the options of {name} are an object")
    try:
        return VERIFIERS[name](**options)
    except TypeError as error:
        raise InputError(f"the verifier {name} does not take these options: {error}") from error


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
        raise InputError(f"the verifier is not JSON: {error}") from error
    return spec
