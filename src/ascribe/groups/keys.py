"""Canonical state keys: texts that show the same situation get the same key.

A state's text often says more than the situation: a step counter, a clock, an identifier, a list
whose order means nothing. Two visits then never compare. ``propose`` looks for these in a table and
returns a ``StateKey``, a function of the text; ``measure`` says what a key does to the groups.
"""

import re
import string
from collections import ChainMap, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.table import Coded, StepTable

NUMBER = re.compile(r"(?P<before>[^\s\d]*[ \t]*)(?P<number>\d+(?:\.\d+)?)(?P<after>[ \t]*[^\s\d]*)")
TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"  # ISO dates
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?(?:\s?[ap]m\b)?"
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b0x[0-9a-f]+\b",  # identifiers
    re.IGNORECASE,
)
ID = re.compile(
    r"(?:/private)?/var/folders/\w+/\w+/T\b|\btmp(?:\.[A-Za-z0-9]{10}|[a-z0-9][a-z0-9_]{7})\b"
    r"|(?<=/tmp/)[\w-]{0,80}[-_.](?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{6,}\b"  # temporary paths
    r"|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b"  # hashes
    r"|\b[a-z]{2,12}[_-](?=[a-z]*\d)[a-z0-9]{16,}\b",  # call_..., req-...
    re.IGNORECASE,
)
TOKEN = re.compile(r"[\[{(\])}]|[,;|]\s*|[^\[\]{}(),;|]+")
ITEM = re.compile(r"(?:^|(?<=\s))(?=(?:an?|the|some)\s|\d|\[)")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
BULLET = re.compile(r"\s*[-*•]\s")
BRACKETS = {"[": "]", "{": "}", "(": ")"}
PUNCTUATION = string.punctuation + string.whitespace
EVIDENCE = 8
"""A number is a counter if it rose, or fell, in at least so many pairs of neighbouring steps."""
TOLERANCE = 0.1
"""How much less often merged states may lead to the same next state than a single one."""


@dataclass(frozen=True)
class StateKey:
    """A key of a state from its text. Numbers are kept, other than counters.

    Attributes:
        counters: numbers that count steps, each as the word before it, ``#`` and the word after it.
        times: whether dates, times of day, UUIDs and addresses in memory are removed.
        ids: whether names of temporary files and folders, and words that look like hashes or drawn
            at random, are removed.
        lists: whether the items of a list in a line (between commas, semicolons or bars, or each
            with a name in brackets) are sorted; not those in parentheses.
        bullets: whether lines that begin with a bullet are sorted.
    """

    counters: tuple[str, ...] = ()
    times: bool = False
    ids: bool = False
    lists: bool = False
    bullets: bool = False

    def __call__(self, text: str) -> str:
        """The key of a text."""
        if self.times:
            text = TIME.sub("#", text)
        if self.ids:
            text = ID.sub("#", text)
        if self.counters:
            text = NUMBER.sub(
                lambda number: (
                    f"{number['before']}#{number['after']}"
                    if _context(number) in self.counters
                    else number[0]
                ),
                text,
            )
        lines = text.split("\n")
        if self.lists:
            lines = [" ".join(map(_sorted_items, SENTENCE.split(line))) for line in lines]
        if self.bullets:
            lines = _sorted_bullets(lines)
        return "\n".join(lines)

    def in_words(self) -> str:
        """What the key does, in words."""
        without = {"times": self.times, "ids": self.ids, "counters": self.counters}
        names = " and ".join(name for name, removed in without.items() if removed)
        order = "with lists sorted" if self.lists or self.bullets else ""
        return ", ".join(filter(None, (names and f"without {names}", order))) or "as they are"


def _context(match: re.Match[str]) -> str:
    before, after = (match[name].strip(PUNCTUATION).lower() for name in ("before", "after"))
    return f"{before} # {after}".strip()


def _sorted_items(line: str) -> str:
    """The line, or sentence, with the items of its lists in rising order."""
    frames: list[tuple[str, list[str], list[str]]] = [("", [], [])]  # bracket, items, present item
    for token in TOKEN.findall(line):
        bracket, items, item = frames[-1]
        if token in BRACKETS:
            if token == "[" and not bracket and item:  # [oak log] (2) [stick] (1)
                items.append("".join(item))
                item.clear()
            frames.append((token, [], []))
        elif token == BRACKETS.get(bracket):
            items.append("".join(item))
            frames.pop()
            inside = [one.strip() for one in items]
            inside = inside if bracket == "(" else sorted(inside)
            frames[-1][2].append(f"{bracket}{', '.join(inside)}{token}")
        elif token[0] in ",;|" and (token[-1].isspace() or bracket):
            items.append("".join(item))
            item.clear()
        else:
            item.append(token)
    for bracket, items, item in frames[:0:-1]:  # never closed
        frames[0][2].append(bracket + ", ".join([*items, "".join(item)]))
    _, items, item = frames[0]
    items.append("".join(item))
    return items[0] if len(items) == 1 else "; ".join(sorted(_without_head(items)))


def _without_head(items: list[str]) -> list[str]:
    """The items, with what leads to the first one ("you see", "Inventory:") as one of its own."""
    items = [re.sub(r"^and\s", "", item.strip().rstrip(".")) for item in items]
    if sum(item.count(": ") for item in items) == 1:
        return [part for item in items for part in item.split(": ") if part]
    first = len(items)  # from here on, all are items
    while first and ITEM.match(items[first - 1]):
        first -= 1
    if 0 < first < len(items):
        items[first - 1 : first] = [part.strip() for part in ITEM.split(items[first - 1], 1)]
    return [item for item in items if item]


def _sorted_bullets(lines: list[str]) -> list[str]:
    at = [number for number, line in enumerate(lines) if BULLET.match(line)]
    out = list(lines)
    for number, line in zip(at, sorted(lines[number] for number in at), strict=True):
        out[number] = line
    return out


# Proposing a key.


def propose(table: StepTable) -> StateKey:
    """A canonical key for the states of a table.

    A rule is taken if it merges states of a task, and if the same action leads to the same next
    state from the states that it merges about as often as from one state. Next states are those of
    all rules together: it does not count against a rule that the next text has another time.
    """
    table = table.take(~table.flag("padding", default=False))
    rules: tuple[dict[str, Any], ...] = (
        {"times": True},
        {"ids": True},
        {"counters": _counters(table)},
        {"lists": True},
        {"bullets": True},
    )
    coarsest = _next(table, _labels(table, replace(StateKey(), **ChainMap(*rules))))
    key, now = StateKey(), _labels(table, StateKey())
    for rule in rules:
        candidate = replace(key, **rule)
        merged = _labels(table, candidate)
        if merged.count < now.count and _holds(table, now, merged, coarsest):
            key, now = candidate, merged
    return key


def _holds(table: StepTable, fine: Groups, merged: Groups, after: Groups) -> bool:
    """Whether actions lead to the same next state from what was merged as from one state."""
    (pairs, equal), (all_pairs, all_equal) = (
        _pairs(_acted(table, groups, after), after) for groups in (fine, merged)
    )
    if all_pairs - pairs < EVIDENCE:
        return True
    expected = equal / pairs if pairs >= EVIDENCE else 0.9
    return bool((all_equal - equal) / (all_pairs - pairs) >= expected - TOLERANCE)


def _labels(table: StepTable, key: Callable[[str], str]) -> Groups:
    states = keyed(table.state, key)
    return exact(table.group.codes, states.codes, states.values.size)


def _next(table: StepTable, groups: Groups) -> Groups:
    """The state after each row, -1 at the end of a trajectory."""
    order = np.lexsort((table.step, table.trajectory.codes))
    trajectory = table.trajectory.codes[order]
    same = trajectory[1:] == trajectory[:-1]
    after = np.full(len(table), -1, dtype=np.int64)
    after[order[:-1][same]] = groups.labels[order[1:][same]]
    return Groups(after, groups.count)


def _acted(table: StepTable, groups: Groups, after: Groups) -> Groups:
    """Rows with the same state and action, of those that have a next state."""
    known = np.where(after.labels >= 0, groups.labels, -1)
    return Groups(*segments.pairs(known, table.action.codes, table.action.values.size))


def _pairs(groups: Groups, others: Groups) -> tuple[float, float]:
    """Pairs of rows in one group; and of these, how many are in one of the other groups too."""
    both = segments.pairs(groups.labels, others.labels, others.count)
    known = np.where(others.labels >= 0, groups.labels, -1)
    counts = (segments.size(known, groups.count), segments.size(*both))
    one, two = (float((n * (n - 1.0)).sum()) / 2 for n in counts)
    return one, two


def _counters(table: StepTable) -> tuple[str, ...]:
    """Contexts of numbers that rise, or that fall, with every step of every trajectory."""
    texts = [TIME.sub("#", text) for text in table.state.values]
    values: dict[str, dict[int, float]] = defaultdict(dict)  # by context, then by code of the text
    several = {"#"}  # no words, or in one text twice: which number is it?
    for code, text in enumerate(texts):
        for match in NUMBER.finditer(text):
            context = _context(match)
            if code in values[context]:
                several.add(context)
            values[context][code] = float(match["number"])
    order = np.lexsort((table.step, table.trajectory.codes))
    state, trajectory = table.state.codes[order], table.trajectory.codes[order]
    found = []
    for context in values.keys() - several:
        number = np.full(len(texts) + 1, np.nan)
        number[list(values[context])] = list(values[context].values())
        change = np.diff(number[state])[trajectory[1:] == trajectory[:-1]]
        change = change[~np.isnan(change)]
        if change.size >= EVIDENCE and (bool((change > 0).all()) or bool((change < 0).all())):
            found.append(context)
    return tuple(sorted(found))


# What a key does.


@dataclass(frozen=True)
class KeyQuality:
    """The groups of a table by a key.

    Attributes:
        states: number of distinct states, task by task.
        alone: share of rows that are alone in their state.
        consistency: share of pairs of rows with the same state and action whose next states are the
            same; NaN if there is no such pair.
        purity: share of pairs of rows in one state whose true states are equal; NaN without truth.
        found: share of pairs of rows in one true state that are in one state.
    """

    states: int
    alone: float
    consistency: float
    purity: float
    found: float


def measure(
    table: StepTable, key: Callable[[str], str] = str, truth: Coded | None = None
) -> KeyQuality:
    """What a key does to the groups of a table.

    Args:
        table: the rows; padding is left out.
        key: a function of the text of a state.
        truth: the true state of every row, if it is known.
    """
    real = np.flatnonzero(~table.flag("padding", default=False))
    table = table.take(real)
    groups = _labels(table, key)
    size = segments.size(groups.labels, groups.count)
    after = _next(table, groups)
    purity = found = float("nan")
    if truth is not None:
        codes = truth.codes[real]
        true = exact(table.group.codes, codes, truth.values.size)
        purity, found = _share(_pairs(groups, true)), _share(_pairs(true, groups))
    return KeyQuality(
        states=groups.count,
        alone=float((size == 1).sum() / max(int(size.sum()), 1)),
        consistency=_share(_pairs(_acted(table, groups, after), after)),
        purity=purity,
        found=found,
    )


def _share(counts: tuple[float, float]) -> float:
    pairs, equal = counts
    return equal / pairs if pairs else float("nan")


def keyed(states: Coded, key: Callable[[str], str]) -> Coded:
    """A column of states with keys in the place of texts."""
    keys = Coded.encode([key(text) for text in states.values])
    return Coded(np.append(keys.codes, -1)[states.codes], keys.values)
