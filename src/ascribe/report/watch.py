"""The metrics of a run in progress, from its ``metrics.jsonl``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import HELD_OUT as HELD_OUT_METRIC
from ascribe.engines.metrics import THRESHOLD, evaluation_summary, read_metrics

BARS = "▁▂▃▄▅▆▇█"
LONGEST = 40
"""Iterations that a sparkline shows."""

SUCCESS, HELD_OUT = "success", "held_out"
"""Columns: training episodes and held-out tasks won."""

WATCHED = {
    "ascribe/success": (SUCCESS, "success", True),
    HELD_OUT_METRIC: (HELD_OUT, "held-out tasks won", True),
    "ascribe/return": ("return", "return of an episode", False),
    "ascribe/signal_share": ("signal_share", "steps with a signal", True),
    "ascribe/singleton_share": ("singleton_share", "state groups with one step", True),
    "ascribe/matched_pairs": ("matched_pairs", "pairs of steps to compare", False),
    "ascribe/mean_group_size": ("mean_group_size", "steps of a state group", False),
    "ascribe/credit/pace": ("pace", "credited by same-action peers", True),
    "ascribe/credit/leave_one_out": ("leave_one_out", "credited by leave-one-out", True),
    "ascribe/credit/singleton": ("singleton", "alone in their cluster", True),
    "ascribe/parse_rate": ("parse_rate", "responses with an action", True),
    "ascribe/invalid_share": ("invalid_share", "invalid actions", True),
    "ascribe/turns": ("turns", "turns of an episode", False),
    "ascribe/dropped_groups": ("dropped_groups", "groups dropped", False),
    "ascribe/advantage_rms": ("advantage_rms", "size of the advantage", False),
    "ascribe/rms/episode": ("episode_rms", "size of the episode term", False),
    "ascribe/rms/step": ("step_rms", "size of the step term", False),
    "loss": ("loss", "loss", False),
    "grad_norm": ("grad_norm", "norm of the gradient", False),
    "entropy": ("entropy", "entropy", False),
    "completions/mean_length": ("response_tokens", "tokens of a response", False),
    "actor/pg_loss": ("loss", "loss", False),
    "actor/grad_norm": ("grad_norm", "norm of the gradient", False),
    "actor/entropy": ("entropy", "entropy", False),
    "response_length/mean": ("response_tokens", "tokens of a response", False),
}
"""Column in tables and label of each metric, and whether it is a share. Both engines log the names
under ``ascribe/``; the last ones are TRL's and verl's own."""


@dataclass(frozen=True)
class Series:
    """One metric over the iterations; None where an iteration has none."""

    name: str
    column: str
    label: str
    is_share: bool
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The newest value; of held-out tasks, which are not always played, the newest there is."""
        return self._last_two[1]

    @property
    def change(self) -> float | None:
        """The newest value less the one before."""
        previous, newest = self._last_two
        return None if previous is None or newest is None else newest - previous

    @property
    def _last_two(self) -> tuple[float | None, float | None]:
        sometimes = self.column == HELD_OUT
        values = [one for one in self.values if one is not None or not sometimes]
        *_, previous, newest = (None, None, *values)
        return previous, newest

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

    iterations: tuple[int, ...]
    """Those with a line of metrics; 0 is before the first update."""
    seconds: float | None
    """Since the run began."""
    series: tuple[Series, ...]
    threshold: float
    """``evaluation.threshold`` of the run."""
    summary: str | None
    """How held-out tasks went: at the start, at best, at last, and when the threshold was reached;
    None if none were played."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for each iteration, a column for each metric."""
        columns = {series.column: series.values for series in self.series}
        return [
            {"iteration": number, **{name: values[row] for name, values in columns.items()}}
            for row, number in enumerate(self.iterations)
        ]


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
        Series(name, *about, tuple(_number(line.get(name)) for line in lines))
        for name, about in WATCHED.items()
        if name in present
    )
    numbers, threshold = tuple(line["iteration"] for line in lines), _threshold(folder)
    summary = evaluation_summary(lines, threshold)
    return RunMetrics(numbers, _seconds(lines), series, threshold, summary)


def _threshold(folder: Path) -> float:
    """``evaluation.threshold`` of the run, or its default where the config cannot be read."""
    try:
        from ascribe.engines.load import load_config

        return load_config(folder / "config.yaml").config.evaluation.threshold
    except (ImportError, OSError, ValueError):
        return THRESHOLD


def _seconds(lines: Sequence[dict[str, Any]]) -> float | None:
    """Since the run began: TRL logs it, verl logs the seconds of each iteration."""
    if (seconds := _number(lines[-1].get("seconds"))) is not None:
        return seconds
    steps = [_number(line.get("timing_s/step")) for line in lines]
    return _number(sum(step for step in steps if step is not None)) if any(steps) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else None
