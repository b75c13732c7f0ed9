"""Untrusted text made safe to show: nothing hidden, nothing endless, nothing that runs."""

import gzip
import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unicodedata import category

from ascribe.steps.problems import one_line, printable

_ACTING = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that could end a script or begin one, as escaped in JSON."""


class _Shown(dict[int, str]):
    """How each character is shown, computed on first use."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = char in "\n\t\ufe0f" or category(char) == "Zs"
        self[code] = char if plain else printable(char)
        return self[code]


_SHOWN = _Shown()
# Characters that ``_SHOWN`` leaves as they are, and most texts are made of.
_PLAIN = re.compile("[\n\t -~\xa0-\xac\xae-\u02ff\u2010-\u2027\u202f-\u205e\u2190-\u23ff]*")


def visible(text: str) -> str:
    """The text with unprintable characters escaped; line ends, tabs and spaces of all widths stay.

    A character without width, or one that reverses the direction of writing, would make the page
    show something other than the file says.
    """
    if _PLAIN.fullmatch(text):
        return text
    return text.replace("\r\n", "\n").translate(_SHOWN)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers inside texts as numbers: ``2 boxes`` before ``10 boxes``."""
    parts = re.findall(r"([0-9]{1,4000})|([^0-9]+)", text)
    return [(0, int(digits), "") if digits else (1, 0, letters) for digits, letters in parts]


def shortened(text: str, most: int) -> str:
    """The visible text of the first ``most`` characters, and how many more there are."""
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}… ({len(text) - most:,} more characters)"


def unique(names: Sequence[str], most: int = 200) -> list[str]:
    """The names on one line each, with a number behind each that another one is shown like."""
    shown, times = [], Counter[str]()
    for name in names:
        short = one_line(name, most)
        while times[short]:
            times[short] += 1
            short = f"{short} ({times[short]})"
        times[short] += 1
        shown.append(short)
    return shown


def safe(value: Any, most: int) -> Any:
    """Plain values with every text in them made visible, and cut to ``most`` characters."""
    if isinstance(value, dict):
        return {name: safe(part, most) for name, part in value.items()}
    if isinstance(value, list):
        return [safe(part, most) for part in value]
    return shortened(value, most) if isinstance(value, str) else value


def embedded(value: Any) -> str:
    """The value as JSON that is safe inside an HTML script element.

    Raises:
        ValueError: for NaN and infinity, which JSON lacks.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ACTING)


def compressed(value: Any) -> str:
    """The value as JSON, compressed and in Base64: the same bytes for the same value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()
