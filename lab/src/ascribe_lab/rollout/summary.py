"""Success of a rollout by family, with an interval, and its length and share of valid decisions."""

from collections import defaultdict
from dataclasses import dataclass

from ascribe.estimators.diagnostics import wilson
from ascribe_lab.rollout.run import Rollout, Trajectory


@dataclass(frozen=True)
class Success:
    """How often the tasks of a family were solved.

    Episodes of one task are not independent, so a task counts once: the rate is the mean over tasks
    of the share of its episodes that were won, and the interval is Wilson's, for as many trials as
    there are tasks. With one episode per task this is the plain Wilson interval; with more it is
    too wide rather than too narrow.
    """

    family: str
    tasks: int
    episodes: int
    rate: float
    low: float
    high: float
    reward: float
    """Mean reward of an episode."""
    turns: float
    """Mean decisions of an episode."""
    valid: float
    """Share of decisions that were valid."""


def success(rollout: Rollout) -> list[Success]:
    """Success by family, in the order of their names; ``all`` together last.

    Example:
        >>> from ascribe_lab import rollout
        >>> setup, plan = rollout.Setup("ezpoints", pool="serial"), rollout.Plan(1, 2, max_turns=4)
        >>> rollout.success(rollout.play(setup, rollout.Model("expert"), plan))[-1].rate
        1.0
    """
    families: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in rollout.trajectories:
        families[trajectory.family].append(trajectory)
    rows = [_success(family, families[family]) for family in sorted(families)]
    if rollout.trajectories:
        rows.append(_success("all", list(rollout.trajectories)))
    return rows


def _success(family: str, trajectories: list[Trajectory]) -> Success:
    tasks: dict[str, list[bool]] = defaultdict(list)
    for trajectory in trajectories:
        tasks[trajectory.group].append(trajectory.won)
    rate = sum(sum(won) / len(won) for won in tasks.values()) / len(tasks)
    low, high = wilson(rate, len(tasks))
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    count = len(trajectories)
    return Success(
        family=family,
        tasks=len(tasks),
        episodes=count,
        rate=rate,
        low=low,
        high=high,
        reward=sum(trajectory.reward for trajectory in trajectories) / count,
        turns=len(steps) / count,
        valid=sum(step.valid for step in steps) / len(steps),
    )
