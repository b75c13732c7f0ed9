"""``rollout``: groups of episodes, played by one policy in a pool of environments.

The policy samples for all episodes that need a decision in one batch, and the pool carries out all
decisions in one call. When an episode ends, the next one takes its slot.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ascribe.steps.errors import InputError
from ascribe_lab.agents.agent import Agent
from ascribe_lab.models.policy import Request, Sampling, SamplingPolicy, mix_seeds
from ascribe_lab.rollout.episode import (
    DroppedGroup,
    EpisodeFailure,
    FailedEpisode,
    FailurePolicy,
    PendingDecision,
    RolloutFailedError,
    RunningEpisode,
    Step,
)
from ascribe_lab.rollout.pools.pool import Failure, FailureKind, Pool, Reset, StepResult

MOST_LOSSES = 20
"""An episode that other episodes' crashes interrupt more often than this fails as well."""


@dataclass(frozen=True)
class Plan:
    """Which episodes to play.

    The seed of a group follows from ``seed`` and the group's number alone, so the same plan gives
    the same tasks on any pool, with any policy, and more groups do not change the first ones.

    Example:
        >>> from ascribe_lab.rollout import Plan
        >>> len(Plan(groups=2, size=4, max_turns=8).episodes())
        8
    """

    groups: int
    size: int
    max_turns: int
    """Decisions, including those without an action, after which an episode is truncated."""
    seed: int = 0
    name: str = "rollout"
    """Groups are called ``name/0``, trajectories ``name/0/0``."""
    tasks: Sequence[int] | None = None
    """The task of each group by number; None: the group's seed draws it."""
    sampling: Sampling = field(default_factory=Sampling)
    episode_limit: float | None = None
    """Seconds in the environment after which an episode fails."""

    def __post_init__(self) -> None:
        for name in ("groups", "size", "max_turns"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.episode_limit is not None and not self.episode_limit > 0:
            raise InputError(f"episode_limit must be above 0 seconds, not {self.episode_limit}")
        if self.tasks is not None and len(self.tasks) != self.groups:
            raise InputError(f"{len(self.tasks)} tasks for {self.groups} groups")

    def episodes(self) -> list[RunningEpisode]:
        """All episodes, group by group."""
        return [
            RunningEpisode(group, member, self.reset(group))
            for group in range(self.groups)
            for member in range(self.size)
        ]

    def group_name(self, group: int) -> str:
        """The name of a group."""
        return f"{self.name}/{group}"

    def trajectory_name(self, group: int, member: int) -> str:
        """The name of a trajectory."""
        return f"{self.name}/{group}/{member}"

    def sample_seed(self, episode: RunningEpisode) -> int:
        """The seed of an episode's next sample: the same in every run of the plan."""
        return mix_seeds(self.seed, episode.group, episode.member, len(episode.steps), 1)

    def number_of(self, group: str) -> int:
        """The number of the group of this name.

        Raises:
            ValueError: if the plan's groups have other names.
        """
        name, _, number = group.rpartition("/")
        if name != self.name or not re.fullmatch("[0-9]{1,9}", number):
            raise InputError(
                f"{group!r} is no task of {self.name}: its tasks are {self.name}/0, ..."
            )
        return int(number)

    def reset(self, group: int) -> Reset:
        """How the episodes of a group begin."""
        options = None if self.tasks is None else {"task": self.tasks[group]}
        return Reset(mix_seeds(self.seed, group), options)


@dataclass(frozen=True)
class Trajectory:
    """A finished episode."""

    group: str
    name: str
    task: str
    family: str
    steps: tuple[Step, ...]
    without: tuple[float | None, ...] | None = None
    """For each step of a team, its return if the acting agent had been absent; None for a step that
    was sampled only to measure such a return."""
    corrects: str | None = None
    """The trajectory that this one was written to correct."""

    @property
    def won(self) -> bool:
        """Whether the task was done at the end."""
        return self.steps[-1].won

    @property
    def reward(self) -> float:
        """The sum of its rewards."""
        return sum(step.reward for step in self.steps)


@dataclass(frozen=True)
class Clock:
    """Where the time went."""

    policy_seconds: float
    environment_seconds: float
    seconds: float
    tokens: int
    """Tokens that the policy sampled, including those of failed episodes."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens sampled per second of the policy's time; 0 for a policy without tokens."""
        return self.tokens / self.policy_seconds if self.policy_seconds > 0 else 0.0


@dataclass(frozen=True)
class Rollout:
    """The trajectories of all groups that count, in the order of the plan, and what failed."""

    trajectories: tuple[Trajectory, ...]
    dropped: tuple[DroppedGroup, ...]
    failed: tuple[FailedEpisode, ...]
    clock: Clock
    retries: int
    """How often an episode was tried again."""

    @property
    def steps(self) -> list[Step]:
        """All steps, trajectory by trajectory."""
        return [step for trajectory in self.trajectories for step in trajectory.steps]


Progress = Callable[[float], None]
Place = tuple[int, int]
"""An episode of a plan: the number of its group, and its own in the group."""
Keep = Callable[[Mapping[Place, Trajectory]], Mapping[Place, str]]
"""Takes episodes as they end; returns those that it refuses, with the reasons."""


def rollout(
    plan: Plan,
    pool: Pool,
    agent: Agent,
    policy: SamplingPolicy,
    *,
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
    done: Mapping[Place, Trajectory] | None = None,
    keep: Keep = lambda _: {},
) -> Rollout:
    """Play the episodes of a plan.

    Args:
        plan: which episodes.
        pool: where the environments are; it is not closed.
        agent: makes prompts, and parses responses.
        policy: responds to prompts.
        failures: what to do about episodes that fail.
        progress: called with the share of episodes that are over.
        done: episodes of the plan that were played before.
        keep: called with episodes as they end; one that it refuses fails for good.

    Raises:
        RolloutFailedError: if an episode fails for good and the failure policy says to stop.

    Example:
        >>> from ascribe_lab.agents import agent_for
        >>> from ascribe_lab.models import make_policy
        >>> from ascribe_lab.rollout import Plan, rollout
        >>> from ascribe_lab.rollout.pools import EnvironmentSpec, make_pool
        >>> with make_pool("serial", EnvironmentSpec("ezpoints"), 1, 2, 60.0, 300.0) as pool:
        ...     plan = Plan(groups=1, size=2, max_turns=4)
        ...     played = rollout(plan, pool, agent_for("ezpoints"), make_policy("random"))
        >>> len(played.trajectories)
        2
    """
    failures = failures or FailurePolicy()
    return _Run(plan, pool, agent, policy, failures, dict(done or {}), keep).play(progress)


@dataclass
class _Run:
    """The state of one rollout."""

    plan: Plan
    pool: Pool
    agent: Agent
    policy: SamplingPolicy
    failures: FailurePolicy
    done: dict[Place, Trajectory]
    keep: Keep
    running: dict[int, RunningEpisode] = field(default_factory=dict)
    """By slot."""
    failed: list[tuple[int, FailedEpisode]] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    retries: int = 0
    tokens: int = 0
    policy_seconds: float = 0.0
    environment_seconds: float = 0.0

    def __post_init__(self) -> None:
        episodes = self.plan.episodes()
        self.waiting = deque(e for e in episodes if (e.group, e.member) not in self.done)

    def play(self, progress: Progress) -> Rollout:
        started = time.perf_counter()
        total = self.plan.groups * self.plan.size
        while self.waiting or self.running:
            free = [slot for slot in range(self.pool.slots) if slot not in self.running]
            for slot in free[: len(self.waiting)]:
                self.running[slot] = self.waiting.popleft()
            self._restore(free)
            self._sample()
            try:
                self._act()
            finally:  # an error loses nothing that has ended
                self._finish()
            progress(1 - (len(self.waiting) + len(self.running)) / total)
        seconds = time.perf_counter() - started
        clock = Clock(self.policy_seconds, self.environment_seconds, seconds, self.tokens)
        return self._result(clock)

    def _restore(self, slots: list[int]) -> None:
        """Bring episodes to where their records end, by a reset or a replay."""
        while slots := [slot for slot in slots if slot in self.running]:
            episodes = {
                slot: (self.running[slot].reset, self.running[slot].actions) for slot in slots
            }
            with self._environment_time():
                results = self.pool.replay(episodes)
            slots = [slot for slot in slots if not self._restored(slot, results[slot])]

    def _restored(self, slot: int, results: list[StepResult] | Failure) -> bool:
        """Whether the environment of an episode is now at the end of the episode's record."""
        if slot not in self.running:  # its group was dropped meanwhile
            return True
        episode = self.running[slot]
        if isinstance(results, Failure):
            self._fail(slot, results.kind, results.detail)
        elif episode.agrees(results):
            episode.results = episode.results or list(results)
            return True
        else:
            episode.start_over()
            detail = f"the same {len(results) - 1} actions gave other results"
            self._fail(slot, EpisodeFailure.NOT_REPRODUCIBLE, detail)
        return False

    def _sample(self) -> None:
        """Sample a response for every episode that has no pending decision."""
        slots = [slot for slot, episode in self.running.items() if episode.pending is None]
        if not slots:
            return
        views = {slot: self.running[slot].view() for slot in slots}
        chats = {slot: self.agent.messages(views[slot]) for slot in slots}
        requests = []
        for slot in slots:
            episode = self.running[slot]
            seed = self.plan.sample_seed(episode)
            requests.append(Request(chats[slot], seed, episode.latest.info))
        began = time.perf_counter()
        samples = self.policy(requests, self.plan.sampling)
        self.policy_seconds += time.perf_counter() - began
        for slot, sample in zip(slots, samples, strict=True):
            self.tokens += len(sample.response_ids)
            if slot not in self.running:  # its group was dropped meanwhile
                continue
            episode = self.running[slot]
            if sample.finish != "prompt_too_long":
                decision = self.agent.decide(sample.text, views[slot])
                episode.pending = PendingDecision(chats[slot], sample, decision)
            elif episode.steps:
                episode.truncate()
            else:
                detail = "the first prompt leaves no room for a response in the model's context"
                self._fail_for_good(slot, EpisodeFailure.PROMPT_TOO_LONG, detail)

    def _act(self) -> None:
        """Carry out all pending decisions; episodes that fail on the way are restored."""
        for episode in self.running.values():
            if episode.pending is not None and not episode.pending.decision.action:
                episode.skip(last=self._is_last(episode))
        while actions := {
            slot: episode.pending.decision.action or ""
            for slot, episode in self.running.items()
            if episode.pending is not None
        }:
            with self._environment_time():
                results = self.pool.step(actions)
            failed = []
            for slot, result in results.items():
                if slot not in self.running:  # its group was dropped meanwhile
                    continue
                if isinstance(result, Failure):
                    self._fail(slot, result.kind, result.detail)
                    failed.append(slot)
                else:
                    self._advance(slot, result)
            self._restore(failed)

    def _advance(self, slot: int, result: StepResult) -> None:
        episode = self.running[slot]
        episode.advance(result, last=self._is_last(episode))
        limit = self.plan.episode_limit
        if limit is not None and episode.seconds > limit and not episode.over:
            detail = f"{episode.seconds:.1f} s in the environment; the limit is {limit:g} s"
            self._fail_for_good(slot, EpisodeFailure.TOO_LONG, detail)

    def _is_last(self, episode: RunningEpisode) -> bool:
        return len(episode.steps) + 1 >= self.plan.max_turns

    def _fail(self, slot: int, kind: FailureKind | EpisodeFailure, detail: str) -> None:
        """Count a failure against its episode; after too many it is not tried again."""
        episode = self.running[slot]
        if kind is FailureKind.LOST:
            episode.losses += 1
        else:
            episode.failures += 1
        if episode.losses > MOST_LOSSES or episode.failures > self.failures.retries:
            self._fail_for_good(slot, kind, detail)
        else:
            self.retries += 1

    def _fail_for_good(self, slot: int, kind: FailureKind | EpisodeFailure, detail: str) -> None:
        """Record an episode as failed, and drop its group if too few members are left."""
        episode = self.running.pop(slot)
        group = episode.group
        name = self.plan.trajectory_name(group, episode.member)
        steps = len(episode.steps)
        failed = FailedEpisode(self.plan.group_name(group), name, kind, detail, steps)
        if self.failures.stop:
            raise RolloutFailedError(failed)
        self.failed.append((group, failed))
        if self._remaining(group) < self.failures.needs(self.plan.size):
            self.dropped.add(group)
            self.waiting = deque(e for e in self.waiting if e.group != group)
            self.running = {s: e for s, e in self.running.items() if e.group != group}

    def _remaining(self, group: int) -> int:
        """Members of a group that have not failed."""
        return self.plan.size - sum(failed == group for failed, _ in self.failed)

    def _finish(self) -> None:
        """Move the episodes that are over out of the pool."""
        over = {slot: episode for slot, episode in self.running.items() if episode.over}
        if not over:
            return
        finished = {(e.group, e.member): self._trajectory(e) for e in over.values()}
        refused = self.keep(finished)
        for slot, episode in over.items():
            place = episode.group, episode.member
            if place not in refused:
                self.running.pop(slot, None)
                self.done[place] = finished[place]
            elif slot in self.running:  # its group was not dropped meanwhile
                self._fail_for_good(slot, FailureKind.MALFORMED, refused[place])

    def _trajectory(self, episode: RunningEpisode) -> Trajectory:
        info = episode.results[0].info
        return Trajectory(
            self.plan.group_name(episode.group),
            self.plan.trajectory_name(episode.group, episode.member),
            info["task"],
            info["task_family"],
            tuple(episode.steps),
            _without(episode),
        )

    @contextmanager
    def _environment_time(self) -> Iterator[None]:
        """Count the time of a call of the pool."""
        began = time.perf_counter()
        yield
        self.environment_seconds += time.perf_counter() - began

    def _result(self, clock: Clock) -> Rollout:
        trajectories = [self.done[key] for key in sorted(self.done) if key[0] not in self.dropped]
        dropped = [
            DroppedGroup(
                self.plan.group_name(group),
                self._remaining(group),
                self.failures.needs(self.plan.size),
                tuple(failed for failed_group, failed in self.failed if failed_group == group),
            )
            for group in sorted(self.dropped)
        ]
        failed = tuple(failed for _, failed in self.failed)
        return Rollout(tuple(trajectories), tuple(dropped), failed, clock, self.retries)


def _without(episode: RunningEpisode) -> tuple[float | None, ...] | None:
    """A team's returns without each agent, if the environment gives one for every step."""
    rewards = episode.latest.info.get("without")
    return tuple(rewards) if rewards is not None and len(rewards) == len(episode.steps) else None
