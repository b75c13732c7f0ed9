"""The numbers of a run while it goes on, from its ``metrics.jsonl``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import read_metrics

BARS = "▁▂▃▄▅▆▇█"
LONGEST = 40
"""Iterations that a sparkline shows."""

WATCHED = {
    "ascribe/success": ("success", True),
    "ascribe/return": ("return of an episode", False),
    "ascribe/signal_share": ("steps with a signal", True),
    "ascribe/singleton_share": ("steps alone in their state", True),
    "ascribe/invalid_share": ("invalid actions", True),
    "ascribe/turns": ("turns of an episode", False),
    "ascribe/dropped_groups": ("groups dropped", False),
    "ascribe/advantage_rms": ("size of the advantage", False),
    "ascribe/rms/episode": ("size of the episode term", False),
    "ascribe/rms/step": ("size of the step term", False),
    "loss": ("loss", False),
    "grad_norm": ("norm of the gradient", False),
    "actor/pg_loss": ("loss", False),
    "actor/grad_norm": ("norm of the gradient", False),
}
"""What is watched, by name: its label, and if it is a share. Both engines log the names under
``ascribe/``; the last ones are TRL's and verl's own."""


@dataclass(frozen=True)
class Series:
    """One number over the iterations; None where an iteration has none."""

    name: str
    label: str
    is_share: bool
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.values[-1]

    @property
    def change(self) -> float | None:
        """The newest value less the one before."""
        if len(self.values) < 2 or self.values[-1] is None or self.values[-2] is None:
            return None
        return self.values[-1] - self.values[-2]

    def sparkline(self) -> str:
        """The last iterations as bars between their smallest and largest value."""
        shown = self.values[-LONGEST:]
        known = [value for value in shown if value is not None]
        low, high = min(known, default=0.0), max(known, default=0.0)
        return "".join(" " if value is None else _bar(value, low, high) for value in shown)


@dataclass(frozen=True)
class RunMetrics:
    """How far a run is, and its numbers."""

    iteration: int
    seconds: float | None
    """Since the run began."""
    series: tuple[Series, ...]


def read_run(folder: str | Path) -> RunMetrics | None:
    """The numbers of the run in a folder; None while it has written none.

    Raises:
        OSError: if the folder or its metrics cannot be read.
        ValueError: if the metrics are not what ``ascribe train`` writes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(20, "no such folder", str(folder))
    lines = read_metrics(folder)
    if not lines:
        return None
    if not all(isinstance(line, dict) and isinstance(line.get("iteration"), int) for line in lines):
        raise ValueError(f"a line of the metrics in {folder} names no iteration")
    return RunMetrics(lines[-1]["iteration"], _seconds(lines), _series(lines))


def _seconds(lines: Sequence[dict[str, Any]]) -> float | None:
    """Since the run began: TRL's runs tell, verl's tell how long each iteration took."""
    if (told := _number(lines[-1].get("seconds"))) is not None:
        return told
    steps = [_number(line.get("timing_s/step")) for line in lines]
    return sum(step for step in steps if step is not None) if any(steps) else None


def _series(lines: Sequence[dict[str, Any]]) -> tuple[Series, ...]:
    present = {name for line in lines for name in line}
    return tuple(
        Series(name, label, is_share, tuple(_number(line.get(name)) for line in lines))
        for name, (label, is_share) in WATCHED.items()
        if name in present
    )


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else None


def _bar(value: float, low: float, high: float) -> str:
    if high == low:
        return BARS[0]
    return BARS[round((value - low) / (high - low) * (len(BARS) - 1))]
