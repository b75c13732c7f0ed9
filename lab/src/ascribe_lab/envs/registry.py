"""Environments and adapters by name: making one, what it needs, and whether that is installed.

An environment or adapter that needs packages has an extra of its own name.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires
from inspect import Parameter, cleandoc, formatannotation, signature
from typing import TYPE_CHECKING, Any

from ascribe.steps.errors import InputError
from ascribe.steps.hints import nearest, unknown
from ascribe.steps.plugins import entry_points, is_path, load_path, load_point
from ascribe_lab.envs.protocol import Environment
from ascribe_lab.extras import DISTRIBUTION

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENVIRONMENTS = {
    "textcraft": "ascribe_lab.envs.textcraft:TextCraft",
    "alfworld": "ascribe_lab.envs.alfworld:AlfWorld",
    "webshop": "ascribe_lab.envs.webshop:WebShop",
    "sokoban": "ascribe_lab.envs.sokoban:Sokoban",
    "ezpoints": "ascribe_lab.envs.ezpoints:EZPoints",
    "repository": "ascribe_lab.envs.repository:Repository",
    "search_qa": "ascribe_lab.envs.search_qa:SearchQA",
    "maths": "ascribe_lab.envs.maths:Maths",
    "pivots": "ascribe_lab.pivots.environment:Pivots",
    "team": "ascribe_lab.envs.team:Team",
    "desk": "ascribe_lab.envs.desk:Desk",
}
"""Every environment by name, and where it is."""

NEED_FILE = ("maths", "pivots", "team")
"""Environments that play a file of the user's; all others can be made without options."""

ADAPTERS = {
    "gymnasium": "ascribe_lab.envs.adapters.gymnasium:GymnasiumEnvironment",
    "openenv": "ascribe_lab.envs.adapters.openenv:OpenEnvEnvironment",
}
"""Every adapter to another environment convention by name, and where it is."""

REQUIREMENT = re.compile(r"^([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")


def make(name: str, /, **options: Any) -> Environment:
    """An environment by name, or a user's own by ``package.module:factory``.

    Args:
        name: a key of ``ENVIRONMENTS``, an entry point, or a path that leads to
            a class or function.
        options: arguments of the environment.

    Raises:
        ValueError: if there is no such environment, or it does not take these options.
        MissingExtraError: if it needs a package that is not installed.

    Example:
        >>> from ascribe_lab.envs import make
        >>> observation, info = make("ezpoints").reset(seed=0)
        >>> observation.splitlines()[0]
        'Cards: 2 of diamonds, jack of hearts'
    """
    factory = _factory(name)
    _check_options(name, factory, options)
    environment: Environment = factory(**options)
    return environment


def check_call(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a name or options that cannot be right, without making an environment.

    Code that is not Ascribe's own is not imported, so its options are checked when it is made.

    Raises:
        ValueError: if there is no such environment, or it does not take these options.
        MissingExtraError: if one of Ascribe's own needs a package that is not installed.
    """
    if name in ENVIRONMENTS:
        _check_options(name, _factory(name), options)
    elif not is_path(name) and name not in plugins():
        raise _unknown(name)


def plugins() -> "dict[str, EntryPoint]":
    """The environments of other packages, by name."""
    return entry_points("ascribe_lab.envs", (*ENVIRONMENTS, *ADAPTERS))


def check_file_options(name: Any, options: Any) -> None:
    """Raise a ValueError unless a data file may have this environment made with these options.

    A file must not decide which code runs, which files are read or which servers are called. So it
    may name Ascribe's own environments only, and set only the options that they declare.
    """
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise InputError(f"it names an environment that is not Ascribe's own: {ascii(name)[:60]}")
    allowed: frozenset[str] | None = getattr(_factory(name), "file_options", frozenset())
    if allowed is None:
        raise InputError(f"it may not have {name} made, which runs the commands that it is given")
    if not isinstance(options, dict) or not allowed.issuperset(options):
        listed = ", ".join(sorted(allowed)) or "none"
        raise InputError(
            f"it may set these options of {name}: {listed}; not {ascii(options)[:200]}"
        )


def _factory(name: str) -> Any:
    if name in ENVIRONMENTS:
        module, _, factory = ENVIRONMENTS[name].partition(":")
        return getattr(import_module(module), factory)
    if ":" in name:
        return load_path(name)
    if name in (others := plugins()):
        return load_point(others[name])
    raise _unknown(name)


def _unknown(name: str) -> InputError:
    known = (*ENVIRONMENTS, *plugins())
    return unknown("environment", name, known, "name your own as package.module:factory")


def _check_options(name: str, factory: Any, options: Mapping[str, Any]) -> None:
    try:
        called = signature(factory)
    except (TypeError, ValueError):
        return  # code that does not show its arguments
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in called.parameters.values()):
        return
    takes = ", ".join(called.parameters) or "none"
    for option in options:
        if option not in called.parameters:
            guess = nearest(option, called.parameters)
            raise InputError(f"{name} has no option {option!r}", hint=f"{guess}it takes: {takes}")
    try:
        called.bind(**options)
    except TypeError as error:
        raise InputError(f"{name}: {error}", hint=f"it takes: {takes}") from None


@dataclass(frozen=True)
class EnvironmentOption:
    """One option of an environment."""

    name: str
    type: str
    default: Any
    required: bool
    meaning: str


def list_options(name: str) -> list[EnvironmentOption]:
    """The options of an environment, as its signature and its docstring describe them.

    Raises:
        ValueError: if there is no such environment, or it cannot be imported.
    """
    factory = _factory(name)
    section = cleandoc(factory.__doc__ or "").partition("Args:\n")[2]
    entries = re.findall(r"^ +(\w+): (.*(?:\n {6,}.*)*)", section, re.MULTILINE)
    meanings = {option: re.sub(r"``|\*\*", "", " ".join(text.split())) for option, text in entries}
    listed = []
    for option in signature(factory).parameters.values():
        kind = "" if option.annotation is Parameter.empty else formatannotation(option.annotation)
        required = option.default is Parameter.empty
        listed.append(
            EnvironmentOption(
                option.name,
                _plain_type(kind),
                None if required else option.default,
                required,
                meanings.get(option.name, ""),
            )
        )
    return listed


def _plain_type(annotation: str) -> str:
    """A type as a reader who knows no Python names it."""
    text = re.sub(r"[\w.]+\.(?=\w)", "", annotation)
    text = re.sub(r"\b(?:Sequence|Iterable|list|tuple)\[(\w+)[^\]]*\]", r"list of \1", text)
    text = re.sub(r"\bMapping\[[^\]]*\]", "object", text)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda choice: choice[1].replace("'", ""), text)
    words = {"str": "text", "Path": "text", "bool": "true or false", "None": ""}
    text = re.sub(rf"\b({'|'.join(words)})\b", lambda word: words[word[0]], text)
    return " or ".join(dict.fromkeys(filter(None, text.split(" | "))))


@dataclass(frozen=True)
class Entry:
    """One environment or adapter."""

    name: str
    kind: str
    """``environment``, ``adapter``, or the package that an environment comes from."""
    path: str
    extra: str | None
    """What to install: ``pip install 'ascribe-rl[extra]'``; None if Ascribe alone is enough."""
    missing: tuple[str, ...]
    """Packages of the extra that are not installed."""
    installed: bool
    """Whether it can be used now."""


def catalogue() -> list[Entry]:
    """Every environment, then every adapter, then the environments of other packages."""
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
    for point in plugins().values():
        package = f"of {point.dist.name}" if point.dist is not None else "other"
        catalogued.append(Entry(point.name, package, point.value, None, (), installed=True))
    return catalogued


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
