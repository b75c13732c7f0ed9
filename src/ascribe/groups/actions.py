"""Action keys: two decisions with equal keys took the same action.

Keys are computed once for each distinct action text. A text that a key function cannot parse has no
key, and its row has no same-action peers.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ascribe.groups.responses import first_call
from ascribe.steps.arrays import Brief, Ints, Objects
from ascribe.steps.table import Coded

KeyFunction = Callable[[str], str | None]
"""The key of an action text, or None where it has none."""

FIRST_TOKENS = 8
"""Tokens of a response by which BiPACE compares actions that cannot be parsed (Section 3.5)."""

_TAG = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, eq=False, repr=False)
class ActionKeys(Brief):
    """The key of each row's action as a label, -1 for none; and the keys, by label."""

    labels: Ints
    values: Objects

    @property
    def count(self) -> int:
        """Number of keys."""
        return int(self.values.size)


def action_keys(action: Coded, key: KeyFunction) -> ActionKeys:
    """The key of every row.

    Args:
        action: the column of actions.
        key: the key of one text, or None.
    """
    coded = Coded.encode([key(text) for text in action.values])
    return ActionKeys(np.append(coded.codes, -1)[action.codes], coded.values)


def whole(text: str) -> str | None:
    """The whole action text, with runs of white space replaced by one space."""
    return " ".join(text.split()) or None


def tag_body(text: str) -> str | None:
    """The body of the first well-formed ``<action>`` tag (BiPACE's ``action_tag``).

    A text without such a tag counts as an action that was parsed already and is taken whole; one
    whose tag is not closed has no key.
    """
    tag = _TAG.search(text)
    if tag:
        return whole(tag.group(1))
    return None if "<action>" in text.lower() else whole(text)


def first_tokens(count: int = FIRST_TOKENS) -> KeyFunction:
    """The first words and punctuation marks of a text, 8 by default.

    Where BiPACE compares the first tokens of responses (``first_n``), this stands in for tables
    without the column ``first_tokens``.
    """

    def key(text: str) -> str | None:
        tokens = [match.group() for match in islice(_TOKEN.finditer(text), count)]
        return " ".join(tokens) or None

    return key


def tool_call(text: str) -> str | None:
    """Name and arguments of the first tool call: argument order and white space do not count.

    ``ascribe.groups.responses.first_call`` describes what is read.
    """
    call = first_call(text)
    return None if call is None else json.dumps(call, sort_keys=True)


KEY_FUNCTIONS: dict[str, KeyFunction] = {
    "whole": whole,
    "tag": tag_body,
    "first_tokens": first_tokens(),
    "tool_call": tool_call,
}
"""The key functions that recipes know by name."""
