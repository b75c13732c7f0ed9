"""What profiling will cost: tokens from the lengths of prompts, time from the first batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

CHARACTERS_OF_A_TOKEN = 4.0
"""Before anything is measured: English text has about so many."""


@dataclass(frozen=True)
class Estimate:
    """What is left to do."""

    answers: int
    prompt_tokens: int
    """Prompts count once for each answer, as servers bill them."""
    response_tokens: int
    seconds: float | None
    measured: bool
    """Whether a batch was measured; else the tokens of answers are the most that there can be."""

    def __str__(self) -> str:
        about = "about" if self.measured else "roughly"
        most = "" if self.measured else "at most "
        said = (
            f"{self.answers:,} answers to ask for: {about} {self.prompt_tokens:,} tokens of "
            f"prompts and {most}{self.response_tokens:,} tokens of answers"
        )
        return said if self.seconds is None else f"{said}, {_time(self.seconds)}"


class Counted(Protocol):
    """An answer with the tokens that it took."""

    @property
    def prompt_tokens(self) -> int:
        """Of the prompt; 0 if unknown."""
        ...

    @property
    def response_tokens(self) -> int:
        """Of the answer; 0 if unknown."""
        ...

    @property
    def text(self) -> str:
        """The answer."""
        ...


@dataclass
class Meter:
    """Counts what was done of a list of prompts, and estimates the rest of it."""

    lengths: Sequence[int]
    """Characters of each prompt, in the order in which they are asked."""
    max_tokens: int
    done: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0
    _read: int = field(default=0)
    """Characters of the prompts that are done."""

    def count(self, answers: Sequence[Counted], seconds: float) -> None:
        """A batch is done."""
        lengths = self.lengths[self.done : self.done + len(answers)]
        self.done += len(answers)
        self.seconds += seconds
        self._read += sum(lengths)
        for answer, length in zip(answers, lengths, strict=True):
            self.prompt_tokens += answer.prompt_tokens or round(length / CHARACTERS_OF_A_TOKEN)
            said = len(answer.text) / CHARACTERS_OF_A_TOKEN
            self.response_tokens += answer.response_tokens or round(said)

    def estimate(self) -> Estimate:
        """What is left."""
        left = len(self.lengths) - self.done
        characters = sum(self.lengths[self.done :])
        if not self.done:
            tokens = round(characters / CHARACTERS_OF_A_TOKEN)
            return Estimate(left, tokens, left * self.max_tokens, None, measured=False)
        rate = self.prompt_tokens / max(1, self._read)
        return Estimate(
            left,
            round(characters * rate),
            round(left * self.response_tokens / self.done),
            self.seconds / self.done * left,
            measured=True,
        )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
