"""Sequences for tests: drawn by hypothesis, and read by a loop that is easy to check."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ascribe import StepTable


@dataclass
class Case:
    """Ragged sequences; those of one episode follow each other."""

    tokens: list[list[int]] = field(default_factory=list)
    mask: list[list[int]] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    trajectory: list[int] = field(default_factory=list)

    @property
    def turns(self) -> list[int]:
        return [len(runs(mask)) for mask in self.mask]


def runs(mask: Any) -> list[tuple[int, int]]:
    """Start and end of each run of ones."""
    found, start = [], None
    for place, value in enumerate([*mask, 0]):
        if value and start is None:
            start = place
        elif not value and start is not None:
            found.append((start, place))
            start = None
    return found


class Draws:
    """Choices that are read from bytes: far cheaper than one draw for each, and they shrink."""

    def __init__(self, data: bytes) -> None:
        self.data = iter(data)

    def below(self, end: int) -> int:
        return next(self.data, 0) % end

    def choice(self, values: Any) -> Any:
        return values[self.below(len(values))]


draws = st.binary(min_size=40, max_size=40).map(Draws)


def sequence(draw: Draws) -> tuple[list[int], list[int]]:
    """Runs and gaps of any length, also none at all."""
    mask = [
        written
        for size, written in [(draw.below(4), draw.below(2)) for _ in range(draw.below(8))]
        for _ in range(size)
    ]
    return [draw.below(4) for _ in mask], mask


def cases(forks: bool = True) -> st.SearchStrategy[Case]:
    """Episodes of one or several sequences; a fork goes on from a prefix of another."""
    return st.binary(min_size=150, max_size=200).map(lambda data: read_case(Draws(data), forks))


def read_case(draw: Draws, forks: bool) -> Case:
    case = Case()
    for number in range(draw.below(5)):
        group = draw.choice("ab")
        drawn = [sequence(draw)]
        for _ in range(draw.below(3) if forks else 0):
            tokens, mask = draw.choice(drawn)
            cut = draw.below(len(tokens) + 1)
            more = sequence(draw)
            drawn.append((tokens[:cut] + more[0], mask[:cut] + more[1]))
        for tokens, mask in drawn:
            case.tokens.append(tokens)
            case.mask.append(mask)
            case.group.append(group)
            case.trajectory.append(number)
    return case


def padded(rows: list[Any], left: list[int], width: int, fill: int = 0) -> Any:
    """The rows in one array, each with its own padding on the left."""
    array = np.full((len(rows), width), fill, np.concatenate([[0], *rows]).dtype)
    for number, (row, begin) in enumerate(zip(rows, left, strict=True)):
        array[number, begin : begin + len(row)] = row
    return array


def sort(table: StepTable) -> list[dict[str, Any]]:
    """The rows by trajectory and step."""
    return sorted(table.to_dicts(), key=lambda row: (row["trajectory"], row["step"]))
