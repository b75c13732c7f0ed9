"""The named estimators: a step table in, a credit out. One file for each method.

Defaults are the paper's form; presets are what public code computes; the ``repr`` of a recipe is
enough to reproduce a run. Other packages add recipes by the entry point group ``ascribe.recipes``
(see ``docs/estimators/own.md``). A recipe's module is imported when the recipe is first used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ascribe.steps.hints import nearest, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ascribe.estimators.base import Recipe as Recipe
    from ascribe.estimators.bipace import BiGPO as BiGPO
    from ascribe.estimators.bipace import BiPACEDiff as BiPACEDiff
    from ascribe.estimators.bipace import BiPACEQ as BiPACEQ
    from ascribe.estimators.ccpo import CCPO as CCPO
    from ascribe.estimators.dr_grpo import DrGRPO as DrGRPO
    from ascribe.estimators.gigpo import GiGPO as GiGPO
    from ascribe.estimators.grpo import GRPO as GRPO
    from ascribe.estimators.hgpo import HGPO as HGPO
    from ascribe.estimators.ibpo import IBPO as IBPO
    from ascribe.estimators.reinforce_pp import ReinforcePP as ReinforcePP
    from ascribe.estimators.rloo import RLOO as RLOO
    from ascribe.estimators.sbc import SBC as SBC

PLUGINS = "ascribe.recipes"
"""The entry point group of recipes in other packages."""

BUILT_IN = {
    "grpo": ("grpo", "GRPO"),
    "rloo": ("rloo", "RLOO"),
    "dr_grpo": ("dr_grpo", "DrGRPO"),
    "reinforce_pp": ("reinforce_pp", "ReinforcePP"),
    "gigpo": ("gigpo", "GiGPO"),
    "hgpo": ("hgpo", "HGPO"),
    "bigpo": ("bipace", "BiGPO"),
    "bipace_diff": ("bipace", "BiPACEDiff"),
    "bipace_q": ("bipace", "BiPACEQ"),
    "sbc": ("sbc", "SBC"),
    "ccpo": ("ccpo", "CCPO"),
    "ibpo": ("ibpo", "IBPO"),
}
"""Module and class of each recipe of this package."""

_CLASSES = {kind: module for module, kind in BUILT_IN.values()} | {"Recipe": "base"}


class RecipePluginError(ValueError):
    """A recipe of another package that cannot be used; the message names the entry point."""


class _Recipes(Mapping[str, "type[Recipe]"]):
    """Every recipe by name: those of this package, then those of others, by name."""

    def __getitem__(self, name: str) -> "type[Recipe]":
        if name in BUILT_IN:
            module, kind = BUILT_IN[name]
            cls: type[Recipe] = getattr(import_module(f"ascribe.estimators.{module}"), kind)
            return cls
        return _load_plugin(_plugins()[name])

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from sorted(_plugins())

    def __len__(self) -> int:
        return len(BUILT_IN) + len(_plugins())

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in _plugins()


RECIPES: Mapping[str, "type[Recipe]"] = _Recipes()
"""Every recipe by name."""


def recipe(name: str, /, *, preset: str | None = None, **parameters: Any) -> "Recipe":
    """The recipe of that name, as a preset if one is named, with parameters changed.

    Raises:
        RecipePluginError: if the recipe is another package's and cannot be loaded.
        ValueError: for an unknown name, preset, parameter or choice, listing the known ones.
    """
    if name not in RECIPES:
        raise ValueError(unknown("recipe", name, RECIPES))
    kind = RECIPES[name]
    names = [parameter.name for parameter in fields(kind)]
    for parameter in parameters:
        if parameter not in names:
            guess, listed = nearest(parameter, names), ", ".join(names)
            raise ValueError(f"{name} has no parameter {parameter!r}; {guess}it has: {listed}")
    return kind(**parameters) if preset is None else kind.preset(preset, **parameters)


def _plugins() -> "dict[str, EntryPoint]":
    """The entry points of other packages; one with the name of a recipe of ours is ignored."""
    from importlib.metadata import entry_points  # a tenth of the time of "import ascribe"

    return {p.name: p for p in entry_points(group=PLUGINS) if p.name not in BUILT_IN}


def _load_plugin(point: "EntryPoint") -> "type[Recipe]":
    from ascribe.estimators.base import Recipe

    package = f" of {point.dist.name}" if point.dist is not None else ""
    source = f"the entry point {point.name} = {point.value}{package}"
    try:
        kind = point.load()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise RecipePluginError(
            f"{source} cannot be loaded ({problem}); repair or uninstall that package"
        ) from error
    if not isinstance(kind, type) or not issubclass(kind, Recipe):
        raise RecipePluginError(f"{source} is no subclass of ascribe.Recipe; it is {kind!r}")
    if getattr(kind, "name", None) != point.name:
        called = getattr(kind, "name", None)
        raise RecipePluginError(f"{source} has the name {called!r}; give both the same name")
    return kind


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"ascribe.estimators.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
