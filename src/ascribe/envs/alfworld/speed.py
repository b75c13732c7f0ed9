"""TextWorld reads the same few texts again and again; here it reads each of them once.

Most of the time of a step goes into parsing rules of the grammar and queries, and into deep copies
of what is never changed. A reset translates the game from PDDL twice, the second time for a planner
that is not used here. Inside ``faster()`` some functions are replaced by others that give equal
results:

- ``textgen._parse_and_convert`` and ``Rule.parse_conjunctive_query`` remember what they parsed.
  Symbols are handed out as copies, for TextWorld writes into them. A query is only read.
- ``textgen.copy_context`` copies dictionaries, not the names and variables in them, which are only
  read.
- ``EvalSymbol.derive`` reads expressions of the grammar instead of evaluating them as Python.
- ``fast_downward.pddl2sas`` remembers the last games, leaves the planner's translation empty, and
  gives ``sys.argv`` back.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any

import fast_downward
from mementos.core import _memento_cache
from textworld.envs.pddl import textgen
from textworld.logic import Rule

from ascribe.envs.alfworld.expressions import evaluate, parse

PARSED_TEXTS = 4_096
GAMES_KEPT = 16
FACTS_KEPT = 50_000

# The replacements belong to the whole process, and the translator borrows sys.stdout and sys.argv.
_lock = threading.RLock()
_depth = 0

_parse = textgen._parse_and_convert
_query = Rule.__dict__["parse_conjunctive_query"]
_translate = fast_downward.pddl2sas
_copy_context = textgen.copy_context
_derive = textgen.EvalSymbol.derive


@lru_cache(maxsize=PARSED_TEXTS)
def _parsed(text: str, rule: str) -> Any:
    return _parse(text, rule_name=rule)


def _parse_once(text: str, *, rule_name: str, **_: Any) -> Any:
    return deepcopy(_parsed(text, rule_name))


@lru_cache(maxsize=PARSED_TEXTS)
def _query_once(text: str) -> Any:
    return _query.__get__(None, Rule)(text)


def _copy_flat(context: dict[str, Any]) -> dict[str, Any]:
    return {
        **context,
        "variables": dict(context["variables"]),
        "mapping": dict(context["mapping"]),
    }


def _derive_safely(symbol: Any, context: dict[str, Any] | None = None) -> list[Any]:
    things = (context or symbol.context)["variables"]
    return [textgen.TerminalSymbol(evaluate(parse(symbol.expression), things))]


@lru_cache(maxsize=GAMES_KEPT)
def _translated(domain: str, problem: str) -> Any:
    argv = sys.argv
    try:
        return _translate(domain, problem)
    finally:
        sys.argv = argv


def _translate_once(domain: str, problem: str, *, optimize: bool = False, **_: Any) -> Any:
    task, text = _translated(domain, problem)
    return task, "" if optimize else text


REPLACED: tuple[tuple[Any, str, Any, Any], ...] = (
    (textgen, "_parse_and_convert", _parse, _parse_once),
    (textgen, "copy_context", _copy_context, _copy_flat),
    (textgen.EvalSymbol, "derive", _derive, _derive_safely),
    (Rule, "parse_conjunctive_query", _query, staticmethod(_query_once)),
    (fast_downward, "pddl2sas", _translate, _translate_once),
)
"""Where, under which name, what stood there, and what stands there inside ``faster()``."""


@contextmanager
def faster() -> Iterator[None]:
    """TextWorld as it is, but faster. One thread at a time; may be nested."""
    global _depth  # noqa: PLW0603 (counts what is a state of the whole process)
    with _lock:
        _depth += 1
        if _depth == 1:
            for place, name, _, new in REPLACED:
                setattr(place, name, new)
        try:
            yield
        finally:
            _depth -= 1
            if _depth == 0:
                for place, name, old, _ in REPLACED:
                    setattr(place, name, old)


def forget() -> None:
    """Let go of facts of earlier games.

    TextWorld keeps every fact it ever made, half a megabyte for each game. It compares facts by
    value, so one that is made anew is as good.
    """
    with _lock:
        if len(_memento_cache) > FACTS_KEPT:
            _memento_cache.clear()
