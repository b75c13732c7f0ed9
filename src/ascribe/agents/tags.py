"""Tags in answers, found in one pass over the text whatever it holds.

Patterns here match single tags only, never what lies between two: that would take quadratic time on
an answer of many opening tags. Upper and lower case are alike, and white space may stand before the
closing bracket, as in XML.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Bodies:
    """What lies between tags: pairs of tag name and body, in order."""

    found: Sequence[tuple[str, str]]
    opened: bool
    """Whether there was an opening tag at all."""


def bodies(parts: Iterable[str], names: tuple[str, ...]) -> Bodies:
    """The bodies of tags that are closed and have no tag of these names inside.

    A part is searched by itself: a tag that is opened in one is not closed in another.
    """
    found: list[tuple[str, str]] = []
    any_opened = False
    for part in parts:
        start: re.Match[str] | None = None
        for tag in _tag(names).finditer(part):
            if not tag["close"]:
                start, any_opened = tag, True
            else:
                if start is not None and start["name"].lower() == tag["name"].lower():
                    found.append((tag["name"].lower(), part[start.end() : tag.start()]))
                start = None
    return Bodies(found, any_opened)


def split_thoughts(text: str) -> tuple[str | None, list[str]]:
    """The thought, and the parts of the answer that are no thought.

    A thought runs from ``<think>`` to the next ``</think>``. If the first of these tags is a
    closing one, the thought runs from the beginning: some chat templates write ``<think>``
    themselves. A thought that is never closed is none, and what it holds is read as the answer. Of
    several thoughts the first is returned.
    """
    thought: str | None = None
    parts: list[str] = []
    rest = 0
    start: re.Match[str] | None = None
    for tag in _tag(("think",)).finditer(text):
        if not tag["close"]:
            start = start or tag
        elif start is not None:
            parts.append(text[rest : start.start()])
            thought = text[start.end() : tag.start()] if thought is None else thought
            start, rest = None, tag.end()
        elif thought is None:
            thought, rest = text[: tag.start()], tag.end()
    return None if thought is None else thought.strip(), [*parts, text[rest:]]


@lru_cache(maxsize=64)
def _tag(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(?P<close>/?)(?P<name>{'|'.join(names)})\s*>", re.IGNORECASE | re.ASCII)
