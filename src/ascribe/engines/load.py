"""From a YAML file and ``name=value`` changes to a ``Config``, strictly.

An unknown key, a value of a wrong type and a missing key are each refused with the key's path and
what is allowed there. All that is wrong is told at once.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ascribe.engines.config import Config, Keys, Refused, is_optional, leaves, without_none

Origin = Literal["default", "file", "command line"]
"""Who set a value."""


class ConfigError(ValueError):
    """What is wrong with a configuration, one line for each key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Loaded:
    """A config, and who set each of its values."""

    config: Config
    origins: Mapping[Keys, Origin]
    """For every key of ``leaves(config)``."""


def load_config(path: str | Path | None = None, changes: Mapping[str, Any] | None = None) -> Loaded:
    """The config of a file, with changes.

    Args:
        path: a YAML file; None for an empty one.
        changes: values by dotted keys: ``{"update.learning_rate": 1e-5}``. Under a free mapping,
            such as ``environment.options``, the rest of the path is one name.

    Raises:
        ConfigError: with everything that is wrong.
        ImportError: without PyYAML.
        OSError: if the file cannot be opened.
    """
    document = {} if path is None else read_yaml(path)
    inside = set(_leaf_keys(document, Config))
    problems: list[str] = []
    changed = {_change(document, name, value, problems) for name, value in (changes or {}).items()}
    config = _section(Config, document, (), problems)
    if problems:
        raise ConfigError(problems)

    def origin(keys: Keys) -> Origin:
        if any(keys[: len(each)] == each for each in changed):
            return "command line"
        return "file" if keys in inside else "default"

    return Loaded(config, {keys: origin(keys) for keys, _ in leaves(config)})


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file that holds one mapping, read by the safe loader; a key given twice is refused."""
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise ImportError("needs PyYAML; pip install 'ascribe[trl]'") from error
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = yaml.load(text, _strict_loader(yaml))
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path} is not UTF-8"]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([f"{path} is no YAML file: {error}"]) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError([f"{path} must hold keys and values, not {_shown(document)}"])
    return document


def _strict_loader(yaml: Any) -> Any:
    class Strict(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for name, _ in node.value:
                if name.value in seen:
                    problem = f"the key {name.value!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, name.start_mark)
                seen.add(name.value)
            return super().construct_mapping(node, deep)

    # YAML 1.1, which PyYAML reads, takes 1e-6 for a text; YAML 1.2 and everybody else do not.
    number = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+")
    Strict.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Strict


def _leaf_keys(document: Any, kind: Any) -> list[Keys]:
    """The paths of all values in a document, as far as the config knows them."""
    if not isinstance(document, dict):
        return []
    found: list[Keys] = []
    hints = get_type_hints(kind)
    for name, value in document.items():
        inner = _dataclass_in(hints.get(name))
        if inner is not None and isinstance(value, dict):
            found += [(name, *rest) for rest in _leaf_keys(value, inner)]
        elif _is_free(hints.get(name)) and isinstance(value, dict) and value:
            found += [(name, str(entry)) for entry in value]
        else:
            found.append((name,))
    return found


def _change(document: dict[str, Any], dotted: str, value: Any, problems: list[str]) -> Keys:
    """Put a value where a dotted key says; returns the path of keys."""
    parts = dotted.split(".")
    kind: Any = Config
    node, path = document, []
    while True:
        name = parts.pop(0)
        path.append(name)
        hint = get_type_hints(kind).get(name)
        inner = _dataclass_in(hint)
        if not parts:
            node[name] = value
            return tuple(path)
        if inner is None and not _is_free(hint):
            # An unknown key is told by the check of the whole; a value has no keys inside.
            if hint is not None:
                problems.append(f"{dotted}: {'.'.join(path)} holds one value, and no keys")
            else:
                node[name] = value
            return tuple(path)
        if not isinstance(node.get(name), dict):
            node[name] = {}
        node = node[name]
        if inner is None:
            rest = ".".join(parts)
            node[rest] = value
            return (*path, rest)
        kind = inner


def _section(kind: Any, given: Any, path: Keys, problems: list[str]) -> Any:
    """The dataclass that a mapping describes; None if something is wrong, which is then told."""
    told = len(problems)
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}
    if given is None:
        given = {}
    if not isinstance(given, dict):
        problems.append(
            f"{_dotted(path)}: must hold the keys {', '.join(known)}, not {_shown(given)}"
        )
        return None
    problems += [_unknown((*path, str(name)), known) for name in given if name not in known]
    values: dict[str, Any] = {}
    for name, each in known.items():
        here = (*path, name)
        section = is_dataclass(hints[name])
        if name in given or section:
            values[name] = _value(hints[name], given.get(name), here, problems)
        elif each.default is MISSING and each.default_factory is MISSING:
            problems.append(
                f"{_dotted(here)}: is missing; it takes {allowed(hints[name])} "
                f"({each.metadata['meaning']})"
            )
    if len(problems) > told:
        return None
    try:
        return kind(**values)
    except Refused as error:
        problems.append(f"{_dotted((*path, error.name))}: {error.why}")
    except ValueError as error:
        problems.append(f"{_dotted(path)}: {error}")
    return None


def _value(hint: Any, given: Any, path: Keys, problems: list[str]) -> Any:
    """A value as its type has it; None if it does not fit, which is then told."""
    if given is None and is_optional(hint):
        return None
    inner = _dataclass_in(hint)
    if inner is not None:
        return _section(inner, given, path, problems)
    wanted = without_none(hint)
    if _fits(given, wanted):
        if get_origin(wanted) is tuple:
            return tuple(given)
        return float(given) if wanted is float else given
    problems.append(f"{_dotted(path)}: must be {allowed(hint)}, not {_shown(given)}")
    return None


def _fits(given: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(given, str) and given in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(given, list) and all(_fits(each, get_args(hint)[0]) for each in given)
    if _is_free(hint):
        return isinstance(given, dict) and _is_plain(given)
    if hint is float:
        return type(given) in (int, float) and math.isfinite(given)
    return type(given) is hint


def _is_plain(given: dict[Any, Any]) -> bool:
    """Whether a mapping holds texts, numbers, truth values, lists and mappings alone."""
    try:
        json.dumps(given)
    except (TypeError, ValueError, RecursionError):
        return False
    return all(isinstance(name, str) for name in given)


def allowed(hint: Any) -> str:
    """What a key takes, in words."""
    wanted = without_none(hint)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if get_origin(wanted) is Literal:
        said = f"one of {', '.join(get_args(wanted))}"
    elif get_origin(wanted) is tuple:
        said = f"a list, each entry {allowed(get_args(wanted)[0])}"
    elif _is_free(wanted):
        said = "keys with plain values"
    else:
        said = words[wanted]
    return f"{said}, or null" if is_optional(hint) else said


def _unknown(path: Keys, known: Mapping[str, Any]) -> str:
    near = get_close_matches(path[-1], known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    where = _dotted(path[:-1]) if len(path) > 1 else "a config"
    return f"{_dotted(path)}: there is no such key{hint}; {where} has: {', '.join(known)}"


def _dataclass_in(hint: Any) -> Any:
    """The dataclass that a type is, or is unless it is None."""
    wanted = without_none(hint)
    return wanted if is_dataclass(wanted) else None


def _is_free(hint: Any) -> bool:
    return get_origin(hint) is Mapping


def _dotted(path: Keys) -> str:
    return ".".join(path) or "the file"


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:59] + "…"
