"""``ascribe recipes``: the named estimators and their parameters."""

from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import Annotated

from rich.text import Text
from typer import Argument

from ascribe.cli import options, screen
from ascribe.cli.plain import tell
from ascribe.estimators import PAPERS, RECIPES, Recipe, as_written, recipe_class

DEFAULT = (
    "The default is sbc, for episodes of several steps that come through the same states (ascribe "
    "states proposes a key). Where states do not recur, take returns; for single steps, grpo. No "
    "learning run covers agents whose states rarely recur."
)
"""What the evidence recommends, and where it ends; see docs/howto/recipe.md."""


def recipes(
    name: Annotated[
        str | None,
        Argument(
            help="Name of a recipe to show in full, or module:Name for one of your own.",
            autocompletion=options.complete_recipe,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the recipes, or show the parameters and presets of one.

    Examples:
        ascribe recipes
        ascribe recipes gigpo
    """
    if name is not None and (paper := PAPERS.get(as_written(name))) and not as_json:
        for line in paper:
            screen.out.print(Text(f"{line[0].upper()}{line[1:]}."))
        return
    if name is not None:
        screen.find_own_code(name)
    selected = []
    for recipe_name in RECIPES if name is None else [name]:
        try:
            selected.append(recipe_class(recipe_name))
        except ValueError as error:
            if name is not None:
                screen.wrong_call(error)
            tell("warning", screen.safe(error, 400))
    if as_json:
        screen.print_json(
            [
                {
                    "name": kind.name,
                    "paper": kind.paper,
                    "summary": _summary(kind),
                    "parameters": _parameters(kind),
                    "presets": kind.presets,
                }
                for kind in selected
            ]
        )
    elif name is None:
        rows = [
            (Text(kind.name, style="bold"), _summary(kind), kind.paper, ", ".join(kind.presets))
            for kind in selected
        ]
        screen.out.print(screen.table_of(("recipe", "what it does", "paper", "presets"), rows))
        screen.out.print("ascribe recipes NAME shows one in full, or module:Name one of your own.")
        screen.out.print(Text(DEFAULT, style="dim"))
    else:
        _in_full(selected[0])


def _summary(kind: type[Recipe]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _parameters(kind: type[Recipe]) -> dict[str, object]:
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING}


def _in_full(kind: type[Recipe]) -> None:
    screen.out.print(Text(f"{kind.name} ({kind.paper})", style="bold"))
    screen.out.print(Text(cleandoc(kind.__doc__ or "").split("Attributes:")[0].strip()))
    sets = kind.presets.values()
    rows = [
        (name, screen.as_set(value), *(screen.as_set(s[name]) if name in s else "" for s in sets))
        for name, value in _parameters(kind).items()
    ]
    screen.out.print(screen.table_of(("parameter", "default", *kind.presets), rows))
