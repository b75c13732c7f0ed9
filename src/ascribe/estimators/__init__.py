"""The named estimators: a step table in, a credit out.

Defaults are the paper's form; presets are what public code computes; the ``repr`` of a recipe is
enough to reproduce a run.
"""

from dataclasses import fields
from typing import Any

from ascribe.estimators.base import Recipe
from ascribe.estimators.bipace import BiGPO, BiPACEDiff, BiPACEQ
from ascribe.estimators.ccpo import CCPO
from ascribe.estimators.episode import GRPO, RLOO, DrGRPO, ReinforcePP
from ascribe.estimators.gigpo import GiGPO
from ascribe.estimators.hgpo import HGPO
from ascribe.estimators.ibpo import IBPO
from ascribe.estimators.sbc import SBC

__all__ = [
    "CCPO",
    "GRPO",
    "HGPO",
    "IBPO",
    "RECIPES",
    "RLOO",
    "SBC",
    "BiGPO",
    "BiPACEDiff",
    "BiPACEQ",
    "DrGRPO",
    "GiGPO",
    "Recipe",
    "ReinforcePP",
    "recipe",
]

RECIPES: dict[str, type[Recipe]] = {
    kind.name: kind
    for kind in (
        *(GRPO, RLOO, DrGRPO, ReinforcePP, GiGPO, HGPO),
        *(BiGPO, BiPACEDiff, BiPACEQ, SBC, CCPO, IBPO),
    )
}
"""Every recipe by name."""


def recipe(name: str, *, preset: str | None = None, **parameters: Any) -> Recipe:
    """The recipe of that name, as a preset if one is named, with parameters changed.

    Raises:
        ValueError: for an unknown name, preset, parameter or choice, listing the known ones.
    """
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}; there are: {', '.join(RECIPES)}")
    kind = RECIPES[name]
    known = [parameter.name for parameter in fields(kind)]
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(f"{name} has no parameter {parameter!r}; it has: {', '.join(known)}")
    return kind(**parameters) if preset is None else kind.preset(preset, **parameters)
