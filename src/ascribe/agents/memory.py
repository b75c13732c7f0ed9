"""Memories: which turns the prompt shows.

A memory is any function from all turns, oldest first, to those that are shown. It may leave turns
out, and it may rewrite them: for instance, put a summary in place of an observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ascribe.agents.agent import Turn


@dataclass(frozen=True)
class LastTurns:
    """The last ``count`` turns (GiGPO: 2 for ALFWorld and WebShop)."""

    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count must be at least 0, not {self.count}")

    def __call__(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The end of the turns."""
        return turns[max(0, len(turns) - self.count) :]


@dataclass(frozen=True)
class FullHistory:
    """Every turn (GiGPO: for search)."""

    def __call__(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The turns."""
        return turns
