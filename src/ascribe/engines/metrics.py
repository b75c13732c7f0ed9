"""The metrics of an iteration, their names, and the file ``metrics.jsonl`` that holds them."""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascribe.diagnose import diagnose
from ascribe.engines.crediting import CreditedSteps
from ascribe.steps.atomic import write_file
from ascribe.steps.hints import duration
from ascribe.steps.strict_json import loads, without_nan

NAME = "metrics.jsonl"

HELD_OUT = "eval/ascribe/success"
"""Share of held-out episodes won, in ``metrics.jsonl`` of either engine."""
THRESHOLD = 0.5
"""Share whose first iteration is told, unless ``evaluation.threshold`` says otherwise."""

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

LOGGED = {
    "success": "share of episodes won",
    "success/FAMILY": "the same in each family of tasks, where there are several",
    "return": "mean sum of rewards of an episode",
    "episodes": "episodes in groups that count",
    "turns": "decisions of an episode",
    "invalid_share": "share of decisions that were invalid",
    "parse_rate": "share of responses that hold a well-formed action",
    "dropped_groups": "groups that do not count",
    "dropped/REASON": "those by reason, in iterations that have one",
    "failed": "episodes that failed for good",
    "retries": "how often an episode was taken up again",
    "signal_share": "share of steps that some term credits",
    "singleton_share": "share of state groups with one step",
    "singleton_share_of_rows": "share of steps that are alone in their state",
    "mean_group_size": "steps of a state group",
    "matched_pairs": "pairs of steps in one state group, which can be compared",
    "advantage_rms": "root mean square of the advantage",
    "rms/TERM": "the same of each term, such as `episode` and `step`",
    "credit/radius": "largest distance of states that count as the same",
    "credit/median_size": "median size of a cluster",
    "credit/collapsed_groups": "tasks of which one cluster holds nearly all steps",
    "credit/key_share": "share of actions that have a key",
    "credit/pace": "BiPACE's row mix: share of steps credited by peers that did the same",
    "credit/leave_one_out": "share of steps that have only others to be compared with",
    "credit/singleton": "share of steps that are alone in their cluster",
    "credit/contrasting_clusters": "share of clusters in which different things were done",
    "credit/keys_per_cluster": "different things done in a cluster",
    "credit/scale_factor": "what the step term was multiplied by, with `scale: equal`",
    "credit/contribution/AGENT": "CCPO: what an agent added to the team's return, in the mean",
    "credit/trust": "CCPO's Think-Solve: weight of the team's return for the second agent",
    "credit/bonus_mean": "IBPO: mean bonus of an answer",
    "credit/overtakes": "answers that a bonus lifts over a right one",
    "credit/unjudged": "wrong answers without a judged correction",
    "credit/corrections": "corrections that were played",
    "credit/corrections_right": "share of corrections that are right",
    "credit/weight_limit": "weight up to which the bonus lowers the variance",
    "rows": "rows in the update",
    "rows_skipped": "rows left out, for they have no advantage (TRL)",
    "rows_padded": "empty rows",
    "versions/trajectory_mean": "policy versions from the first to the last response of an episode "
    "(verl), also `_max`",
    "versions/group_mean": "the same over all episodes of a group, also `_max`",
    "versions/lag_mean": "updates since an episode's first response was sampled, also `_max`",
    "surplus_groups": "groups beyond those needed, by `rollout.oversample` (verl)",
    "stale_groups": "groups of more policy versions than `rollout.versions` (verl)",
    "missing": "episodes that raised, and left no row (verl)",
    "seconds/PHASE": "`rollout`, `logprobs`, `credit` and `update` (TRL; verl has `timing_s`)",
}
"""What each metric means, by its name without ``ascribe/``. A word in capitals stands for many."""


def credit_metrics(credited: CreditedSteps) -> dict[str, float]:
    """Which groups were dropped, and where the signal is."""
    metrics: dict[str, float] = {"dropped_groups": len(credited.dropped)}
    for reason, count in Counter(credited.dropped.values()).items():
        metrics[f"dropped/{reason}"] = count
    if credited.credit is not None:
        diagnosis = diagnose(credited.table, credited.credit)
        metrics["signal_share"] = diagnosis.signal_share
        metrics["advantage_rms"] = diagnosis.advantage_rms
        metrics |= {f"rms/{name}": value for name, value in diagnosis.term_rms.items()}
        if diagnosis.states is not None:
            metrics["singleton_share"] = diagnosis.states.singleton_share_of_groups
            metrics["singleton_share_of_rows"] = diagnosis.states.singleton_share_of_rows
            metrics["mean_group_size"] = diagnosis.states.mean_size
            metrics["matched_pairs"] = diagnosis.states.matched_pairs
        metrics |= {f"credit/{name}": value for name, value in credited.credit.metrics.items()}
    return prefixed(metrics)


def prefixed(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics under the names that they are logged by."""
    return {f"ascribe/{name}": float(value) for name, value in metrics.items()}


class Stopwatch:
    """Seconds of each phase; time counts for the innermost phase alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._phases: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time spent inside belongs to this phase."""
        self._charge()
        self._phases.append(phase)
        try:
            yield
        finally:
            self._charge()
            self._phases.pop()

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the last lap."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._phases:
            self._seconds[self._phases[-1]] += now - self._since
        self._since = now


class MetricsFile:
    """Appends to ``metrics.jsonl`` in a folder, one line of JSON for each iteration.

    Args:
        folder: the output folder of the run.
        done: iterations to keep. A resumed run removes the lines after its checkpoint, since it
            plays those iterations again.
    """

    def __init__(self, folder: str | Path, done: int = 0) -> None:
        self.path = Path(folder) / NAME
        kept = [line for line in read_metrics(folder) if line["iteration"] <= done]
        write_file(self.path, "".join(map(_line, kept)))
        self.seconds = float(kept[-1].get("seconds") or 0) if kept else 0.0
        """How long the run had taken when the last of these lines was written."""
        self._last = dict(kept[-1]) if kept else {}

    def add(self, iteration: int, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of an iteration, counted from 1; they add to those it has."""
        before, line = "", {"iteration": iteration, **metrics}
        if self._last.get("iteration") == iteration:
            before, line = _line(self._last), {**self._last, **metrics}
        with self.path.open("r+b") as file:
            start = file.seek(-len(before.encode()), os.SEEK_END)
            try:
                file.write(_line(line).encode())
                file.flush()
            except OSError:  # the disk is full: half a line would spoil the next one
                os.pwrite(file.fileno(), before.encode(), start)
                os.truncate(self.path, start + len(before.encode()))
                raise
        self._last = line


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` in a folder, without an incomplete last line.

    Raises:
        ValueError: for a line that ``MetricsFile`` did not write, with its number.
    """
    path = Path(folder) / NAME
    if not path.exists():
        return []
    if not path.is_file():  # reading a pipe would wait for a writer
        raise ValueError(f"{path} is not a regular file; give the folder of a run of ascribe train")
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} of {path} is not JSON: {error}; remove it") from error
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if type(iteration) is not int or not 0 <= iteration < 2**63:
            raise ValueError(f"line {number} of {path} has no iteration number; remove it")
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
