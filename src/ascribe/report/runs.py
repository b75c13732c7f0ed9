"""The metrics of a training run, from its ``metrics.jsonl``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import HELD_OUT as HELD_OUT_METRIC
from ascribe.engines.metrics import THRESHOLD, evaluation_summary, read_metrics

SUCCESS, HELD_OUT = "success", "held_out"
"""Columns: training episodes and held-out tasks won."""

COLUMNS = {
    "ascribe/success": SUCCESS,
    HELD_OUT_METRIC: HELD_OUT,
    "ascribe/return": "return",
    "ascribe/signal_share": "signal_share",
    "ascribe/singleton_share": "singleton_share",
    "ascribe/matched_pairs": "matched_pairs",
    "ascribe/mean_group_size": "mean_group_size",
    "ascribe/credit/pace": "pace",
    "ascribe/credit/leave_one_out": "leave_one_out",
    "ascribe/credit/singleton": "singleton",
    "ascribe/parse_rate": "parse_rate",
    "ascribe/invalid_share": "invalid_share",
    "ascribe/turns": "turns",
    "ascribe/dropped_groups": "dropped_groups",
    "ascribe/advantage_rms": "advantage_rms",
    "ascribe/rms/episode": "episode_rms",
    "ascribe/rms/step": "step_rms",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "completions/mean_length": "response_tokens",
    "actor/pg_loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/entropy": "entropy",
    "response_length/mean": "response_tokens",
}
"""Column of each metric. Both engines log the names under ``ascribe/``; the last ones are TRL's and
verl's own."""


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run so far."""

    rows: list[dict[str, Any]]
    """A row for each iteration with its number (0 is before the first update), and a column for
    each metric that the run has; None where an iteration has none."""
    threshold: float
    """``evaluation.threshold`` of the run."""
    summary: str | None
    """How held-out tasks went: at the start, at best, at last, and when the threshold was reached;
    None if none were played."""


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
    logged = {name for line in lines for name in line}
    columns = {name: column for name, column in COLUMNS.items() if name in logged}
    rows = [
        {"iteration": line["iteration"]}
        | {column: _number(line.get(name)) for name, column in columns.items()}
        for line in lines
    ]
    threshold = _threshold(folder)
    return RunMetrics(rows, threshold, evaluation_summary(lines, threshold))


def _threshold(folder: Path) -> float:
    """``evaluation.threshold`` of the run, or its default where the config cannot be read."""
    try:
        from ascribe.engines.load import load_config

        return load_config(folder / "config.yaml").config.evaluation.threshold
    except (ImportError, OSError, ValueError):
        return THRESHOLD


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else None
