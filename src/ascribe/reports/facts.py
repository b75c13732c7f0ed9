"""The numbers of a report, computed from a credit and its table."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.decisions import Decision, Decisions
from ascribe.estimators import Recipe
from ascribe.estimators.credit import Reason
from ascribe.estimators.diagnostics import Diagnosis, credit_per_tool, diagnose, wilson
from ascribe.groups.cluster import collapsed
from ascribe.reports.crediting import Credited
from ascribe.reports.situations import Placed, StateView, place, state_views
from ascribe.reports.text import natural
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, no_response, penalty_only
from ascribe.steps.problems import Problem, ProblemKind
from ascribe.steps.returns import episode_outcome, penalties
from ascribe.steps.table import StepTable

ALL = "all"
UNKNOWN = "not given"
MOST_FAMILIES = 24
"""Families that are listed; the others, those with the fewest trajectories, count as one."""

LENGTH_BINS = 8

ONE, PENALTIES, DIFFER = "one trajectory", "only penalties differ", "returns differ"
EQUAL = ("all fail", "all succeed", "all earn the same")
"""Outcomes of task groups whose trajectories all earned the same."""
OUTCOMES = (*EQUAL, PENALTIES, DIFFER, ONE)
"""What the trajectories of a task group can earn. Only ``returns differ`` gives a sound
episode-level signal."""

BY_OUTCOME = (ProblemKind.EQUAL_RETURNS, ProblemKind.ONLY_PENALTIES_DIFFER)
"""Problems that ``OUTCOMES`` counts too, and with the recipe's own penalty."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Facts:
    """The input of the verdict and the figures.

    Attributes:
        files: the files.
        recipe: the estimator.
        diagnosis: numbers about the credit of all batches.
        problems: from ``check``, without those that the outcomes of task groups tell.
        dropped_groups: groups that could not be credited.
        dropped_rows: their rows.
        success_by_column: whether a column says who won; otherwise a return above 0 counts.
        views: what exact and clustered states give.
        tables: rows of plain values by name; ``docs/report.md`` describes them.
        main_term: the step term, or the first term of a recipe without one.
        constant_return: what every trajectory earned, if several did and all earned the same.
        amplified: how many times as large as the differences of returns the credit is in groups
            whose trajectories differ by penalties alone.
        equal_steps: steps to which the main term gives nothing because their peers earned the same,
            by the outcome of their task group.
        longest_quarter: share of the gradient of the longest quarter of the trajectories;
            trajectories that tie for its last places share them.
        uncompared: task groups of one trajectory that the first term compares with nothing.
        arguments: of the one file, if it holds sessions: its name and the options to read it.
        hashed: whether every state is a hash, such as that of a history.
        placed: the situation that the table is in.
        cut: share of truncated trajectories.
        cut_turns: share of responses that a limit on tokens cut, if the files tell.
        blank: steps with neither a state nor an action, or with empty ones.
        collapsed: share of task groups in which one state holds nearly all steps.
        one_action: among steps whose state another trajectory visited, the share for which no
            such trajectory took another action.
        trained_differently: share of steps trained with another advantage, if the files tell.
        certain: number of certain forks.
        contradicted: those of which the recipe credits the worse side higher.
    """

    files: tuple[Path, ...]
    recipe: Recipe
    diagnosis: Diagnosis
    problems: tuple[Problem, ...]
    dropped_groups: int
    dropped_rows: int
    success_by_column: bool
    views: tuple[StateView, ...]
    tables: dict[str, Rows]
    main_term: str
    constant_return: float | None
    amplified: float
    equal_steps: dict[str, int]
    longest_quarter: float
    uncompared: int
    arguments: Sequence[str]
    hashed: bool
    placed: Placed
    cut: float
    cut_turns: float | None
    blank: int
    collapsed: float
    one_action: float
    trained_differently: float | None
    certain: int
    contradicted: tuple[Decision, ...]

    @property
    def everything(self) -> dict[str, Any]:
        """Success, returns and lengths over all families."""
        return self.tables["families"][-1]

    @property
    def task_groups(self) -> int:
        """Task groups whose outcomes are counted: those of answers, not of corrections."""
        return self.groups_with(*OUTCOMES)

    def groups_with(self, *outcomes: str) -> int:
        """Task groups with one of these outcomes."""
        return sum(row["groups"] for row in self.tables["outcomes"] if row["outcome"] in outcomes)


@dataclass(frozen=True, eq=False)
class _Episodes:
    """The trajectories of a table, one entry each, in canonical order.

    ``compared`` is the return less the recipe's penalty for invalid actions. ``answer`` marks
    attempts at a task; a correction of another answer is none. ``gradient`` is the summed absolute
    advantage of the steps, because a policy gradient weighs each step by its advantage.
    """

    steps: Arranged
    returns: Floats
    compared: Floats
    length: Ints
    won: Bools
    answer: Bools
    family: Ints
    batch: Ints
    gradient: Floats


def gather(
    credited: Credited, found: Decisions, files: Sequence[Path], arguments: Sequence[str] = ()
) -> Facts:
    """The facts about a credit of files, or of sessions that are read with these arguments."""
    table, credit, steps = credited.table, credited.credit, credited.steps
    names, family = _families(table, steps)
    episodes = _episodes(credited, family)
    outcome = _outcome_of_groups(episodes)
    attempts = np.where(episodes.answer, steps.group_of_trajectory, -1)
    # Groups that hold corrections alone are no tasks.
    task_outcome = np.where(segments.size(attempts, steps.group_count) > 0, outcome, -1)
    main_term = "step" if "step" in credit.terms else next(iter(credit.terms))
    equal_peers = credit.terms[main_term].reason[steps.rows] == Reason.ZERO_VARIANCE
    one = (task_outcome == OUTCOMES.index(ONE))[steps.group]
    reason = next(iter(credit.terms.values())).reason[steps.rows]
    unpaired = one & ((reason == Reason.GROUP_OF_ONE) | (reason == Reason.SINGLETON))
    labels = credit.terms["step"].labels if "step" in credit.terms else None
    views = state_views(table, credited.recipe, labels)
    _, _, shared, elsewhere, _ = views[0].stages
    single = len(credited.diagnoses) == 1
    diagnosis = credited.diagnoses[0] if single else diagnose(table, credit)
    problems = tuple(p for p in credited.report.problems if p.kind not in BY_OUTCOME)
    tables = {
        "families": _by_family(episodes, names),
        "iterations": _by_batch(credited, episodes, task_outcome),
        "reasons": _reasons(credited),
        "funnel": [row for view in views for row in view.stages],
        "lengths": _lengths(episodes),
        "tools": [
            {"tool": _charted(tool), **asdict(figures)}
            for tool, figures in list(credit_per_tool(table, credit).items())[:MOST_FAMILIES]
        ],
        "outcomes": _outcomes(episodes, names, task_outcome),
        "problems": [
            {key: value for key, value in problem.as_dict().items() if key != "rows"}
            for problem in problems
        ],
    }
    return Facts(
        files=tuple(files),
        recipe=credited.recipe,
        diagnosis=diagnosis,
        problems=problems,
        dropped_groups=credited.dropped_groups,
        dropped_rows=credited.dropped_rows,
        success_by_column=credited.won is not None,
        views=tuple(views),
        tables=tables,
        main_term=main_term,
        constant_return=_constant(episodes.compared),
        amplified=_amplified(credited, task_outcome == OUTCOMES.index(PENALTIES)),
        equal_steps=_by_outcome(outcome[steps.group[equal_peers]]),
        longest_quarter=_longest_quarter(episodes),
        uncompared=int(np.unique(steps.group[unpaired]).size),
        arguments=arguments,
        hashed=all(re.fullmatch("[0-9a-f]{32}", text) for text in table.state.used().values),
        placed=place(table),
        cut=float(steps.truncated[steps.starts].mean()),
        cut_turns=_cut_turns(credited, np.ones(len(table), dtype=np.bool_)),
        blank=_blank(table, steps),
        collapsed=_collapsed(credited),
        one_action=1.0 - elsewhere["steps"] / shared["steps"] if shared["steps"] else 0.0,
        trained_differently=_trained_differently(credited),
        certain=sum(each.certain for each in found.forks),
        contradicted=_contradicted(found, credited),
    )


def _episodes(credited: Credited, family: Ints) -> _Episodes:
    steps, recipe = credited.steps, credited.recipe

    def total(values: Floats) -> Floats:
        return segments.total(values, steps.trajectory, steps.trajectory_count)

    first_row = steps.rows[steps.starts]
    batch = credited.batch[first_row]
    answer = np.ones(first_row.size, dtype=np.bool_)
    if credited.table.corrects is not None:
        answer = credited.table.corrects.codes[first_row] < 0
        # In a batch of corrections alone, all count.
        answer |= (np.bincount(batch, weights=answer) == 0)[batch]
    penalised = steps.reward - penalties(steps.valid, recipe.invalid_penalty)
    returns, compared = (
        episode_outcome(reward, steps.trajectory, steps.trajectory_count)
        for reward in (steps.reward, penalised)
    )
    won = returns if credited.won is None else total(credited.won[steps.rows].astype(np.float64))
    return _Episodes(
        steps=steps,
        returns=returns,
        compared=compared,
        length=segments.size(steps.trajectory, steps.trajectory_count),
        won=won > 0,
        answer=answer,
        family=family,
        batch=batch,
        gradient=total(np.abs(credited.credit.advantage[steps.rows])),
    )


def _families(table: StepTable, steps: Arranged) -> tuple[list[str], Ints]:
    """Names of families, largest first, and the family of each trajectory."""
    if table.family is None:
        return [UNKNOWN], np.zeros(steps.trajectory_count, dtype=np.int64)
    names = [*map(_charted, map(str, table.family.values)), UNKNOWN]
    codes = table.family.codes[steps.rows[steps.starts]]
    codes = np.where(codes < 0, len(names) - 1, codes)
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    listed = order[:MOST_FAMILIES]
    rename = np.full(len(names), listed.size, dtype=np.int64)
    rename[listed] = np.arange(listed.size)
    more = [f"{order.size - listed.size:,} more families"] if order.size > listed.size else []
    return [*(names[code] for code in listed), *more], rename[codes]


_OWN = re.compile(
    r"__\w+__|constructor|hasOwnProperty|isPrototypeOf|\w+Enumerable|\w*String|valueOf"
)


def _charted(name: str) -> str:
    """The name, quoted if the plain objects in which charts look names up have it themselves."""
    return f"“{name}”" if _OWN.fullmatch(name) else name


def _by_family(episodes: _Episodes, names: Sequence[str]) -> Rows:
    families = [
        {"family": name, **_results(episodes, in_family)}
        for code, name in sorted(enumerate(names), key=lambda entry: natural(entry[1]))
        if (in_family := episodes.answer & (episodes.family == code)).any()
    ]
    return [*families, {"family": ALL, **_results(episodes, episodes.answer)}]


def _results(episodes: _Episodes, selected: Bools) -> dict[str, Any]:
    """Success and lengths of the chosen episodes; success is a mean over tasks."""
    steps = episodes.steps
    group = np.where(selected, steps.group_of_trajectory, -1)
    tasks = segments.size(group, steps.group_count) > 0
    won = segments.mean(episodes.won.astype(np.float64), group, steps.group_count)
    success = float(won[tasks].mean())
    low, high = wilson(success, int(tasks.sum()))
    return {
        "tasks": int(tasks.sum()),
        "episodes": int(selected.sum()),
        "success": success,
        "low": low,
        "high": high,
        "mean_return": float(episodes.returns[selected].mean()),
        "turns": float(episodes.length[selected].mean()),
        "valid": float(steps.valid[selected[steps.trajectory]].mean()),
    }


def _by_batch(credited: Credited, episodes: _Episodes, task_outcome: Ints) -> Rows:
    batch_of_group = episodes.batch[_first_of_group(episodes)]
    batches = []
    for index, diagnosis in enumerate(credited.diagnoses):
        results = _results(episodes, episodes.answer & (episodes.batch == index))
        tasks = task_outcome[(batch_of_group == index) & (task_outcome >= 0)]
        states = diagnosis.states
        batches.append(
            {
                "iteration": credited.numbers[index],
                "batch": credited.names[index],
                "steps": diagnosis.rows,
                "success": results["success"],
                "mean_return": results["mean_return"],
                "turns": diagnosis.turns,
                "cut": diagnosis.truncated_share,
                "cut_turns": _cut_turns(credited, credited.batch == index),
                "signal": diagnosis.signal_share,
                "alone": None if states is None else states.singleton_share_of_rows,
                "mean_group_size": None if states is None else states.mean_size,
                "equal_groups": float((tasks < len(EQUAL)).mean()),
                "expected_equal": diagnosis.expected_equal_groups / max(diagnosis.groups, 1),
            }
        )
    return batches


def _first_of_group(episodes: _Episodes) -> Ints:
    """The first trajectory of each task group."""
    steps = episodes.steps
    return segments.first_rows(steps.group_of_trajectory, steps.group_count)


def _outcome_of_groups(episodes: _Episodes) -> Ints:
    """Place in ``OUTCOMES`` of each task group."""
    steps = episodes.steps
    group, count = steps.group_of_trajectory, steps.group_count
    won = segments.mean(episodes.won.astype(np.float64), group, count)
    equal = segments.constant(episodes.compared, group, count)
    fails, succeeds = equal & (won == 0), equal & (won == 1)
    penalised = penalty_only(steps.valid, steps.reward, steps.trajectory, group)
    alone = segments.size(group, count) == 1
    indices = map(OUTCOMES.index, (ONE, *EQUAL, PENALTIES))
    conditions = [alone, fails, succeeds, equal, penalised]
    return np.select(conditions, list(indices), OUTCOMES.index(DIFFER)).astype(np.int64)


def _by_outcome(outcomes: Ints) -> dict[str, int]:
    counts = np.bincount(outcomes, minlength=len(OUTCOMES)).tolist()
    return dict(zip(OUTCOMES, counts, strict=True))


def _outcomes(episodes: _Episodes, names: Sequence[str], task_outcome: Ints) -> Rows:
    family = np.where(task_outcome < 0, -1, episodes.family[_first_of_group(episodes)])
    return [
        {"family": name, "outcome": outcome, "groups": groups}
        for code, name in sorted(enumerate(names), key=lambda entry: natural(entry[1]))
        for outcome, groups in _by_outcome(task_outcome[family == code]).items()
        if groups
    ]


def _lengths(episodes: _Episodes) -> Rows:
    """Shares by length: one row per length, or bins with about equally many trajectories."""
    length, gradient = episodes.length, episodes.gradient
    edges = np.unique(length)
    if edges.size > LENGTH_BINS:
        quantiles = np.linspace(0, 1, LENGTH_BINS + 1)[:-1]
        edges = np.unique(np.quantile(length, quantiles, method="lower"))
    bin_of = np.searchsorted(edges, length, side="right") - 1
    bins = []
    for index in range(edges.size):
        inside = bin_of == index
        low, high = int(length[inside].min()), int(length[inside].max())
        bins.append(
            {
                "length": str(low) if low == high else f"{low}–{high}",
                "trajectories": float(inside.mean()),
                "steps": float(length[inside].sum() / length.sum()),
                "gradient": float(gradient[inside].sum()) / (float(gradient.sum()) or 1.0),
                "success": float(episodes.won[inside].mean()),
            }
        )
    return bins


def _longest_quarter(episodes: _Episodes) -> float:
    _, rank = np.unique(-episodes.length, return_inverse=True)
    size, gradient = np.bincount(rank), np.bincount(rank, weights=episodes.gradient)
    longer = np.cumsum(size) - size
    inside = np.clip(episodes.length.size / 4 - longer, 0, size) / size
    return float((inside * gradient).sum()) / (float(gradient.sum()) or 1.0)


def _reasons(credited: Credited) -> Rows:
    rows = credited.steps.rows
    return [
        {
            "term": name,
            "reason": Reason(reason).label,
            "steps": count,
            "share": count / rows.size,
        }
        for name, term in credited.credit.terms.items()
        for reason, count in enumerate(np.bincount(term.reason[rows]).tolist())
        if count
    ]


def _constant(returns: Floats) -> float | None:
    first = float(returns[0])
    return first if returns.size > 1 and np.allclose(returns, first, 1e-9, 1e-12) else None


def _amplified(credited: Credited, groups: Bools) -> float:
    """The largest term's median ratio of credit to difference in these task groups."""
    steps = credited.steps
    rows = steps.rows[groups[steps.group]]
    factors = [0.0]
    for term in credited.credit.terms.values() if rows.size else ():
        difference = np.abs(term.own - term.baseline)[rows]
        compared = term.credited[rows] & (difference > 1e-9)
        if compared.any():
            ratio = np.abs(term.values[rows][compared]) / difference[compared]
            factors.append(float(np.median(ratio)))
    return max(factors)


def _blank(table: StepTable, steps: Arranged) -> int:
    state, action = (
        np.append([not str(text).strip() for text in column.values], True).astype(np.bool_)
        for column in (table.state, table.action)
    )
    silent = no_response(table)[steps.rows]
    return int((state[steps.state] & action[steps.action] & ~silent).sum())


def _collapsed(credited: Credited) -> float:
    steps, states = credited.steps, credited.states
    # A state may occur in several tasks.
    states, count = segments.pairs(steps.group, states, int(states.max(initial=-1)) + 1)
    # A task of one turn has one state, and nothing is wrong with it.
    turns = segments.size(steps.group, steps.group_count)
    several = turns > segments.size(steps.group_of_trajectory, steps.group_count)
    return float((collapsed(states, count, steps.group) & several).mean())


def _trained_differently(credited: Credited) -> float | None:
    if credited.trained is None:
        return None
    rows = credited.steps.rows
    equal = np.isclose(credited.trained[rows], credited.credit.advantage[rows], 1e-3, 1e-4)
    return float(1.0 - equal.mean())


def _cut_turns(credited: Credited, rows: Bools) -> float | None:
    if credited.finish is None:
        return None
    real = rows & ~credited.table.flag("padding", default=False)
    return float((credited.finish[real] == "length").mean())


def _contradicted(found: Decisions, credited: Credited) -> tuple[Decision, ...]:
    """Certain forks whose better actions have less credit, on average, than the others."""
    advantage = credited.credit.advantage
    return tuple(
        each
        for each in found.forks
        if each.certain and advantage[each.better.rows].mean() < advantage[each.worse.rows].mean()
    )
