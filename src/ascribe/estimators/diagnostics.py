"""Metrics of a credit: how much signal there is, and why rows have none."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ascribe.estimators.credit import Credit, Reason, Term
from ascribe.groups.responses import all_calls
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, arrange, penalty_only
from ascribe.steps.errors import InputError
from ascribe.steps.returns import episode_outcome
from ascribe.steps.table import Coded, StepTable

NINETY_FIVE = 1.959964
"""How many standard errors the 95 % interval reaches to each side."""
SIZES = (1, 2, 4, 8, 16, 32)
"""Upper ends of the bins of the histogram of group sizes; a last bin holds the larger ones."""


@dataclass(frozen=True)
class StateGroups:
    """Metrics of the step-level groups.

    Attributes:
        count: number of state groups.
        mean_size: rows per group.
        singleton_share_of_groups: share of groups with one row.
        singleton_share_of_rows: share of rows that are alone in their group.
        sizes: rows-per-group histogram, by the label of the bin.
        matched_pairs: pairs of rows that can be compared.
        revisit_share: share of rows that are not the first visit of their trajectory to the state.
        zero_variance: groups of two or more whose rows all earned the same.
        cross_task: groups that hold rows of more than one task.

    Example:
        >>> states = ascribe.diagnose(table, credit).states
        >>> states.count, states.singleton_share_of_rows
        (3, 0.4)
    """

    count: int
    mean_size: float
    singleton_share_of_groups: float
    singleton_share_of_rows: float
    sizes: dict[str, int]
    matched_pairs: int
    revisit_share: float
    zero_variance: int
    cross_task: int


@dataclass(frozen=True)
class ToolCredit:
    """Metrics of the steps that call a tool.

    Attributes:
        steps: number of steps.
        mean_advantage: mean over these steps.
        positive_share: share of these steps with an advantage above 0.
        gradient_share: their share of the summed absolute advantage of all steps.

    Example:
        >>> from ascribe.estimators.diagnostics import credit_per_tool
        >>> call = {"action": '{"name": "go", "arguments": {}}'}
        >>> calls = [row | call for row in table.to_dicts()]
        >>> credit_per_tool(StepTable.from_dicts(calls), credit)["go"].steps
        5
    """

    steps: int
    mean_advantage: float
    positive_share: float
    gradient_share: float


@dataclass(frozen=True)
class Diagnosis:
    """Metrics of a credit.

    Attributes:
        rows: rows that take part (no padding).
        groups: task groups.
        trajectories: episodes.
        turns: mean number of steps of a trajectory.
        truncated_share: share of trajectories that a limit cut.
        mean_advantage: mean over rows. Baselines are over trajectories or visits, not over rows,
            so it is not exactly 0 where long and short trajectories differ in return.
        advantage_rms: root mean square of the advantage over rows.
        signal_share: share of rows that some term credits.
        opposite_share: share of rows for which another row of the task, with an equal state and an
            equal action, has a credit of the opposite sign.
        reasons: rows by reason, over all terms.
        term_share: share of the summed magnitude of each term, weight included.
        term_rms: root mean square of each term over rows, weight included.
        zero_variance_groups: task groups whose trajectories all earned the same.
        expected_equal_groups: task groups that would be all failures or all successes if every
            trajectory succeeded (earned more than 0) with the same probability.
        penalty_only_groups: task groups whose trajectories differ by penalties alone.
        states: the step-level groups, if the recipe has a step term.

    Example:
        >>> found = ascribe.diagnose(table, credit)
        >>> found.turns, found.states.count
        (1.6666666666666667, 3)
    """

    rows: int
    groups: int
    trajectories: int
    turns: float
    truncated_share: float
    mean_advantage: float
    advantage_rms: float
    signal_share: float
    opposite_share: float
    reasons: dict[str, int]
    term_share: dict[str, float]
    term_rms: dict[str, float]
    zero_variance_groups: int
    expected_equal_groups: float
    penalty_only_groups: int
    states: StateGroups | None

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def diagnose(table: StepTable, credit: Credit) -> Diagnosis:
    """The metrics of ``credit``, which a recipe computed for ``table``.

    Example:
        >>> found = ascribe.diagnose(table, credit)
        >>> found.signal_share, found.reasons
        (1.0, {'credited': 5})
    """
    return diagnosis(sums(table, credit))


def sums(table: StepTable, credit: Credit) -> dict[str, Any]:
    """Counts and sums from which ``diagnosis`` computes the metrics.

    Those of parts of a table, each with whole groups, add up to those of the table (``added``).
    They are plain values with text keys, which JSON can hold.
    """
    steps = arrange(table)
    rows, advantage = steps.rows, credit.advantage[steps.rows]
    terms = {name: term.weight * term.values[rows] for name, term in credit.terms.items()}
    returns = episode_outcome(steps.reward, steps.trajectory, steps.trajectory_count)
    equal_returns = segments.constant(returns, steps.group_of_trajectory, steps.group_count)
    size = np.bincount(steps.group_of_trajectory, minlength=steps.group_count)
    penalised = penalty_only(steps.valid, steps.reward, steps.trajectory, steps.group_of_trajectory)
    several, counts = size > 1, np.bincount(credit.reason, minlength=len(Reason))
    group_sizes = np.bincount(size[several])
    return {
        "rows": int(rows.size),
        "groups": steps.group_count,
        "trajectories": steps.trajectory_count,
        "truncated": int(steps.truncated[steps.starts].sum()),
        "successes": int((returns > 0).sum()),
        "advantage": float(advantage.sum()),
        "squares": float((advantage * advantage).sum()),
        "credited": int(credit.credited[rows].sum()),
        "opposite": int(_opposite(steps, advantage).sum()),
        "reasons": {reason.label: int(counts[reason]) for reason in Reason if counts[reason]},
        "term_magnitude": {name: float(np.abs(values).sum()) for name, values in terms.items()},
        "term_squares": {name: float((values * values).sum()) for name, values in terms.items()},
        "zero_variance_groups": int((equal_returns & several).sum()),
        "penalty_only_groups": int((penalised & several).sum()),
        "group_sizes": {str(n): int(group_sizes[n]) for n in np.flatnonzero(group_sizes)},
        "states": _states(steps, credit.terms["step"]) if "step" in credit.terms else {},
    }


def added(first: Any, second: Any) -> Any:
    """The sums of two parts of a table as those of both."""
    if isinstance(first, dict):
        both = first.keys() & second.keys()
        return first | second | {name: added(first[name], second[name]) for name in both}
    return first + second


def diagnosis(totals: dict[str, Any]) -> Diagnosis:
    """The metrics from the ``sums`` of a table."""
    rows, trajectories = totals["rows"], totals["trajectories"]
    magnitude, squares = totals["term_magnitude"], totals["term_squares"]
    summed = sum(magnitude.values())
    success = totals["successes"] / trajectories
    sizes = {int(size): count for size, count in totals["group_sizes"].items()}
    ordered = (reason.label for reason in Reason)
    return Diagnosis(
        rows=rows,
        groups=totals["groups"],
        trajectories=trajectories,
        turns=rows / trajectories,
        truncated_share=totals["truncated"] / trajectories,
        mean_advantage=totals["advantage"] / rows,
        advantage_rms=math.sqrt(totals["squares"] / rows),
        signal_share=totals["credited"] / rows,
        opposite_share=totals["opposite"] / rows,
        reasons={name: totals["reasons"][name] for name in ordered if name in totals["reasons"]},
        term_share={name: value / summed if summed else 0.0 for name, value in magnitude.items()},
        term_rms={name: math.sqrt(value / rows) for name, value in squares.items()},
        zero_variance_groups=totals["zero_variance_groups"],
        expected_equal_groups=float(
            sum(n * (success**size + (1 - success) ** size) for size, n in sizes.items())
        ),
        penalty_only_groups=totals["penalty_only_groups"],
        states=_state_groups(totals["states"]) if totals["states"] else None,
    )


def _opposite(steps: Arranged, advantage: Floats) -> Bools:
    """Steps for which an equal decision in the task has a credit of the opposite sign."""
    in_task, count = segments.pairs(steps.group, steps.state, int(steps.state.max(initial=-1)) + 1)
    decision, count = segments.pairs(steps.action, in_task, count)
    # Rounding can leave a credit that should be 0 on either side of it.
    size = 1e-9 * float(np.abs(advantage).max(initial=0.0))
    raised, lowered = advantage > size, advantage < -size
    ups, downs = (segments.total(s.astype(np.float64), decision, count) for s in (raised, lowered))
    disputed = np.append((ups > 0) & (downs > 0), False)[decision]
    opposite: Bools = disputed & (raised | lowered)
    return opposite


def credit_per_tool(table: StepTable, credit: Credit) -> dict[str, ToolCredit]:
    """The credit of the steps that call each tool, most steps first; empty if no step calls one.

    Tools that one step calls together are joined by ``+``; steps without a call count as ``text``.

    Example:
        >>> from ascribe.estimators.diagnostics import credit_per_tool
        >>> call = {"action": '{"name": "go", "arguments": {}}'}
        >>> calls = [row | call for row in table.to_dicts()]
        >>> list(credit_per_tool(StepTable.from_dicts(calls), credit))
        ['go']
    """
    rows = arrange(table).rows
    column = table.action.take(rows).used()
    tools = Coded.encode([tool_of(text) for text in column.values])
    if list(tools.values) in ([], [TEXT]):
        return {}
    label = np.append(tools.codes, -1)[column.codes]
    advantage, count = credit.advantage[rows], tools.values.size
    steps = segments.size(label, count)
    size = segments.total(np.abs(advantage), label, count)
    mean = segments.mean(advantage, label, count)
    positive = segments.mean((advantage > 0).astype(np.float64), label, count)
    summed = float(np.abs(advantage).sum()) or 1.0
    return {
        str(tools.values[tool]): ToolCredit(
            int(steps[tool]), float(mean[tool]), float(positive[tool]), float(size[tool]) / summed
        )
        for tool in np.argsort(-steps, kind="stable")
    }


TEXT = "text"


def tool_of(action: str) -> str:
    """The names of the tools that an action calls."""
    if '"name"' not in action:
        return TEXT
    return " + ".join(dict.fromkeys(call.name for call in all_calls(action) or ())) or TEXT


def _states(steps: Arranged, term: Term) -> dict[str, Any]:
    labels = term.labels[steps.rows]
    count = int(labels.max(initial=-1)) + 1
    size = segments.size(labels, count)
    has_peers = np.append(size > 1, False)[labels]
    size = size[size > 0]
    equal_peers = (term.reason[steps.rows] == Reason.ZERO_VARIANCE) & has_peers
    return {
        "count": int(size.size),
        "rows": int(size.sum()),
        "alone": int((size == 1).sum()),
        "sizes": _histogram(size),
        "pairs": int((size * (size - 1) // 2).sum()),
        "visits": segments.pairs(steps.trajectory, labels, count)[1],
        "zero_variance": int(np.unique(labels[equal_peers]).size),
        "cross_task": int(
            (~segments.constant(steps.group.astype(np.float64), labels, count)).sum()
        ),
    }


def _state_groups(totals: dict[str, Any]) -> StateGroups:
    count, rows = max(totals["count"], 1), max(totals["rows"], 1)
    return StateGroups(
        count=totals["count"],
        mean_size=totals["rows"] / count,
        singleton_share_of_groups=totals["alone"] / count,
        singleton_share_of_rows=totals["alone"] / rows,
        sizes=totals["sizes"],
        matched_pairs=totals["pairs"],
        revisit_share=(totals["rows"] - totals["visits"]) / rows,
        zero_variance=totals["zero_variance"],
        cross_task=totals["cross_task"],
    )


def _histogram(size: Ints) -> dict[str, int]:
    names, low = [], 1
    for high in SIZES:
        names.append(str(high) if low == high else f"{low}-{high}")
        low = high + 1
    names.append(f"{low}+")
    counts = np.bincount(np.searchsorted(SIZES, size), minlength=len(names))
    return dict(zip(names, counts.tolist(), strict=True))


def wilson(rate: float, trials: float, z: float = NINETY_FIVE) -> tuple[float, float]:
    """Wilson's interval for a share: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    if trials < 1:
        raise InputError("an interval needs at least one trial")
    square = z**2 / trials
    middle = rate + square / 2
    # A weighted mean of shares may be beyond 0 or 1 by rounding.
    reach = z * math.sqrt(max(rate * (1 - rate) / trials + square / (4 * trials), 0.0))
    low, high = (middle - reach) / (1 + square), (middle + reach) / (1 + square)
    return max(0.0, low), min(1.0, high)
