"""Strict JSON parsing of untrusted text, and canonical JSON."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from math import isfinite, isinf
from typing import Any

import numpy as np

from ascribe.steps.errors import InputError

LONG = 4_000
"""Letters from which a text is parsed without a look at every object."""
MAX_DEPTH = 100
"""Levels of nesting that a value may have, so that recursive functions can walk over it."""

canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
"""The one JSON text of a value: keys sorted, no spaces."""


class DuplicateKeyError(ValueError):
    """An object has the same key twice."""


def loads(text: str | bytes) -> Any:
    """Parse JSON without duplicate keys, NaN, infinite numbers or deep nesting.

    Raises:
        ValueError: for anything else; ``DuplicateKeyError`` for a duplicate key.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if text.startswith("\ufeff"):
            raise json.JSONDecodeError("Unexpected UTF-8 BOM (decode using utf-8-sig)", text, 0)
        # Of a long text it is faster to count the keys than to look for one that is there twice.
        plain = len(text) > LONG and r'\\"' not in text and not _SPACED.search(text)
        value = (_PLAIN if plain else _STRICT).decode(text)
    except RecursionError:
        raise InputError("it is nested too deeply") from None
    if plain or text.count("[") + text.count("{") > MAX_DEPTH:
        levels, keys = _size(value)
        if levels > MAX_DEPTH:
            raise InputError("it is nested too deeply")
        if plain and keys < text.count('":') - text.count(r"\":"):  # or a text begins with a colon
            return _STRICT.decode(text)
    return value


def without_nan(value: Any) -> Any:
    """The value with None for every number in it that JSON lacks: NaN and the infinite ones."""
    if isinstance(value, dict):
        return {name: without_nan(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if isfinite(value) else None
    return value


def _size(value: Any) -> tuple[int, int]:
    """The levels of a value of JSON, at most one too many, and its keys; without recursion."""
    level = [value] if value and type(value) in (dict, list) else []
    levels = keys = 0
    while level and levels <= MAX_DEPTH:
        levels += 1
        keys += sum([len(node) for node in level if type(node) is dict])
        level = [
            entry
            for node in level
            for entry in (node.values() if type(node) is dict else node)
            if type(entry) in (dict, list) and entry
        ]
    return levels, keys


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these keys, for ``object_pairs_hook``."""
    value = dict(pairs)
    if len(value) < len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DuplicateKeyError(f"the key {repeated!r} is given twice")
    return value


def _finite(number: str) -> float:
    value = float(number)
    if isinf(value):
        raise InputError("a number is too large")
    return value


def _no_constant(name: str) -> Any:
    raise InputError(f"{name} is not JSON")


_PLAIN = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_STRICT = json.JSONDecoder(
    object_pairs_hook=unique_keys, parse_constant=_no_constant, parse_float=_finite
)
_SPACED = re.compile(r'"\s+:')
"""A key with a space after it, or a text that looks like one."""
