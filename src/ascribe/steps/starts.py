"""Whether the attempts in a group are attempts at one task, as far as their first states tell.

Attempts that begin in the same state are. Where the wording varies, because a simulated user
phrases the task anew, attempts at one task still share more words than attempts at different tasks;
words that most tasks share do not count. Texts that differ in single words at the same places are
one question about different things, not one task. Where neither tells, only who made the table
knows: the column ``task`` says it.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, combinations, islice
from operator import eq

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.table import StepTable

UNSTABLE = re.compile(
    r"(?<![\w/.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]*[\w@+-]){2,}/?"  # a path
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"  # a date
    r"|\b\d\d?:\d\d(?::\d\d)?\b"  # a time
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # a UUID
    r"|\b(?=[a-zA-Z]*\d)[0-9a-zA-Z]{8,}\b"  # an id of letters and digits
)
"""What differs between runs of one task: paths, dates, times and ids."""
WORD = re.compile(r"\w+")
SHOWN = 8
"""Attempts of a group whose first states are compared, if there are more."""
TASKS = 300
"""Tasks of which pairs are compared, if there are more."""
CLEAR, APART = 2.0, 0.15
"""Words in common tell tasks apart if attempts at one task share so many times as many as attempts
at different tasks, and so much more."""
FEWEST_WORDS = 4
"""Words that a first state has in the median; keys and short texts share too few to tell."""


@dataclass(frozen=True, eq=False)
class Starts:
    """What the first states of a table say. Masks have an entry for each group, in order.

    Attributes:
        same: groups whose attempts may be compared.
        unstable: groups that begin alike but for a path, a date, a time or an id; groups of one
            attempt that would be one group but for that.
        reworded: groups that begin with different words, and are taken for one task.
        mixed: groups that hold several tasks, each in several attempts.
        named: groups of which the column ``task`` says that they are attempts at one task.
        within: words in common of first states of one task, from 0 to 1; NaN if none differ.
        between: the same of different tasks; NaN if there is one task.
        length: median number of words of a first state, without those that most tasks share.
        example: what differs in an unstable group.
    """

    same: Bools
    unstable: Bools
    reworded: Bools
    mixed: Bools
    named: Bools
    within: float
    between: float
    length: float
    example: str

    @property
    def tells(self) -> bool:
        """Whether words in common tell attempts at one task from attempts at different tasks."""
        apart = self.within > CLEAR * self.between and self.within - self.between > APART
        return apart and self.length >= FEWEST_WORDS

    @property
    def words(self) -> str:
        """How many words attempts have in common, as a clause."""
        between = "there is no other task"
        if self.between == self.between:
            between = f"different tasks {self.between:.2f}"
        return f"words in common: attempts at one task {self.within:.2f}, {between}"


def compare_starts(table: StepTable, rows: Ints, group_of: Ints, groups: int) -> Starts:
    """Compare the first states of the attempts in each group.

    Args:
        table: the steps.
        rows: the row of the table with which each attempt begins.
        group_of: the group of each attempt.
        groups: how many groups there are.
    """
    start = table.state.codes[rows]
    # An attempt without a state, such as one without a response, says nothing.
    known = np.flatnonzero(start >= 0)
    start, of = start[known], group_of[known]
    size = segments.size(of, groups)
    none = np.zeros(groups, dtype=np.bool_)
    alike = segments.constant(start.astype(np.float64), of, groups)
    named = several = none
    if table.task is not None:
        task = table.task.codes[rows[known]]
        several = ~segments.constant(task.astype(np.float64), of, groups)
        named = np.bincount(of, task < 0, groups) == 0
    if alike.all() and (size > 1).all():
        return Starts(~several, none, none, several, named, np.nan, np.nan, np.nan, "")
    texts = {int(code): str(table.state.values[code]) for code in np.unique(start)}
    codes: dict[str, int] = {}
    stable = np.full(table.state.values.size, -1, dtype=np.int64)
    remove = cache(_removed)  # most texts share most of their lines
    for code, text in texts.items():
        stable[code] = codes.setdefault(without_ids(text, remove), len(codes))
    task = stable[start]
    same = segments.constant(task.astype(np.float64), of, groups)
    unstable = (~alike & same) | _same_but_for_an_id(task, start, of, size)
    words = _Words(list(codes), task, of, groups)
    measured = words.within(np.flatnonzero(~same)), words.between(), words.length
    found = Starts(same, unstable, none, none, named, *measured, "")
    reworded = named & ~same & ~several
    mixed = several | (_established(task, of, groups) & ~named)
    limit = found.between + (found.within - found.between) / 3
    for number in np.flatnonzero(~same & ~named) if found.tells else ():
        parts = words.parts(int(number), limit)
        reworded[number] = len(parts) == 1 and not words.are_filled_in(int(number))
        mixed[number] = sum(len(part) > 1 for part in parts) > 1
    may = (same | reworded) & ~several
    example = ""
    if unstable.any():
        example = _difference(texts, stable, task, int(np.flatnonzero(unstable[of])[0]))
    return Starts(may, unstable, reworded, mixed & ~may, named, *measured, example)


_removed = partial(UNSTABLE.sub, "\0")


def without_ids(text: str, remove: Callable[[str], str] = _removed) -> str:
    """The text without paths, dates, times and ids; all of it if hardly more is there.

    ``remove`` does so for a line.
    """
    stable = "\n".join(map(remove, text.split("\n")))
    return stable if len(list(islice(filter(str.isalpha, stable), 8))) == 8 else text


def _same_but_for_an_id(task: Ints, start: Ints, of: Ints, size: Ints) -> Bools:
    """Groups of one attempt whose names were made from a prompt with an id in it."""
    found = np.zeros(size.size, dtype=np.bool_)
    alone = size[of] == 1
    if alone.any():
        pairs = segments.pairs(task[alone], start[alone], int(start.max()) + 1)
        kinds = np.bincount(task[alone][segments.first_rows(*pairs)], minlength=int(task.max()) + 1)
        found[of[alone & (kinds > 1)[task]]] = True
    return found


def _established(task: Ints, of: Ints, groups: int) -> Bools:
    """Groups in which two first states each belong to several attempts, or to another group too."""
    pair, count = segments.pairs(of, task, int(task.max(initial=-1)) + 1)
    first = segments.first_rows(pair, count)
    elsewhere = np.bincount(task[first]) > 1
    established = (segments.size(pair, count) > 1) | elsewhere[task[first]]
    found: Bools = np.bincount(of[first], weights=established, minlength=groups) > 1
    return found


def _difference(texts: dict[int, str], stable: Ints, task: Ints, attempt: int) -> str:
    """What two first states differ in that are the same but for an id."""
    one, two = [texts[code] for code in texts if stable[code] == task[attempt]][:2]
    ids = zip(*map(UNSTABLE.findall, (one, two)), strict=False)
    return next((f"{a[:60]!r} and {b[:60]!r}" for a, b in ids if a != b), "an id")


class _Words:
    """The words of the first states of each group, without those that most groups share."""

    def __init__(self, texts: Sequence[str], task: Ints, of: Ints, groups: int) -> None:
        order = np.argsort(of, kind="stable")
        bounds = np.searchsorted(of[order], np.arange(groups + 1))
        shown: list[list[int]] = []  # texts of evenly spaced attempts
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            places = np.unique(np.linspace(begin, max(begin, end - 1), SHOWN).astype(np.int64))
            shown.append(task[order[places]].tolist() if end > begin else [])
        self.shown = shown
        kept = {text for group in shown for text in group}
        words_of = cache(lambda line: WORD.findall(line.lower()))
        self.sequences: dict[int, list[str]] = {
            text: [*chain.from_iterable(map(words_of, texts[text].split("\n")))] for text in kept
        }
        self.words = {text: frozenset(words) for text, words in self.sequences.items()}
        counts = Counter(
            word
            for group in shown
            for word in frozenset().union(*(self.words[text] for text in group))
        )
        several = sum(map(bool, shown)) > 1
        common = {word for word, count in counts.items() if several and 2 * count > len(shown)}
        self.words = {text: words - common for text, words in self.words.items()}
        self.length = float(np.median([len(words) for words in self.words.values()] or [0]))

    def shared(self, one: int, other: int) -> float:
        """Words that two texts share, of all words that are in either."""
        if one == other:
            return 1.0
        union = len(self.words[one] | self.words[other])
        return len(self.words[one] & self.words[other]) / union if union else 1.0

    def within(self, groups: Ints) -> float:
        """Mean over groups of the words that two attempts share; NaN without a group."""
        means = [
            np.mean([self.shared(*pair) for pair in combinations(self.shown[number], 2)])
            for number in groups[:: max(1, groups.size // TASKS)]
            if len(self.shown[number]) > 1
        ]
        return float(np.mean(means)) if means else np.nan

    def between(self) -> float:
        """Mean of the words that attempts at different tasks share; NaN if there is one task."""
        first = [group[0] for group in self.shown if group]
        first = first[:: max(1, len(first) // TASKS)]
        rng = np.random.default_rng(0)
        pairs = list(combinations(range(len(first)), 2))
        if len(pairs) > 4 * TASKS:
            pairs = [pairs[place] for place in rng.choice(len(pairs), 4 * TASKS, replace=False)]
        values = [self.shared(first[one], first[other]) for one, other in pairs]
        return float(np.mean(values)) if values else np.nan

    def are_filled_in(self, number: int) -> bool:
        """Whether most first states of a group are one text with other words at some places."""
        pairs = [pair for pair in combinations(self.shown[number], 2) if pair[0] != pair[1]]
        alike = 0
        for pair in pairs:
            one, other = (self.sequences[text] for text in pair)
            equal = sum(map(eq, one, other))
            alike += len(one) == len(other) and 2 * equal >= len(one)
        return 2 * alike > len(pairs)

    def parts(self, number: int, limit: float) -> list[set[int]]:
        """The attempts of a group in parts: two are in one if they share more than this."""
        shown, parts = self.shown[number], list[set[int]]()
        for place in range(len(shown)):
            near = [p for p in parts if any(self.shared(shown[place], shown[o]) > limit for o in p)]
            parts = [p for p in parts if p not in near] + [{place}.union(*near)]
        return parts
