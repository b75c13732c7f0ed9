"""Strict reading of a ``Config`` from a YAML file and ``name=value`` overrides.

An unknown key, a value of a wrong type and a missing key are each refused with the key's path and
what is allowed there, all in one error.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ascribe.steps.hints import nearest
from ascribe.steps.strict_yaml import read_yaml
from ascribe_lab.train.config import (
    Config,
    ConfigError,
    Keys,
    Options,
    known_keys,
    leaves,
    section_of,
)

Origin = Literal["default", "file", "command line"]
"""Who set a value."""

EXTENDS = "extends"
"""Names another file, whose values a file takes over where it has none of its own."""
OF_NAME = ("preset", "parameters", "options")
"""Keys that belong to the recipe or environment that a section names."""


@dataclass(frozen=True)
class LoadedConfig:
    """A config, and who set each of its values."""

    config: Config
    origins: Mapping[Keys, Origin]
    """For every key of ``leaves(config)``."""


def load_config(
    path: str | Path | None = None, changes: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """The config of a file, with changes.

    Args:
        path: a YAML file; None for an empty one. It may take over the values of another: ``extends:
            _base.yaml`` names a file in the same folder, or in one below.
        changes: values by dotted keys: ``{"update.learning_rate": 1e-5}``. Under options, such as
            ``environment.options``, the rest of the path is one name.

    Raises:
        ConfigError: with everything that is wrong.
        ImportError: without PyYAML.
        OSError: if the file cannot be opened.
    """
    document = {} if path is None else _read(path)
    in_file = set(_paths(document))
    changed = {_change(document, name, value) for name, value in (changes or {}).items()}
    for section in fields(Config):  # they may be empty or left out
        if document.get(section.name) is None:
            document[section.name] = {}
    try:
        config = TypeAdapter(Config).validate_python(document)
    except ValidationError as error:
        raise ConfigError(*_messages(error.errors())) from error

    def origin(keys: Keys) -> Origin:
        if any(keys[: len(each)] == each for each in changed):
            return "command line"
        return "file" if keys in in_file else "default"

    return LoadedConfig(config, {keys: origin(keys) for keys, _ in leaves(config)})


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with other values, by dotted keys as in ``load_config``."""
    document = TypeAdapter(Config).dump_python(config)
    for name, value in changes.items():
        _change(document, name, value)
    return TypeAdapter(Config).validate_python(document)


def _read(path: str | Path, before: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The keys and values of a YAML file, and of those that it extends."""
    try:
        document = read_yaml(path)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold keys and values, not {_shown(document)}")
    if EXTENDS not in document:
        return document
    name, folder = document.pop(EXTENDS), Path(path).resolve().parent
    parent = (folder / name).resolve() if isinstance(name, str) else folder
    if not isinstance(name, str) or Path(name).is_absolute() or not parent.is_relative_to(folder):
        raise ConfigError(
            f"{EXTENDS}: {path} must name a file in its own folder, or in one below, not "
            f"{_shown(name)}"
        )
    chain = (*before, Path(path).resolve())
    if parent in chain:
        raise ConfigError(f"{EXTENDS}: {path} extends {name}, which extends it in turn")
    try:
        inherited = _read(parent, chain)
    except OSError as error:
        raise ConfigError(f"{EXTENDS}: {path} extends {name}: {error.strerror}") from error
    return _extended(inherited, document)


def _extended(inherited: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The values of two documents; where both have one, that of the second.

    Another recipe or environment has options of its own, so those of the first are left out, and
    with an environment those of its held-out tasks.
    """
    merged = dict(inherited)
    held_out = inherited.get("evaluation")
    renamed = _renamed(inherited.get("environment"), document.get("environment"))
    if renamed and isinstance(held_out, dict):
        merged["evaluation"] = {k: v for k, v in held_out.items() if k not in OF_NAME}
    for name, value in document.items():
        before = merged.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if _renamed(before, value):
                before = {k: v for k, v in before.items() if k not in OF_NAME}
            merged[name] = _extended(before, value)
        else:
            merged[name] = value
    return merged


def _renamed(before: Any, after: Any) -> bool:
    """Whether a section names another recipe or environment than the one that it extends."""
    sections = isinstance(before, dict) and isinstance(after, dict)
    return sections and "name" in after and after["name"] != before.get("name")


def _paths(document: Mapping[str, Any], path: Keys = ()) -> Iterator[Keys]:
    """The paths of all values in a document; the entries of options one by one."""
    for name, value in document.items():
        here = (*path, str(name))
        info = known_keys().get(here)
        has_keys = info is not None and (section_of(info) or info.annotation == Options)
        if has_keys and isinstance(value, dict) and value:
            yield from _paths(value, here)
        else:
            yield here


def _change(document: dict[str, Any], dotted: str, value: Any) -> Keys:
    """Set the value of a dotted key; returns its path."""
    keys: Keys = tuple(dotted.split("."))
    for end in range(1, len(keys)):
        info = known_keys().get(keys[:end])
        if info is not None and info.annotation == Options:
            keys = (*keys[:end], ".".join(keys[end:]))
            break
    node = document
    for name in keys[:-1]:
        if not isinstance(node.get(name), dict):
            node[name] = {}
        node = node[name]
    node[keys[-1]] = value
    return keys


def _messages(errors: Iterable[Any]) -> Iterator[str]:
    """A line for each of pydantic's errors: the key, and what is allowed there."""
    known = known_keys()
    for error in errors:
        keys: Keys = tuple(map(str, error["loc"]))
        if error["type"] in {"unexpected_keyword_argument", "invalid_key"}:
            names = [each[-1] for each in known if each[:-1] == keys[:-1]]
            section = ".".join(keys[:-1]) or "a config"
            text = f"unknown key; {nearest(keys[-1], names)}{section} has: {', '.join(names)}"
        elif error["type"] == "missing":
            text = f"is missing ({known[keys].description})"
        elif error["type"] == "value_error":
            text = str(error["ctx"]["error"])
        else:
            allowed = error["msg"].replace("Input should", "must")
            text = f"{allowed}; it is {_shown(error['input'])}"
        # A key of the file is not ours: no semicolon in it begins the advice.
        yield f"{'.'.join(keys).replace('; ', ';')}: {text}" if keys else text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
