"""``metrics.jsonl``: one line of JSON for each iteration of a run."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


class Metrics:
    """Appends to the file of metrics in a folder.

    Args:
        folder: where it is.
        done: iterations that count; lines of later ones, which a run that is taken up from a
            checkpoint plays again, are taken out.
    """

    def __init__(self, folder: str | Path, done: int = 0) -> None:
        self.path = Path(folder) / NAME
        kept = [line for line in read_metrics(folder) if line["iteration"] <= done]
        self.path.write_text("".join(map(_line, kept)), encoding="utf-8")
        self.seconds = float(kept[-1].get("seconds") or 0) if kept else 0.0
        """How long the run had taken when the last of these lines was written."""

    def add(self, iteration: int, numbers: Mapping[str, Any]) -> None:
        """Write the numbers of an iteration, counted from 1."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line({"iteration": iteration, **numbers}))


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of the file of metrics in a folder; a last line that was cut off is left out."""
    path = Path(folder) / NAME
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _line(numbers: Mapping[str, Any]) -> str:
    known = {name: _number(value) for name, value in numbers.items()}
    return json.dumps(known, allow_nan=False) + "\n"


def _number(value: Any) -> Any:
    """A number of numpy's or torch's as Python's. JSON lacks NaN and infinity: null."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
