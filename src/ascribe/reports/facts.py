"""The numbers of a report, computed from a credit and its table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.decisions import Decision, Decisions
from ascribe.estimators import Recipe
from ascribe.estimators.credit import Reason
from ascribe.estimators.diagnostics import Diagnosis, diagnose
from ascribe.estimators.situations import Placed, place
from ascribe.groups.cluster import collapsed
from ascribe.reports.crediting import Credited
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, no_response, penalty_only
from ascribe.steps.problems import Problem, ProblemKind
from ascribe.steps.returns import episode_outcome, penalties
from ascribe.steps.table import StepTable

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
        everything: success, returns and lengths over all tasks.
        with_state: share of the steps that have a state.
        tables: rows of plain values by name; ``docs/report.md`` describes them.
        main_term: the step term, or the first term of a recipe without one.
        constant_return: what every trajectory earned, if several did and all earned the same.
        equal_steps: steps to which the main term gives nothing because their peers earned the same,
            by the outcome of their task group.
        uncompared: task groups of one trajectory that the first term compares with nothing.
        arguments: of the one file, if it holds sessions: its name and the options to read it.
        hashed: whether every state is a hash, such as that of a history.
        placed: the situation that the table is in.
        cut: share of truncated trajectories.
        cut_turns: share of responses that a limit on tokens cut, if the files tell.
        blank: steps with neither a state nor an action, or with empty ones.
        collapsed: share of task groups in which one state holds nearly all steps.
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
    everything: dict[str, Any]
    with_state: float
    tables: dict[str, Rows]
    main_term: str
    constant_return: float | None
    equal_steps: dict[str, int]
    uncompared: int
    arguments: Sequence[str]
    hashed: bool
    placed: Placed
    cut: float
    cut_turns: float | None
    blank: int
    collapsed: float
    trained_differently: float | None
    certain: int
    contradicted: tuple[Decision, ...]

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
    attempts at a task; a correction of another answer is none.
    """

    steps: Arranged
    returns: Floats
    compared: Floats
    won: Bools
    answer: Bools
    batch: Ints


def gather(
    credited: Credited, found: Decisions, files: Sequence[Path], arguments: Sequence[str] = ()
) -> Facts:
    """The facts about a credit of files, or of sessions that are read with these arguments."""
    table, credit, steps = credited.table, credited.credit, credited.steps
    episodes = _episodes(credited)
    outcome = _outcome_of_groups(episodes)
    attempts = np.where(episodes.answer, steps.group_of_trajectory, -1)
    # Groups that hold corrections alone are no tasks.
    task_outcome = np.where(segments.size(attempts, steps.group_count) > 0, outcome, -1)
    main_term = "step" if "step" in credit.terms else next(iter(credit.terms))
    equal_peers = credit.terms[main_term].reason[steps.rows] == Reason.ZERO_VARIANCE
    one = (task_outcome == OUTCOMES.index(ONE))[steps.group]
    reason = next(iter(credit.terms.values())).reason[steps.rows]
    unpaired = one & ((reason == Reason.GROUP_OF_ONE) | (reason == Reason.SINGLETON))
    single = len(credited.diagnoses) == 1
    diagnosis = credited.diagnoses[0] if single else diagnose(table, credit)
    problems = tuple(p for p in credited.report.problems if p.kind not in BY_OUTCOME)
    tables = {
        "iterations": _by_batch(credited, episodes, task_outcome),
        "reasons": _reasons(credited),
        "outcomes": [
            {"outcome": name, "groups": groups}
            for name, groups in _by_outcome(task_outcome[task_outcome >= 0]).items()
            if groups
        ],
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
        everything=_results(episodes, episodes.answer),
        with_state=float((steps.state >= 0).mean()),
        tables=tables,
        main_term=main_term,
        constant_return=_constant(episodes.compared),
        equal_steps=_by_outcome(outcome[steps.group[equal_peers]]),
        uncompared=int(np.unique(steps.group[unpaired]).size),
        arguments=arguments,
        hashed=all(re.fullmatch("[0-9a-f]{32}", text) for text in table.state.used().values),
        placed=place(table),
        cut=float(steps.truncated[steps.starts].mean()),
        cut_turns=_cut_turns(credited, np.ones(len(table), dtype=np.bool_)),
        blank=_blank(table, steps),
        collapsed=_collapsed(credited),
        trained_differently=_trained_differently(credited),
        certain=sum(each.certain for each in found.forks),
        contradicted=_contradicted(found, credited),
    )


def _episodes(credited: Credited) -> _Episodes:
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
        won=won > 0,
        answer=answer,
        batch=batch,
    )


def _results(episodes: _Episodes, selected: Bools) -> dict[str, Any]:
    """Success and lengths of the chosen episodes; success is a mean over tasks."""
    steps = episodes.steps
    group = np.where(selected, steps.group_of_trajectory, -1)
    tasks = segments.size(group, steps.group_count) > 0
    won = segments.mean(episodes.won.astype(np.float64), group, steps.group_count)
    success = float(won[tasks].mean())
    return {
        "success": success,
        "mean_return": float(episodes.returns[selected].mean()),
        "valid": float(steps.valid[selected[steps.trajectory]].mean()),
    }


def _by_batch(credited: Credited, episodes: _Episodes, task_outcome: Ints) -> Rows:
    batch_of_group = episodes.batch[_first_of_group(episodes)]
    batches = []
    for index, diagnosis in enumerate(credited.diagnoses):
        single = len(credited.diagnoses) == 1  # then all files were credited together
        inside = np.ones_like(episodes.answer) if single else episodes.batch == index
        results = _results(episodes, episodes.answer & inside)
        of_batch = single | (batch_of_group == index)
        tasks = task_outcome[of_batch & (task_outcome >= 0)]
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
