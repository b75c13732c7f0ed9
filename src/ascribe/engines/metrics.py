"""The metrics of an iteration, and how a run's ``metrics.jsonl`` is read.

``docs/check.md`` has every name with its meaning.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from ascribe.engines.crediting import CreditedSteps
from ascribe.estimators.credit import join_metrics
from ascribe.estimators.diagnostics import added, diagnosis, sums
from ascribe.steps.errors import InputError
from ascribe.steps.strict_json import loads

NAME = "metrics.jsonl"

HELD_OUT = "eval/ascribe/success"
"""Share of held-out episodes won, in ``metrics.jsonl`` of either engine."""
THRESHOLD = 0.5
"""Share whose first iteration is told, unless ``evaluation.threshold`` says otherwise."""


def credit_metrics(credited: CreditedSteps) -> dict[str, float]:
    """Which groups were dropped, and where the signal is."""
    return joined_metrics([credit_facts(credited)])


def credit_facts(credited: CreditedSteps) -> dict[str, Any]:
    """What ``joined_metrics`` needs to know of some groups of a batch."""
    told: dict[str, Any] = {"dropped": credited.dropped, "without_reward": credited.without_reward}
    if credited.credit is not None:
        told["sums"] = sums(credited.table, credited.credit)
        told["metrics"] = credited.credit.metrics
    return told


def joined_metrics(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of a batch from the facts of its groups, each in one part."""
    dropped = [reason for part in parts for reason in part["dropped"].values()]
    metrics: dict[str, float] = {"dropped_groups": len(dropped)}
    metrics |= {f"dropped/{reason}": count for reason, count in Counter(dropped).items()}
    if unlabelled := sum(part.get("without_reward", 0) for part in parts):
        metrics["without_reward"] = unlabelled
    if credited := [part for part in parts if "sums" in part]:
        told = diagnosis(reduce(added, (part["sums"] for part in credited)))
        metrics["signal_share"] = told.signal_share
        metrics["advantage_rms"] = told.advantage_rms
        metrics |= {f"rms/{name}": value for name, value in told.term_rms.items()}
        if told.states is not None:
            metrics["singleton_share"] = told.states.singleton_share_of_groups
            metrics["singleton_share_of_rows"] = told.states.singleton_share_of_rows
            metrics["mean_group_size"] = told.states.mean_size
            metrics["matched_pairs"] = told.states.matched_pairs
        own = join_metrics([part["metrics"] for part in credited])
        metrics |= {f"credit/{name}": value for name, value in own.items()}
    return prefixed(metrics)


def prefixed(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics under the names that they are logged by."""
    return {f"ascribe/{name}": float(value) for name, value in metrics.items()}


class Stopwatch:
    """Seconds of each phase; time counts for the innermost phase alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time spent inside belongs to this phase, but for that of phases inside it."""
        began, before = time.perf_counter(), sum(self._seconds.values())
        try:
            yield
        finally:
            inner = sum(self._seconds.values()) - before
            self._seconds[phase] += time.perf_counter() - began - inner

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the last lap."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` in a folder, without an incomplete last line.

    Raises:
        ValueError: for a line that ``MetricsFile`` did not write, with its number.
    """
    path = Path(folder) / NAME
    if not path.exists():
        return []
    if not path.is_file():  # reading a pipe would wait for a writer
        raise InputError(
            f"{path} is not a regular file", hint="give the folder of a run of ascribe train"
        )
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = loads(line)
        except ValueError as error:
            raise InputError(
                f"line {number} of {path} is not JSON: {error}", hint="remove it"
            ) from error
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if type(iteration) is not int or not 0 <= iteration < 2**63:
            raise InputError(f"line {number} of {path} has no iteration number", hint="remove it")
        rows.append(row)
    return rows


def steps_to(rows: Iterable[Mapping[str, Any]], name: str, threshold: float) -> int | None:
    """The first iteration whose metric reaches a threshold; None if none does."""
    return next((row["iteration"] for row in rows if (row.get(name) or 0) >= threshold), None)


def evaluation_summary(lines: Iterable[Mapping[str, Any]], threshold: float) -> str | None:
    """How the held-out tasks went in a run, in a sentence; None if none were played."""
    rows = [row for row in lines if isinstance(row.get(HELD_OUT), int | float)]
    if not rows:
        return None
    best = max(rows, key=lambda row: row[HELD_OUT])
    reached = steps_to(rows, HELD_OUT, threshold)
    when = "not reached" if reached is None else f"first reached in iteration {reached}"
    return (
        f"Held-out tasks won: {rows[0][HELD_OUT]:.1%} in iteration {rows[0]['iteration']}, "
        f"{best[HELD_OUT]:.1%} at best (val@max, iteration {best['iteration']}), "
        f"{rows[-1][HELD_OUT]:.1%} in the last evaluation; {threshold:.1%} {when}."
    )
