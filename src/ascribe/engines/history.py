"""What a recipe hands from one iteration to the next, beside a checkpoint.

Running statistics are a value that goes in and comes out (``Credit.history``). A run that is
resumed goes on with those of its checkpoint, and computes what an unbroken run would have computed.
"""

import json
from pathlib import Path
from typing import Any

from ascribe.estimators import Recipe

FILE = "ascribe_history.json"

History = dict[str, Any] | None


def remembers(recipe: Recipe) -> bool:
    """Whether a recipe takes what it handed on."""
    return "history" in recipe.inputs


def save_history(history: History, checkpoint: str | Path) -> None:
    """Write it down; call this before what marks the checkpoint as whole is written."""
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(history))


def load_history(recipe: Recipe, checkpoint: str | Path) -> History:
    """What was handed on before the checkpoint was made.

    Raises:
        ValueError: if the recipe needs it and the checkpoint has none.
    """
    if not remembers(recipe):
        return None
    try:
        found: History = json.loads((Path(checkpoint) / FILE).read_text())
    except FileNotFoundError as error:
        raise ValueError(
            f"{recipe.name} goes on from running statistics, and {checkpoint} holds no {FILE}: it "
            "was not written by a run of this recipe; start anew, or resume with its own recipe"
        ) from error
    return found
