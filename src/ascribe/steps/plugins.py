"""Code of others by name: entry points of installed packages, and ``module:Name``."""

import re
from collections.abc import Container
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ascribe.steps.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RECIPE_GROUP = "ascribe.recipes"
"""The entry point group of recipes in other packages."""

PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class PluginError(InputError):
    """Code of somebody else's that cannot be used; the message names it."""


def is_path(name: str) -> bool:
    """Whether the name has the form ``package.module:Name``."""
    return PATH.fullmatch(name) is not None


def load_path(name: str) -> Any:
    """What ``package.module:Name`` names; imports the module.

    Raises:
        PluginError: if it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not is_path(name):
        raise PluginError(f"{name!r} is not of the form package.module:Name")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise PluginError(
            f"cannot import {name} ({problem})",
            hint="name a module of the current folder or an installed package",
        ) from error


def entry_points(group: str, taken: Container[str]) -> "dict[str, EntryPoint]":
    """The entry points of a group by name; those with a name of Ascribe's own are ignored."""
    from importlib import metadata  # a tenth of the time of "import ascribe"

    points = metadata.entry_points(group=group)
    return {p.name: p for p in sorted(points) if p.name not in taken}


def source(point: "EntryPoint") -> str:
    """An entry point and its package, for messages."""
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"the entry point {point.name} = {point.value}{package}"


def load_point(point: "EntryPoint") -> Any:
    """What an entry point names.

    Raises:
        PluginError: if it cannot be imported.
    """
    try:
        return point.load()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise PluginError(
            f"{source(point)} cannot be loaded ({problem})", hint="repair or uninstall that package"
        ) from error
