"""The episodes of an iteration with their credit and metrics, wherever they were played.

Every process plays some members of some groups. Their episodes are gathered first, so that every
group is whole. Then all of them are credited at once, with the same result in every process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.crediting import Compute, CreditedSteps, History, credit_steps, write_steps
from ascribe.engines.metrics import credit_metrics, prefixed
from ascribe.estimators import Recipe
from ascribe.groups.actions import FIRST_TOKENS
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.steps.arrays import Floats
from ascribe.steps.select import OnProblem
from ascribe.steps.table import Coded
from ascribe_lab.agents.parsers import WITH_ACTION
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import FailurePolicy
from ascribe_lab.rollout.record import States, arrow, table
from ascribe_lab.rollout.run import Rollout, Trajectory
from ascribe_lab.rollout.summary import success
from ascribe_lab.train.corrections import without_corrections
from ascribe_lab.train.episodes import join_rollouts


@dataclass(frozen=True, eq=False)
class LocalRollout:
    """The episodes of one process, as it sends them to the others."""

    groups: tuple[str, ...]
    """Group of each episode that was to be played."""
    rollout: Rollout
    fingerprints: FloatMatrix | None = None
    """One row for each step, in the order of the trajectories."""
    columns: Mapping[str, Floats] = field(default_factory=dict)
    """What the engine knows of each step, as entropies; columns of the step table."""

    @property
    def steps(self) -> int:
        """How many steps the trajectories have."""
        return sum(len(trajectory.steps) for trajectory in self.rollout.trajectories)


def without_texts(trajectory: Trajectory) -> Trajectory:
    """The trajectory without prompts and responses, but for the first tokens of each response."""
    steps = []
    for step in trajectory.steps:
        tokens, kept = step.sample.response_ids[:FIRST_TOKENS], step.sample
        sample = Sample("", response_ids=tokens, finish=kept.finish, score=kept.score)
        steps.append(replace(step, messages=(), sample=sample))
    return replace(trajectory, steps=tuple(steps))


@dataclass(frozen=True, eq=False, kw_only=True)
class Iteration(CreditedSteps):
    """All steps of an iteration with their credit.

    Steps are in the order of processes, and of trajectories on each process.
    """

    rollout: Rollout
    """Every trajectory that was finished, also those of groups that do not count."""

    @property
    def counted(self) -> Rollout:
        """The trajectories of the groups that count; failed episodes stay."""
        kept = (t for t in self.rollout.trajectories if t.group not in self.dropped)
        return replace(self.rollout, trajectories=tuple(kept))


def credit_iteration(
    played: Sequence[LocalRollout],
    recipe: Recipe,
    *,
    size: int,
    failures: FailurePolicy,
    on_problem: OnProblem = "drop",
    states: States = "observation",
    history: History = None,
    dropped: Mapping[str, str] | None = None,
    compute: Compute | None = None,
    tasks: Mapping[str, Any] | None = None,
) -> Iteration:
    """Credit the episodes of all processes.

    Args:
        played: the episodes of every process, in the order of processes.
        recipe: the estimator.
        size: trajectories that a group was meant to have.
        failures: how many of them a group needs.
        on_problem: what to do about steps that cannot be credited, see ``select``.
        states: what stands in the column ``state``.
        history: the state that the recipe carried over from the iteration before.
        dropped: groups that do not count whatever their steps are, with the reason.
        compute: applies the recipe, if not in this process.
        tasks: number of each group's task, for a recipe with a memory.
    """
    everything = join_rollouts([part.rollout for part in played])
    finished = Counter(trajectory.group for trajectory in everything.trajectories)
    # Why the first of the missing ones failed.
    kinds = {lost.group: lost.kind.value for lost in reversed(everything.failed)}
    failed = {
        name: kinds.get(name, "failed")
        for part in played
        for name in part.groups
        if finished[name] < failures.needs(size)
    } | dict(dropped or {})
    steps = table(everything, states)
    if len(steps):
        parts = [part for part in played if part.steps]
        more: dict[str, Any] = {
            name: np.concatenate([part.columns[name] for part in parts])
            for name in parts[0].columns
        }
        if tasks is not None and getattr(recipe, "memory", False):
            numbers = [tasks[t.group] for t in everything.trajectories for _ in t.steps]
            more["task"] = Coded.encode([None if n is None else str(n) for n in numbers])
        if parts[0].fingerprints is not None:
            more["fingerprint"] = np.concatenate([part.fingerprints for part in parts])
        steps = replace(steps, **more)
    if recipe.needs_corrections and steps.corrects is None:  # all of them failed, or none due
        nothing = np.full(len(steps), -1, dtype=np.int64)
        steps = replace(steps, corrects=Coded(nothing, np.empty(0, dtype=object)))
    credited = credit_steps(
        steps,
        recipe,
        on_problem,
        group_size=size if failures.smallest_group is None else None,
        failed=failed,
        history=history,
        compute=compute,
    )
    return Iteration(**vars(credited), rollout=everything)


def iteration_metrics(iteration: Iteration) -> dict[str, float]:
    """How the episodes went, which groups were dropped, and where the signal is."""
    return episode_metrics(iteration.counted) | credit_metrics(iteration)


def episode_metrics(rollout: Rollout) -> dict[str, float]:
    """How the episodes went, without corrections, which do not answer the task."""
    rollout = without_corrections(rollout)
    metrics: dict[str, float] = {
        "episodes": len(rollout.trajectories),
        "failed": len(rollout.failed),
        "retries": rollout.retries,
    }
    families = success(rollout)
    if families:
        total = families.pop()
        metrics["success"] = total.rate
        metrics["return"] = total.reward
        metrics["turns"] = total.turns
        metrics["invalid_share"] = 1 - total.valid
        parsed = [step.problem in (None, *WITH_ACTION) for step in rollout.steps]
        metrics["parse_rate"] = float(np.mean(parsed))
    if len(families) > 1:
        metrics |= {f"success/{one.family}": one.rate for one in families}
    return prefixed(metrics)


def trl_metrics(rollout: Rollout) -> dict[str, float]:
    """Metrics of the episodes under TRL's own names, which dashboards for TRL show."""
    groups: dict[str, list[float]] = {}
    rollout = without_corrections(rollout)
    for trajectory in rollout.trajectories:
        groups.setdefault(trajectory.group, []).append(trajectory.reward)
    if not groups:
        return {}
    returns = np.concatenate(list(groups.values()))
    cut = [step.sample.finish == "length" for t in rollout.trajectories for step in t.steps]
    return {
        "reward": float(returns.mean()),
        "reward_std": float(returns.std(ddof=1)) if returns.size > 1 else 0.0,
        "frac_reward_zero_std": float(np.mean([np.ptp(values) == 0 for values in groups.values()])),
        "completions/clipped_ratio": float(np.mean(cut)),
    }


def write_rollouts(
    iteration: Iteration,
    folder: str | Path,
    number: int,
    states: States,
    columns: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``rollouts_NUMBER.parquet``: the steps of the groups that count, with transcripts."""
    return write_steps(iteration, folder, number, arrow(iteration.counted, states), columns)
