"""The metrics of a run in progress, from its ``metrics.jsonl``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import HELD_OUT, read_metrics

BARS = "▁▂▃▄▅▆▇█"
LONGEST = 40
"""Iterations that a sparkline shows."""

WATCHED = {
    "ascribe/success": ("success", True),
    HELD_OUT: ("held-out tasks won", True),
    "ascribe/return": ("return of an episode", False),
    "ascribe/signal_share": ("steps with a signal", True),
    "ascribe/singleton_share": ("state groups with one step", True),
    "ascribe/matched_pairs": ("pairs of steps to compare", False),
    "ascribe/mean_group_size": ("steps of a state group", False),
    "ascribe/credit/pace": ("credited by same-action peers", True),
    "ascribe/credit/leave_one_out": ("credited by leave-one-out", True),
    "ascribe/credit/singleton": ("alone in their cluster", True),
    "ascribe/parse_rate": ("responses with an action", True),
    "ascribe/invalid_share": ("invalid actions", True),
    "ascribe/turns": ("turns of an episode", False),
    "ascribe/dropped_groups": ("groups dropped", False),
    "ascribe/advantage_rms": ("size of the advantage", False),
    "ascribe/rms/episode": ("size of the episode term", False),
    "ascribe/rms/step": ("size of the step term", False),
    "loss": ("loss", False),
    "grad_norm": ("norm of the gradient", False),
    "entropy": ("entropy", False),
    "completions/mean_length": ("tokens of a response", False),
    "actor/pg_loss": ("loss", False),
    "actor/grad_norm": ("norm of the gradient", False),
    "actor/entropy": ("entropy", False),
    "response_length/mean": ("tokens of a response", False),
}
"""Label of each metric, and whether it is a share. Both engines log the names under ``ascribe/``;
the last ones are TRL's and verl's own."""


@dataclass(frozen=True)
class Series:
    """One metric over the iterations; None where an iteration has none."""

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
        *_, previous, newest = (None, *self.values)
        return None if previous is None or newest is None else newest - previous

    def sparkline(self) -> str:
        """The last iterations as bars between their smallest and largest value."""
        recent = self.values[-LONGEST:]
        present = [value for value in recent if value is not None]
        low, high = min(present, default=0.0), max(present, default=0.0)
        # By halves, since the difference of two finite numbers may be infinite.
        scale = (len(BARS) - 1) / (high / 2 - low / 2) if high > low else 0.0
        return "".join(" " if v is None else BARS[round((v / 2 - low / 2) * scale)] for v in recent)


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run so far."""

    iteration: int
    seconds: float | None
    """Since the run began."""
    series: tuple[Series, ...]


def read_run(folder: str | Path) -> RunMetrics | None:
    """The metrics of the run in a folder; None if it has not written any yet.

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
    present = {name for line in lines for name in line}
    series = tuple(
        Series(name, label, is_share, tuple(_number(line.get(name)) for line in lines))
        for name, (label, is_share) in WATCHED.items()
        if name in present
    )
    return RunMetrics(lines[-1]["iteration"], _seconds(lines), series)


def _seconds(lines: Sequence[dict[str, Any]]) -> float | None:
    """Since the run began: TRL logs it, verl logs the seconds of each iteration."""
    if (seconds := _number(lines[-1].get("seconds"))) is not None:
        return seconds
    steps = [_number(line.get("timing_s/step")) for line in lines]
    return sum(step for step in steps if step is not None) if any(steps) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else None
