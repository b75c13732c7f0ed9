"""``metrics.jsonl`` as a run writes it, and the line that it prints for each iteration."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import HELD_OUT, NAME, read_metrics
from ascribe.steps.atomic import write_file
from ascribe.steps.hints import duration
from ascribe.steps.strict_json import without_nan

LINE = {
    "ascribe/success": "{:.0%} of episodes won",
    HELD_OUT: "{:.0%} of held-out tasks won",
    "ascribe/return": "return {:.3g}",
    "ascribe/signal_share": "{:.0%} of steps with a signal",
    "ascribe/invalid_share": "{:.0%} of actions invalid",
    "loss": "loss {:.3g}",
    "actor/pg_loss": "loss {:.3g}",
}
"""What ``iteration_line`` shows of each metric."""


class MetricsFile:
    """``metrics.jsonl`` in a folder, with one line of JSON for each iteration.

    It is small, and replaced as a whole: a full disk or a kill leaves the lines that were there.

    Args:
        folder: the output folder of the run.
        done: iterations to keep. A resumed run removes the lines after its checkpoint, since it
            plays those iterations again.
    """

    def __init__(self, folder: str | Path, done: int = 0) -> None:
        self.path = Path(folder) / NAME
        self._lines = [line for line in read_metrics(folder) if line["iteration"] <= done]
        write_file(self.path, "".join(map(_line, self._lines)))
        before = float(self._lines[-1].get("seconds") or 0) if self._lines else 0.0
        self._began = time.perf_counter() - before

    def add(self, iteration: int, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of an iteration, counted from 1; they add to those it has."""
        lines = {line["iteration"]: line for line in self._lines}
        lines[iteration] = {"iteration": iteration, **lines.get(iteration, {}), **metrics}
        write_file(self.path, "".join(map(_line, lines.values())))
        self._lines = list(lines.values())

    def log(self, iteration: int, iterations: int, metrics: Mapping[str, Any]) -> None:
        """Write the metrics and the seconds of the run so far, and print a line for people."""
        values = {**metrics, "seconds": round(time.perf_counter() - self._began, 3)}
        self.add(iteration, values)
        print(iteration_line(iteration, iterations, values), file=sys.stderr, flush=True)


def iteration_line(iteration: int, iterations: int, metrics: Mapping[str, Any]) -> str:
    """The metrics of an iteration in one line for people, with the time that is left."""
    parts = []
    for name, form in LINE.items():
        if (value := metrics.get(name)) is not None:
            parts.append(form.format(float(value)))
    seconds = float(metrics.get("seconds") or 0)
    if iteration and seconds:
        left = seconds / iteration * (iterations - iteration)
        parts.append(f"{duration(seconds)} so far" + f", about {duration(left)} left" * (left > 0))
    return f"iteration {iteration}/{iterations}: {', '.join(parts)}"


def _line(metrics: Mapping[str, Any]) -> str:
    """A line of JSON; numbers of numpy and torch become Python's, NaN and infinity null."""
    plain = {k: value.item() if hasattr(value, "item") else value for k, value in metrics.items()}
    return json.dumps(without_nan(plain), allow_nan=False) + "\n"
