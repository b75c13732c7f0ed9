"""What messages add: how to install an extra, which page to read, which name was meant, times.

A message names an argument as its reader writes it: in Python, or on the command line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from ascribe.steps.errors import InputError

DISTRIBUTION = "ascribe-rl"
"""The name of the package for pip; the module and the command are called ``ascribe``."""

DOCS = "https://ascribe-rl.readthedocs.io/en/latest"
"""Where the pages of ``docs`` will be published with a release; until then nothing names it."""

PUBLISHED = False
"""Whether the pages and the packages are published.

Until then messages name the file of a page and install from a clone, and so does the site.
"""

_OPTIONS = {"session": "--session-field", "form": "--format", "columns": "--column"}
"""Options whose names are not those of arguments."""

_reader = {"command": ""}


@contextmanager
def command_line(name: str = "import") -> Iterator[None]:
    """Messages that are written inside name options of the command line, and this command."""
    before = _reader["command"]
    _reader["command"] = name
    try:
        yield
    finally:
        _reader["command"] = before


def command() -> str:
    """The command that reads sessions: the one that runs, if it does."""
    return _reader["command"] or "import"


def option(name: str, value: Any = None) -> str:
    """An argument and its value: ``reward="FIELD"`` in Python, ``--reward FIELD`` in a command."""
    if not _reader["command"]:
        return name if value is None else f"{name}={_literal(value)}"
    if isinstance(value, Mapping):
        pairs = [f"{key}={own}" for key, own in value.items()]
        value = f"'{','.join(pairs)}'" if name == "outcome_map" else " ".join(pairs)
    flag = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    return flag if value is None or value is True else f"{flag} {value}"


def setting(name: str, value: Any) -> str:
    """A recipe's parameter: ``gamma=0.9`` in Python, ``--set gamma=0.9`` in a command."""
    text = value if _reader["command"] and isinstance(value, str) else _literal(value)
    return f"{'--set ' if _reader['command'] else ''}{name}={text}"


def _literal(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value is True else json.dumps(value)


def install(*extras: str, distribution: str = DISTRIBUTION) -> str:
    """The command that adds extras to this installation: of a release, or of a clone."""
    return f"pip install {_source(distribution)}[{','.join(extras)}]'"


@cache
def _source(name: str) -> str:
    """What pip takes before the extras: the name, or the folder that was installed from."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlparse

    try:
        origin = json.loads(distribution(name).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if "dir_info" not in origin:
        return f"'{name}"
    folder = unquote(urlparse(origin["url"]).path)
    return f"{'-e ' if origin['dir_info'].get('editable') else ''}'{folder}"


def laboratory() -> str:
    """The command that installs the laboratory beside the library."""
    return f"pip install {'ascribe-lab' if PUBLISHED else './lab (in a clone of the repository)'}"


def page(name: str) -> str:
    """Where to read a page of the documentation, by its path in ``docs`` without ``.md``."""
    return f"{DOCS}/{name}.html" if PUBLISHED else f"docs/{name}.md"


def unknown(kind: str, name: object, known: Iterable[str], more: str = "") -> InputError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = list(known)
    listed = ", ".join(names) or "none"
    hint = f"{nearest(name, names)}there are: {listed}{'; ' if more else ''}{more}"
    return InputError(f"there is no {kind} {str(name)!r}", hint=hint)


def nearest(name: object, known: Iterable[str]) -> str:
    """``did you mean NAME? `` if one of the known names is much like this one, else nothing."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), list(known), 1)
    return f"did you mean {close[0]}? " if close else ""


def among(name: object, known: Iterable[str]) -> str:
    """The nearest known name, and all of them, of what has them."""
    names = list(known)
    return f"{nearest(name, names)}it has: {', '.join(names) or 'none'}"


def duration(seconds: float) -> str:
    """A time for people: 40 s, 3:20 min, 2:05 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
