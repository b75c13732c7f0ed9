"""Text that others wrote, made harmless: nothing hidden, nothing endless, nothing that acts."""

import json
from typing import Any

from ascribe.steps.problems import printable

_ACTING = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""Signs that could end a script or begin one, as JSON writes them by number."""


class _Shown(dict[int, str]):
    """How each sign is shown, found out when it is first met."""

    def __missing__(self, sign: int) -> str:
        self[sign] = chr(sign) if chr(sign) in "\n\t" else printable(chr(sign))
        return self[sign]


_SHOWN = _Shown()


def visible(text: str) -> str:
    """The text with whatever does not print shown by its number; line ends and tabs stay.

    A sign that turns the direction of writing, or that has no width, would make the page say
    something else than the file does.
    """
    return text.replace("\r\n", "\n").translate(_SHOWN)


def shortened(text: str, most: int) -> str:
    """The visible text of the first ``most`` characters, and how many more there are."""
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}… ({len(text) - most:,} characters more)"


def one_line(text: object, most: int = 120) -> str:
    """A name on one line."""
    shown = printable(str(text)[: 2 * most])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def embedded(value: Any) -> str:
    """The value as JSON that may stand inside an HTML script element: it ends none, begins none.

    Raises:
        ValueError: for NaN and infinity, which JSON lacks.
    """
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.translate(_ACTING)
