"""TRL: ``AscribeTrainer`` for TRL's own loops, ``EpisodeTrainer`` for Ascribe's environments."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascribe.engines.trl.tools import environment_factory, tool_tasks

if TYPE_CHECKING:
    from ascribe.engines.trl.episodes import EpisodeTrainer
    from ascribe.engines.trl.trainer import AscribeTrainer

__all__ = [
    "AscribeTrainer",
    "EpisodeTrainer",
    "environment_factory",
    "last_checkpoint",
    "tool_tasks",
]

TRAINERS = {"AscribeTrainer": "trainer", "EpisodeTrainer": "episodes"}

PREFIX = "checkpoint-"


def __getattr__(name: str) -> Any:
    # TRL and torch are loaded for the trainers alone: the other modules do without them.
    if name in TRAINERS:
        return getattr(import_module(f"ascribe.engines.trl.{TRAINERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def last_checkpoint(folder: str | Path) -> Path | None:
    """The newest complete checkpoint in a folder; a run that was killed may leave another."""
    numbers = {}
    for path in Path(folder).glob(f"{PREFIX}*"):
        try:
            json.loads((path / "trainer_state.json").read_text())  # it is written last
            numbers[int(path.name.removeprefix(PREFIX))] = path
        except (OSError, ValueError):
            continue
    return numbers[max(numbers)] if numbers else None
