"""The metrics of an iteration, their names, and how a run's ``metrics.jsonl`` is read."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascribe.diagnose import diagnose
from ascribe.engines.crediting import CreditedSteps
from ascribe.steps.strict_json import loads

NAME = "metrics.jsonl"

HELD_OUT = "eval/ascribe/success"
"""Share of held-out episodes won, in ``metrics.jsonl`` of either engine."""
THRESHOLD = 0.5
"""Share whose first iteration is told, unless ``evaluation.threshold`` says otherwise."""

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
