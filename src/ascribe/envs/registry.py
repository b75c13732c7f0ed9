"""Environments and adapters by name: making one, what it needs, and whether that is installed.

An environment or adapter that needs packages has an extra of its own name.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires
from inspect import signature
from typing import Any

from ascribe.envs.protocol import Environment
from ascribe.steps.hints import DISTRIBUTION

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

NEED_FILE = ("maths", "pivots", "team")
"""Environments that play a file of the user's; all others can be made without options."""

ADAPTERS = {
    "gymnasium": "ascribe.envs.adapters.gymnasium:GymnasiumEnvironment",
    "textarena": "ascribe.envs.adapters.textarena:TextArenaEnvironment",
    "openenv": "ascribe.envs.adapters.openenv:OpenEnvEnvironment",
    "agentgym": "ascribe.envs.adapters.agentgym:AgentGymEnvironment",
    "verifiers": "ascribe.envs.adapters.verifiers:VerifiersEnvironment",
}
"""Every adapter to another environment convention by name, and where it is."""

UNKNOWN = (
    "there is no environment {name!r}; there are: {names}; name your own as package.module:factory"
)
REQUIREMENT = re.compile(r"^([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")


def make(name: str, /, **options: Any) -> Environment:
    """An environment by name, or a user's own by ``package.module:factory``.

    Args:
        name: a key of ``ENVIRONMENTS``, or a path that leads to a class or function.
        options: arguments of the environment.

    Raises:
        ValueError: if there is no such environment.
        MissingExtraError: if it needs a package that is not installed.
    """
    environment: Environment = _factory(name)(**options)
    return environment


def check_call(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a name or options that cannot be right, without making an environment.

    A user's own environment is not imported, so its options are checked when it is made.

    Raises:
        ValueError: if there is no such environment, or it does not take these options.
        MissingExtraError: if one of Ascribe's own needs a package that is not installed.
    """
    if name in ENVIRONMENTS:
        try:
            signature(_factory(name)).bind(**options)
        except TypeError as error:
            takes = ", ".join(signature(_factory(name)).parameters)
            raise ValueError(f"{name}: {error}; it takes: {takes}") from None
    elif not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
        raise ValueError(UNKNOWN.format(name=name, names=", ".join(ENVIRONMENTS)))


def check_file_options(name: Any, options: Any) -> None:
    """Raise a ValueError unless a data file may have this environment made with these options.

    A file must not decide which code runs, which files are read or which servers are called. So it
    may name Ascribe's own environments only, and set only the options that they declare.
    """
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise ValueError(f"it names an environment that is not Ascribe's own: {ascii(name)[:60]}")
    allowed: frozenset[str] = getattr(_factory(name), "file_options", frozenset())
    if not isinstance(options, dict) or not allowed.issuperset(options):
        listed = ", ".join(sorted(allowed)) or "none"
        raise ValueError(
            f"it may set these options of {name}: {listed}; not {ascii(options)[:200]}"
        )


def _factory(name: str) -> Any:
    module, colon, factory = ENVIRONMENTS.get(name, name).partition(":")
    if not colon:
        raise ValueError(UNKNOWN.format(name=name, names=", ".join(ENVIRONMENTS)))
    return getattr(import_module(module), factory)


@dataclass(frozen=True)
class Entry:
    """One environment or adapter."""

    name: str
    kind: str
    """``environment`` or ``adapter``."""
    path: str
    extra: str | None
    """What to install: ``pip install 'ascribe-rl[extra]'``; None if Ascribe alone is enough."""
    missing: tuple[str, ...]
    """Packages of the extra that are not installed."""
    installed: bool
    """Whether it can be used now."""


def catalogue() -> list[Entry]:
    """Every environment, then every adapter."""
    packages: dict[str, list[str]] = defaultdict(list)
    for requirement in requires(DISTRIBUTION) or []:
        if match := REQUIREMENT.match(requirement):
            # Metadata writes the names of extras with hyphens.
            packages[match[2].replace("-", "_")].append(match[1])
    catalogued = []
    for kind, entries in (("environment", ENVIRONMENTS), ("adapter", ADAPTERS)):
        for name, path in entries.items():
            extra = name if name in packages else None
            missing = tuple(one for one in packages.get(name, ()) if not _is_installed(one))
            catalogued.append(Entry(name, kind, path, extra, missing, installed=not missing))
    return catalogued


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
