"""Repositories with planted bugs: a few modules of small functions, their tests, and an issue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MODULES = {
    "lists.py": '''\
def windows(values, size):
    """All runs of neighbouring values."""
    return [values[i : i + size] for i in range(len(values) - size + 1)]


def chunks(values, size=2):
    """Cut into parts, by default pairs."""
    return [values[i : i + size] for i in range(0, len(values), size)]
''',
    "prices.py": '''\
def total(prices, tax=0.5):
    """The sum with tax."""
    return sum(prices) * (1 + tax)


def reduced(price, percent):
    """The price less a discount, never below 0."""
    if percent > 100: return 0
    return price - price * percent / 100
''',
    "texts.py": '''\
def shorten(text, limit):
    """At most so many characters, the end as dots."""
    if len(text) <= limit: return text
    return text[: limit - 3] + "..."


def renamed(text, old, new):
    """A word in the place of another."""
    return text.replace(old, new)
''',
}
CHECKS = {
    "lists.py": (
        ("windows([1, 2, 3], 2) == [[1, 2], [2, 3]]", "windows([4], 1) == [[4]]"),
        ("chunks([1, 2, 3]) == [[1, 2], [3]]", "chunks([1, 2, 3], 3) == [[1, 2, 3]]"),
    ),
    "prices.py": (
        ("total([10, 20], 0) == 30", "total([10]) == 15", "total([]) == 0"),
        ("reduced(50, 10) == 45", "reduced(50, 200) == 0"),
    ),
    "texts.py": (
        ('shorten("horizon", 6) == "hor..."', 'shorten("abc", 3) == "abc"'),
        ('renamed("a cat", "cat", "dog") == "a dog"', 'renamed("x", "y", "z") == "x"'),
    ),
}
"""What the tests of each function assert."""
TESTS = "test_project.py"


class Bug(NamedTuple):
    """A part of a module as it should be and as it is, of one line, and what is said about it."""

    module: str
    kind: str
    right: str
    wrong: str
    issue: str


BUGS = (
    Bug("lists.py", "off by one", "- size + 1)", "- size)", "windows() omits the last window"),
    Bug("lists.py", "wrong default", "size=2", "size=3", "chunks() makes no pairs by default"),
    Bug("prices.py", "wrong operator", "1 + tax", "1 - tax", "totals get smaller with tax"),
    Bug(
        *("prices.py", "missing branch", "    if percent > 100: return 0\n", ""),
        "reduced() returns negative prices",
    ),
    Bug("texts.py", "off by one", "limit - 3", "limit - 2", "shorten() returns too long texts"),
    Bug(
        *("texts.py", "swapped arguments", "(old, new)\n", "(new, old)\n"),
        "renamed() does not replace the old word",
    ),
)


@dataclass(frozen=True)
class Project:
    """A repository with bugs, and how each file of it is mended."""

    stages: dict[str, list[str]]
    """Every file as it is at first, after each right edit, and as it should be."""
    issue: str
    kind: str
    tests: int
    """How many there are."""

    def edit(self, path: str, text: str, astray: int = 0) -> str | None:
        """The command that mends a file's first wrong line, or so many lines below it.

        None where the file is right, or was changed in another way.
        """
        if text not in self.stages[path][:-1]:
            return None
        now, then = text.splitlines(), self.stages[path][-1].splitlines()
        number = next(n for n, line in enumerate(then) if now[n] != line)
        missing = now[number : number + 1] == then[number + 1 : number + 2]
        place = f"{number + astray}a" if missing else f"{number + 1 + astray}c"
        return f"sed -i '{place}\\{then[number]}' {path}"


def make_project(bugs: Sequence[int], generator: np.random.Generator) -> Project:
    """A repository of two or three modules with as many bugs as one of ``bugs``."""
    modules = sorted(generator.permutation(list(MODULES))[: int(generator.integers(2, 4))].tolist())
    possible = [bug for bug in BUGS if bug.module in modules]
    drawn = generator.permutation(len(possible))[: int(generator.choice(bugs))]
    planted = [possible[number] for number in sorted(drawn)]
    tests = [
        f"\n\ndef test_{check.partition('(')[0]}_{number}():\n    assert {check}\n"
        for module in modules
        for checks in CHECKS[module]
        for number, check in enumerate(checks)
    ]
    imports = [f"from {module.removesuffix('.py')} import *\n" for module in modules]
    stages = {TESTS: ["".join([*imports, *tests])], "README.md": ["# Small functions\n"]}
    for module in modules:
        stages[module] = [MODULES[module]]
        # The first bug of a file is the first to be mended, so it is planted last.
        for bug in reversed([bug for bug in planted if bug.module == module]):
            stages[module].insert(0, stages[module][0].replace(bug.right, bug.wrong))
    issue = f"The tests fail: {' and '.join(bug.issue for bug in planted)}."
    kind = planted[0].kind if len(planted) == 1 else f"{len(planted)} bugs"
    return Project(stages, issue, kind, len(tests))
