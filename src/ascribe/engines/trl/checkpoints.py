"""Checkpoints that are whole: a run that was killed may leave one half written."""

import json
from pathlib import Path

PREFIX = "checkpoint-"
STATE = "trainer_state.json"
"""What a checkpoint gets last."""


def last_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint in a folder that was written to its end; None if there is none."""
    found = [
        path
        for path in Path(folder).glob(f"{PREFIX}*")
        if path.name.removeprefix(PREFIX).isdigit() and _is_whole(path)
    ]
    return max(found, key=lambda path: int(path.name.removeprefix(PREFIX)), default=None)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / STATE).read_text())
    except (OSError, ValueError):
        return False
    return True
