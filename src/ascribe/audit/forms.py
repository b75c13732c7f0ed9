"""Which recipes an audit scores, and in which form."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from ascribe.audit.run import Scored
from ascribe.estimators import RECIPES
from ascribe.estimators.sbc import SBC, Ladder

MEAN = {"normalise": "mean"}

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "gigpo_mean": ("gigpo", MEAN),
    "hgpo_mean": ("hgpo", MEAN),
    "bigpo_mean": ("bigpo", MEAN),
    "bipace_diff_mean": ("bipace_diff", MEAN),
    "bipace_q_mean": ("bipace_q", MEAN),
}
"""The mean-centred form of recipes that divide by a standard deviation by default.

Dividing gives every task and every state the same spread, whatever its returns were. The true
advantage has no such scale, so a recipe is scored in both forms, and a claim must hold against the
better of the two.
"""

ABLATIONS: dict[str, dict[str, float]] = {
    "bootstrap": {"sweeps": 0},
    "text": {"text": math.inf},
    "outcome": {"outcome": math.inf},
    "own": {"own": math.inf},
    "shrinkage": {"state": 0.0, "action": 0.0},
}
"""``sbc-NAME`` is ``sbc`` without this part."""


@dataclass(frozen=True, kw_only=True)
class Ablated(SBC):
    """``sbc`` without one of its parts, to see what the part is worth."""

    without: str = "own"

    def _validate(self, name: str, hint: Any) -> None:
        if name != "without":
            super()._validate(name, hint)

    def _ladder(self) -> Ladder:
        return replace(super()._ladder(), **ABLATIONS[self.without])  # type: ignore[arg-type]


SBC_FORMS: dict[str, dict[str, Any]] = {
    "sbc": {},
    "sbc_exact": {"states": "exact"},
    "sbc_keep": {"on_collapse": "keep"},
}
"""``sbc`` on clusters, on exact texts, and on clusters even if all states fall into one."""

QUICK_FORMS = ("grpo", "gigpo", "gigpo_mean", "bipace_q", "bipace_q_mean", "sbc")
"""What the quick audit scores."""

FULL_FORMS = (
    "grpo",
    "rloo",
    "gigpo",
    "gigpo_mean",
    "hgpo",
    "bigpo_mean",
    "bipace_diff_mean",
    "bipace_q",
    "bipace_q_mean",
    "sbc_exact",
    "sbc",
)
"""What the full audit scores."""


def named(name: str) -> Scored:
    """The recipe of that name: a form, a recipe's default, or ``module:Name`` of your own.

    Your own may be a class of recipes, which is called without arguments, or anything that takes a
    ``StepTable`` and answers with a ``Credit``.

    Raises:
        ValueError: if there is none.
    """
    if ":" in name:
        return _own(name)
    if name in FORMS:
        kind, changes = FORMS[name]
        return RECIPES[kind](**changes)
    if name.removeprefix("sbc-") in ABLATIONS:
        return Ablated(without=name.removeprefix("sbc-"))
    if name in SBC_FORMS:
        return SBC(**SBC_FORMS[name])
    if name in RECIPES:
        return RECIPES[name]()
    known = ", ".join(dict.fromkeys((*RECIPES, *FORMS, *SBC_FORMS)))
    raise ValueError(f"no recipe {name!r}; there are: {known}; or module:Name of your own")


def _own(name: str) -> Scored:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import {name}: {error}") from None
    made: Scored = found() if isinstance(found, type) else found
    if not callable(made):
        raise ValueError(f"{name} cannot be called on a table")
    return made
