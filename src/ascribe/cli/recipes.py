"""``ascribe recipes``: the named estimators and their parameters."""

from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Argument

from ascribe.cli import options, screen
from ascribe.cli.plain import tell
from ascribe.estimators import RECIPES, Recipe, recipe_class

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
        table = Table()
        for column in ("recipe", "what it does", "paper", "presets"):
            table.add_column(column, overflow="fold")
        for kind in selected:
            presets = ", ".join(kind.presets)
            table.add_row(Text(kind.name, style="bold"), Text(_summary(kind)), kind.paper, presets)
        screen.out.print(table)
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
    table = Table()
    for column in ("parameter", "default", *kind.presets):
        table.add_column(column)
    for parameter, default in _parameters(kind).items():
        presets = (
            screen.as_set(preset[parameter]) if parameter in preset else ""
            for preset in kind.presets.values()
        )
        table.add_row(parameter, *map(Text, (screen.as_set(default), *presets)))
    screen.out.print(table)
