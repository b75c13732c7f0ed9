"""TRL: ``AscribeTrainer`` for ``GRPOTrainer``, ``AscribeAsyncTrainer`` for ``AsyncGRPOTrainer``."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ascribe.engines.trl.async_trainer import AscribeAsyncTrainer
    from ascribe.engines.trl.trainer import AscribeTrainer

__all__ = ["AscribeAsyncTrainer", "AscribeTrainer", "last_checkpoint"]

PREFIX = "checkpoint-"

MODULES = {"AscribeAsyncTrainer": "async_trainer", "AscribeTrainer": "trainer"}


def __getattr__(name: str) -> Any:
    # TRL and torch are loaded for the trainers alone: the other modules do without them.
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)


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
