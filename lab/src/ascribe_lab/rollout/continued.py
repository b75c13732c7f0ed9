"""Return to a decision by replaying what came before it, and play on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ascribe_lab.agents.agent import AgentDecision
from ascribe_lab.models.policy import SamplingPolicy
from ascribe_lab.rollout.episode import FailurePolicy, PendingDecision, RunningEpisode, Step
from ascribe_lab.rollout.pools.pool import Reset, StepResult
from ascribe_lab.rollout.run import Plan, Progress, Trajectory, rollout
from ascribe_lab.rollout.setup import Setup


@dataclass(frozen=True)
class Point:
    """A decision of an episode on record."""

    reset: Reset
    before: Sequence[Step]
    """The steps before the decision, which are replayed."""
    now: Step
    """The step on record, whose state must come again."""
    taken: Step | None
    """The step whose action is carried out now; None: the policy decides anew."""


@dataclass
class ContinuedEpisode(RunningEpisode):
    """An episode that begins at a decision of another."""

    point: Point = field(kw_only=True)

    def __post_init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Return to the decision."""
        super().start_over()
        self.steps = list(self.point.before)
        if taken := self.point.taken:
            decision = AgentDecision(taken.action or None, taken.valid, taken.problem)
            self.pending = PendingDecision(taken.messages, taken.sample, decision)

    def agrees(self, results: Sequence[StepResult]) -> bool:
        """Whether a replay gives what is on record, up to the decision."""
        if self.results:
            return super().agrees(results)
        number = 0
        for step in (*self.point.before, self.point.now):
            seen = results[number]
            # Files hold either the environment's key or the observation as the state.
            if step.observation != seen.observation or step.state not in (
                seen.info["state"],
                seen.observation,
            ):
                return False
            if step is not self.point.now and step.action:
                number += 1
                if results[number].reward != step.reward:
                    return False
        return True


@dataclass(frozen=True)
class _Continuations(Plan):
    """Group i continues ``points[i]``."""

    points: Sequence[Point] = ()

    def episodes(self) -> list[RunningEpisode]:
        return [
            ContinuedEpisode(group, member, point.reset, point=point)
            for group, point in enumerate(self.points)
            for member in range(self.size)
        ]


def play_on(
    setup: Setup,
    policy: SamplingPolicy,
    plan: Plan,
    points: Sequence[Point],
    *,
    size: int = 1,
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
) -> list[tuple[Trajectory, ...] | str]:
    """Episodes that continue from each point, or why there are none.

    Args:
        setup: the environment.
        policy: plays on.
        plan: says how: limits, sampling and seed.
        points: the decisions to continue from.
        size: continuations of each.
        failures: what to do about episodes that fail.
        progress: called with the share of episodes that are over.
    """
    if not points:
        return []
    changes = {"groups": len(points), "size": size, "name": "continued", "tasks": None}
    continued = _Continuations(**{**vars(plan), **changes, "points": points})
    with setup.open_pool(len(points) * size) as pool:
        played = rollout(continued, pool, setup.agent, policy, failures=failures, progress=progress)
    groups: dict[str, tuple[Trajectory, ...] | str] = {}
    for trajectory in played.trajectories:
        groups[trajectory.group] = (*groups.get(trajectory.group, ()), trajectory)
    for dropped in played.dropped:
        last = dropped.failed[-1]
        groups[dropped.group] = f"{last.kind}: {last.detail}"
    return [groups[continued.group_name(number)] for number in range(len(points))]
