"""Repositories with planted bugs: a few modules of small functions, their tests, and an issue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Function(NamedTuple):
    """A function, its tests, and a line of it as it should be and as a bug has it."""

    module: str
    source: str
    tests: tuple[str, ...]
    kind: str
    right: str
    wrong: str
    """None of it where the bug leaves the line out."""
    issue: str


FUNCTIONS = (
    Function(
        "lists",
        "def windows(values, size):\n"
        '    """All runs of neighbouring values."""\n'
        "    return [values[i : i + size] for i in range(len(values) - size + 1)]\n",
        ("windows([1, 2, 3], 2) == [[1, 2], [2, 3]]", "windows([4], 1) == [[4]]"),
        "off by one",
        "    return [values[i : i + size] for i in range(len(values) - size + 1)]\n",
        "    return [values[i : i + size] for i in range(len(values) - size)]\n",
        "windows() leaves out the last window",
    ),
    Function(
        "lists",
        'def chunks(values, size=2):\n    """Cut into parts, by default pairs."""\n'
        "    return [values[i : i + size] for i in range(0, len(values), size)]\n",
        ("chunks([1, 2, 3]) == [[1, 2], [3]]", "chunks([1, 2, 3], 3) == [[1, 2, 3]]"),
        "wrong default",
        "def chunks(values, size=2):\n",
        "def chunks(values, size=3):\n",
        "chunks() does not make pairs by default",
    ),
    Function(
        "prices",
        'def total(prices, tax=0.5):\n    """The sum with tax."""\n'
        "    return sum(prices) * (1 + tax)\n",
        ("total([10, 20], 0) == 30", "total([10]) == 15", "total([]) == 0"),
        "wrong operator",
        "    return sum(prices) * (1 + tax)\n",
        "    return sum(prices) * (1 - tax)\n",
        "totals get smaller with tax",
    ),
    Function(
        "prices",
        'def reduced(price, percent):\n    """The price less a discount, never below 0."""\n'
        "    if percent > 100: return 0\n"
        "    return price - price * percent / 100\n",
        ("reduced(50, 10) == 45", "reduced(50, 200) == 0"),
        "missing branch",
        "    if percent > 100: return 0\n",
        "",
        "reduced() returns negative prices",
    ),
    Function(
        "texts",
        'def shorten(text, limit):\n    """At most so many characters, the end as dots."""\n'
        "    if len(text) <= limit: return text\n"
        '    return text[: limit - 3] + "..."\n',
        ('shorten("horizon", 6) == "hor..."', 'shorten("abc", 3) == "abc"'),
        "off by one",
        '    return text[: limit - 3] + "..."\n',
        '    return text[: limit - 2] + "..."\n',
        "shorten() returns texts that are too long",
    ),
    Function(
        "texts",
        'def renamed(text, old, new):\n    """A word in the place of another."""\n'
        "    return text.replace(old, new)\n",
        ('renamed("a cat", "cat", "dog") == "a dog"', 'renamed("x", "y", "z") == "x"'),
        "swapped arguments",
        "    return text.replace(old, new)\n",
        "    return text.replace(new, old)\n",
        "renamed() does not replace the old word",
    ),
)
TESTS = "test_project.py"


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
        number, line, missing = _first_difference(text, self.stages[path][-1])
        place = number + astray if missing else number + 1 + astray
        return f"sed -i '{place}{'a' if missing else 'c'}\\{line}' {path}"


def make_project(bugs: Sequence[int], generator: np.random.Generator) -> Project:
    """A repository of two or three modules with as many bugs as one of ``bugs``."""
    modules = generator.permutation(sorted({each.module for each in FUNCTIONS}))
    chosen = modules[: int(generator.integers(2, 4))]
    used = [each for each in FUNCTIONS if each.module in chosen]
    used = [used[place] for place in generator.permutation(len(used))]
    planted = used[: int(generator.choice(bugs))]
    right, broken = ({f"{module}.py": "" for module in sorted(chosen)} for _ in range(2))
    imports, tests = [], []
    for each in used:
        name = each.source.partition("(")[0].removeprefix("def ")
        source = each.source.replace(each.right, each.wrong) if each in planted else each.source
        for files, text in ((right, each.source), (broken, source)):
            file = f"{each.module}.py"
            files[file] = f"{files[file]}\n\n{text}" if files[file] else text
        imports.append(f"from {each.module} import {name}\n")
        tests += [
            f"\n\ndef test_{name}_{number}():\n    assert {test}\n"
            for number, test in enumerate(each.tests)
        ]
    stages = {TESTS: ["".join([*sorted(imports), *tests])], "README.md": ["# Small functions\n"]}
    for file, text in broken.items():
        stages[file] = [text]
        while stages[file][-1] != right[file]:
            stages[file].append(_mended(stages[file][-1], right[file]))
    issue = f"The tests fail: {' and '.join(each.issue for each in planted)}."
    kind = planted[0].kind if len(planted) == 1 else f"{len(planted)} bugs"
    return Project(stages, issue, kind, len(tests))


def _mended(text: str, right: str) -> str:
    number, line, missing = _first_difference(text, right)
    lines = text.splitlines()
    lines[number : number + (not missing)] = [line]
    return "\n".join(lines) + "\n"


def _first_difference(text: str, right: str) -> tuple[int, str, bool]:
    """The first line that is wrong: its number, what it should be, and whether it is missing."""
    now, then = text.splitlines(), right.splitlines()
    number = next(n for n, line in enumerate(then) if now[n : n + 1] != [line])
    return number, then[number], now[number : number + 1] == then[number + 1 : number + 2]
