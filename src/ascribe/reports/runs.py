"""What a report reads of a training run: its metrics, and a few keys of its config."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.engines import training_recipe
from ascribe.engines.metrics import HELD_OUT as HELD_OUT_METRIC
from ascribe.engines.metrics import THRESHOLD, evaluation_summary, read_metrics
from ascribe.estimators import DEFAULT, Recipe
from ascribe.steps.errors import InputError
from ascribe.steps.strict_yaml import read_yaml

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
class RunConfig:
    """What a report needs of the config of a run."""

    method: str
    """Name of the recipe."""
    preset: str | None
    parameters: dict[str, Any]
    threshold: float
    """``evaluation.threshold``."""

    def recipe(self) -> Recipe:
        """The recipe that the run was credited by."""
        return training_recipe(self.method, self.preset, **self.parameters)


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run so far."""

    config: RunConfig
    rows: list[dict[str, Any]]
    """A row for each iteration with its number (0 is before the first update), and a column for
    each metric that the run has; None where an iteration has none."""
    summary: str | None
    """How held-out tasks went: at the start, at best, at last, and when the threshold was reached;
    None if none were played."""


def read_run(folder: str | Path) -> RunMetrics | None:
    """The metrics of the run in a folder; None if it has not written any yet.

    Raises:
        ImportError: without PyYAML.
        OSError: if its metrics, its ``config.yaml`` or its calibration cannot be read.
        ValueError: if they are not what ``ascribe train`` writes.
    """
    folder = Path(folder)
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
    config = _read_config(folder / "config.yaml")
    return RunMetrics(config, rows, evaluation_summary(lines, config.threshold))


def _read_config(path: Path) -> RunConfig:
    document = read_yaml(path)
    recipe, fingerprints, evaluation = (
        _section(document, name, path) for name in ("recipe", "fingerprints", "evaluation")
    )
    parameters = dict(_section(recipe, "parameters", path))
    radius, calibration = fingerprints.get("radius"), fingerprints.get("calibration")
    if radius is None and calibration is not None:
        file = Path(str(calibration))
        radius = _section(read_yaml(file), "setting", file).get("radius")
    if radius is not None:
        parameters["radius"] = radius
    method, preset = recipe.get("name", DEFAULT), recipe.get("preset")
    threshold = evaluation.get("threshold", THRESHOLD)
    if not isinstance(method, str) or not isinstance(preset, str | None):
        raise InputError(f"{path}: recipe.name and recipe.preset must be text")
    if not isinstance(threshold, int | float):
        raise InputError(f"{path}: evaluation.threshold must be a number, not {threshold!r}")
    return RunConfig(method, preset, parameters, threshold)


def _section(document: Any, name: str, path: Path) -> dict[str, Any]:
    section = document.get(name) if isinstance(document, dict) else document
    if not isinstance(section, dict | None):
        raise InputError(f"{path}: {name} must hold keys and values")
    return section or {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else None
