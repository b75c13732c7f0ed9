"""The named estimators: a step table in, a credit out. One file for each method.

Defaults are the paper's form; presets are what public code computes; the ``repr`` of a recipe is
enough to reproduce a run. Other packages add recipes by the entry point group ``ascribe.recipes``
(see ``docs/estimators/own.md``). A recipe's module is imported when the recipe is first used.

Functions of this package take and return arrays with one entry for each row, in canonical order
(``ascribe.steps.check.arrange``), unless they say otherwise. Labels of tasks, trajectories, states
and actions are numbered from 0; a row with the label -1 takes no part. ``count`` is the number of
labels, ``returns`` the discounted return from each row on, ``gamma`` a discount, and ``norm`` what
a value is compared with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ascribe.steps.errors import InputError
from ascribe.steps.hints import among, unknown
from ascribe.steps.plugins import (
    RECIPE_GROUP,
    PluginError,
    entry_points,
    load_path,
    load_point,
    source,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ascribe.estimators.base import Recipe as Recipe

BUILT_IN = {
    "grpo": ("grpo", "GRPO"),
    "rloo": ("rloo", "RLOO"),
    "dr_grpo": ("dr_grpo", "DrGRPO"),
    "reinforce_pp": ("reinforce_pp", "ReinforcePP"),
    "returns": ("returns", "Returns"),
    "gae": ("gae", "GAE"),
    "progress": ("progress", "Progress"),
    "judged": ("judged", "Judged"),
    "gigpo": ("gigpo", "GiGPO"),
    "hgpo": ("hgpo", "HGPO"),
    "g2po": ("g2po", "G2PO"),
    "graphgpo": ("graphgpo", "GraphGPO"),
    "bigpo": ("bipace", "BiGPO"),
    "bipace_diff": ("bipace", "BiPACEDiff"),
    "bipace_q": ("bipace", "BiPACEQ"),
    "sbc": ("sbc", "SBC"),
    "ccpo": ("ccpo", "CCPO"),
    "ibpo": ("ibpo", "IBPO"),
    "entropy": ("entropy", "Entropy"),
    "events": ("events", "EventCredit"),
}
"""Module and class of each recipe of this package."""

PAPERS = {
    "bipace": (
        "BiPACE is three recipes: bigpo changes which steps are compared, bipace_diff and bipace_q "
        "also what they are compared with",
        "take bipace_q, the form of the paper's tables",
    ),
    "pivotrl": (
        "PivotRL chooses turns to train on; its recipe is grpo",
        "to see how turns are chosen: `ascribe pivots --help`; docs/pivots.md says why",
    ),
}
PAPERS["pivots"] = PAPERS["pivotrl"]  # what its command is called
"""Papers that are not one recipe: what they are, and what to do."""

DEFAULT = "sbc"
"""The recipe of every command, config and trainer that names none."""

_CLASSES = {kind: module for module, kind in BUILT_IN.values()} | {"Recipe": "base"}


class _Recipes(Mapping[str, "type[Recipe]"]):
    """Every recipe by name, those of this package before those of others.

    Example:
        >>> list(ascribe.RECIPES)[:3]
        ['grpo', 'rloo', 'dr_grpo']
        >>> ascribe.RECIPES["sbc"]
        <class 'ascribe.estimators.sbc.SBC'>
    """

    def __getitem__(self, name: str) -> "type[Recipe]":
        if name in BUILT_IN:
            module, own = BUILT_IN[name]
            cls: type[Recipe] = getattr(import_module(f"ascribe.estimators.{module}"), own)
            return cls
        point = _plugins()[name]
        kind = _checked(load_point(point), source(point))
        if kind.name != name:
            named = f"{source(point)} has the name {kind.name!r}"
            raise PluginError(named, hint="give both the same name")
        return kind

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from _plugins()

    def __len__(self) -> int:
        return len(BUILT_IN) + len(_plugins())

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in _plugins()


RECIPES: Mapping[str, "type[Recipe]"] = _Recipes()
"""Every recipe by name."""


def recipe(name: str, /, *, preset: str | None = None, **parameters: Any) -> "Recipe":
    """The recipe of that name, as a preset if one is named, with parameters changed.

    Args:
        name: a key of ``RECIPES``, or your own as ``package.module:Name``.
        preset: a key of the recipe's ``presets``.
        parameters: the recipe's fields.

    Raises:
        PluginError: if the recipe is not Ascribe's own and cannot be loaded.
        ValueError: for an unknown name, preset, parameter or choice, listing the known ones.

    Example:
        >>> ascribe.recipe("gigpo", gamma=0.9)
        GiGPO(gamma=0.9)
        >>> ascribe.recipe("gigpo", preset="trinity").gamma
        1.0
    """
    kind = recipe_class(name)
    names = [parameter.name for parameter in fields(kind)]
    for parameter in parameters:
        if parameter not in names:
            hint = among(parameter, names)
            raise InputError(f"{name} has no parameter {parameter!r}", hint=hint)
    return kind(**parameters) if preset is None else kind.preset(preset, **parameters)


def as_written(name: str) -> str:
    """The name of a recipe from that of a method in a paper: ``BiPACE-Q`` is ``bipace_q``."""
    return name.lower().replace("-", "_")


def as_recipe(method: "str | Recipe") -> "Recipe":
    """The recipe, or the one of that name."""
    return recipe(method) if isinstance(method, str) else method


def recipe_class(name: str) -> "type[Recipe]":
    """The class of a recipe; imports its module.

    Raises:
        PluginError: if it is not Ascribe's own and cannot be loaded.
        ValueError: for an unknown name.
    """
    if ":" in name:
        return _checked(load_path(name), name)
    if (plain := as_written(name)) in BUILT_IN:  # as the papers write their names
        return RECIPES[plain]
    if plain in PAPERS:
        what, hint = PAPERS[plain]
        raise InputError(what, hint=hint)
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES, "name your own as module:Name")
    return RECIPES[name]


def _plugins() -> "dict[str, EntryPoint]":
    return entry_points(RECIPE_GROUP, BUILT_IN)


def _checked(kind: Any, origin: str) -> "type[Recipe]":
    from ascribe.estimators.base import Recipe

    if not isinstance(kind, type) or not issubclass(kind, Recipe):
        raise PluginError(f"{origin} is no subclass of ascribe.Recipe; it is {kind!r}")
    if missing := [one for one in ("name", "paper") if not hasattr(kind, one)]:
        raise PluginError(
            f"{origin} has no {' and no '.join(missing)}", hint="recipes have both as text"
        )
    return kind


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"ascribe.estimators.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
