"""Environments: the protocol, the environments of the papers, and adapters to others'."""

from importlib import import_module
from typing import Any

from ascribe.envs.base import Outcome, Start, TextEnvironment
from ascribe.envs.branch import Moment, NotReproducibleError, Replayed, branching
from ascribe.envs.protocol import (
    INFO_KEYS,
    Branching,
    Environment,
    EpisodeOverError,
    Info,
    MissingExtraError,
)

ENVIRONMENTS = {
    "textcraft": "ascribe.envs.textcraft:TextCraft",
    "alfworld": "ascribe.envs.alfworld:AlfWorld",
    "webshop": "ascribe.envs.webshop:WebShop",
    "sokoban": "ascribe.envs.sokoban:Sokoban",
    "ezpoints": "ascribe.envs.ezpoints:EZPoints",
    "search_qa": "ascribe.envs.search_qa:SearchQA",
    "maths": "ascribe.envs.maths:Maths",
    "pivots": "ascribe.pivots.environment:Pivots",
    "team": "ascribe.envs.team:Team",
}
"""Every environment by name, and where it is."""


def make(name: str, **options: Any) -> Environment:
    """An environment by name, or a user's own by ``package.module:factory``.

    Args:
        name: a key of ``ENVIRONMENTS``, or a path that leads to a class or function.
        options: what the environment takes when it is made.

    Raises:
        ValueError: if there is no such environment.
        MissingExtraError: if it needs a package that is not installed.
    """
    path = ENVIRONMENTS.get(name, name)
    module, colon, factory = path.partition(":")
    if not colon:
        known = ", ".join(ENVIRONMENTS)
        raise ValueError(
            f"there is no environment {name!r}; there are: {known}; "
            "name your own as package.module:factory"
        )
    environment: Environment = getattr(import_module(module), factory)(**options)
    return environment


__all__ = [
    "ENVIRONMENTS",
    "INFO_KEYS",
    "Branching",
    "Environment",
    "EpisodeOverError",
    "Info",
    "MissingExtraError",
    "Moment",
    "NotReproducibleError",
    "Outcome",
    "Replayed",
    "Start",
    "TextEnvironment",
    "branching",
    "make",
]
