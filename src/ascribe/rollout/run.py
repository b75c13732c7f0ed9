"""``rollout``: groups of episodes, played by one policy in a pool of environments.

All episodes that wait for a decision are put to the policy together; all decisions are carried out
together; an episode that is over is asked no more, and its place in the pool goes to the next one.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ascribe.agents.agent import Agent
from ascribe.models.policy import Request, Sampling, SamplingPolicy, mix_seeds
from ascribe.rollout.episode import (
    DroppedGroup,
    Episode,
    EpisodeFailure,
    FailedEpisode,
    FailurePolicy,
    Pending,
    RolloutFailedError,
    Step,
)
from ascribe.rollout.pools.pool import Failure, FailureKind, Pool, Reset, StepResult
from ascribe.steps.table import encodable

LOST_TOO_OFTEN = 20
"""An episode that loses its place to its neighbours' crashes so often is given up as well."""


@dataclass(frozen=True)
class Plan:
    """Which episodes to play.

    The seed of a group follows from ``seed`` and the group's number alone, so the same plan gives
    the same tasks on any pool, with any policy, and more groups do not change the first ones.
    """

    groups: int
    size: int
    max_turns: int
    """An episode is truncated after so many decisions, also those that nothing came of."""
    seed: int = 0
    name: str = "rollout"
    """Groups are called ``name/0``, trajectories ``name/0/0``."""
    tasks: Sequence[int] | None = None
    """The task of each group by number; None: the group's seed draws it."""
    sampling: Sampling = field(default_factory=Sampling)
    episode_limit: float | None = None
    """Seconds in the environment after which an episode is given up."""

    def __post_init__(self) -> None:
        for name in ("groups", "size", "max_turns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.tasks is not None and len(self.tasks) != self.groups:
            raise ValueError(f"{len(self.tasks)} tasks for {self.groups} groups")

    def episodes(self) -> list[Episode]:
        """All episodes, group by group."""
        return [
            Episode(group, member, self._begin(group))
            for group in range(self.groups)
            for member in range(self.size)
        ]

    def group_name(self, group: int) -> str:
        """The name of a group."""
        return f"{self.name}/{group}"

    def trajectory_name(self, group: int, member: int) -> str:
        """The name of a trajectory."""
        return f"{self.name}/{group}/{member}"

    def sample_seed(self, episode: Episode) -> int:
        """The seed of an episode's next sample: the same in every run of the plan."""
        return mix_seeds(self.seed, episode.group, episode.member, len(episode.steps), 1)

    def _begin(self, group: int) -> Reset:
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
    """For each step what the team would have earned without the one who took it; None for a step
    that was only taken to find that out. No such thing for one agent alone."""
    corrects: str | None = None
    """The trajectory that this one was written to correct."""

    @property
    def won(self) -> bool:
        """Whether the task was done at the end."""
        return self.steps[-1].won

    @property
    def reward(self) -> float:
        """What the episode earned."""
        return sum(step.reward for step in self.steps)


@dataclass(frozen=True)
class Clock:
    """Where the time went."""

    policy_seconds: float
    environment_seconds: float
    seconds: float
    tokens: int
    """Tokens that the policy wrote, also in episodes that were given up."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens written per second of the policy's time; 0 for a policy without tokens."""
        return self.tokens / self.policy_seconds if self.policy_seconds > 0 else 0.0


@dataclass(frozen=True)
class Rollout:
    """The trajectories of all groups that count, in the order of the plan, and what was lost."""

    trajectories: tuple[Trajectory, ...]
    dropped: tuple[DroppedGroup, ...]
    failed: tuple[FailedEpisode, ...]
    clock: Clock
    retries: int
    """How often an episode was taken up again."""


Progress = Callable[[float], None]
AnyFailure = FailureKind | EpisodeFailure
Orders = TypeVar("Orders")
Answers = TypeVar("Answers")


def rollout(
    plan: Plan,
    pool: Pool,
    agent: Agent,
    policy: SamplingPolicy,
    *,
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
) -> Rollout:
    """Play the episodes of a plan.

    Args:
        plan: which episodes.
        pool: where the environments are; it is not closed.
        agent: what is shown to the policy, and how its answers are read.
        policy: who answers.
        failures: what to do about episodes that fail.
        progress: called with the share of episodes that are over.

    Raises:
        RolloutFailedError: if an episode is given up and the failure policy says to stop.
    """
    run = _Run(plan, pool, agent, policy)
    run.failures, run.progress = failures or FailurePolicy(), progress
    return run.play()


class _Run:
    """The state of one rollout."""

    failures: FailurePolicy
    progress: Progress

    def __init__(self, plan: Plan, pool: Pool, agent: Agent, policy: SamplingPolicy) -> None:
        self.plan, self.pool, self.agent, self.policy = plan, pool, agent, policy
        self.waiting = deque(plan.episodes())
        self.running: dict[int, Episode] = {}
        self.done: dict[tuple[int, int], Trajectory] = {}
        self.failed: list[tuple[int, FailedEpisode]] = []
        self.doomed: set[int] = set()
        self.losses: dict[tuple[int, int], int] = {}
        self.retries = 0
        self.tokens = 0
        self.policy_seconds = 0.0
        self.environment_seconds = 0.0

    def play(self) -> Rollout:
        started = time.perf_counter()
        while self.waiting or self.running:
            self._begin()
            self._decide()
            self._carry_out()
            self._leave()
            self.progress(1 - (len(self.waiting) + len(self.running)) / self._total)
        seconds = time.perf_counter() - started
        clock = Clock(self.policy_seconds, self.environment_seconds, seconds, self.tokens)
        return self._result(clock)

    @property
    def _total(self) -> int:
        return self.plan.groups * self.plan.size

    def _begin(self) -> None:
        """Give the free places to waiting episodes."""
        fresh: list[int] = []
        for slot in range(self.pool.slots):
            if slot not in self.running and self.waiting:
                self.running[slot] = self.waiting.popleft()
                fresh.append(slot)
        self._ready(fresh)

    def _ready(self, slots: Iterable[int]) -> None:
        """Bring these episodes to where their records say they are: a reset, or a replay."""
        slots = [slot for slot in slots if slot in self.running]
        while slots:
            orders = {
                slot: (self.running[slot].begin, self.running[slot].actions) for slot in slots
            }
            answers = self._ask(self.pool.replay, orders)
            # A failure may end its whole group, so every slot is looked up anew.
            again = [
                slot
                for slot in slots
                if slot in self.running and not self._back(slot, answers[slot])
            ]
            slots = [slot for slot in again if slot in self.running]

    def _back(self, slot: int, answer: list[StepResult] | Failure) -> bool:
        """Whether an episode is where its record says."""
        episode = self.running[slot]
        if isinstance(answer, Failure):
            self._failed(slot, answer.kind, answer.detail)
            return False
        if broken := _unwritable(answer):
            self._failed(slot, broken.kind, broken.detail)
            return False
        if not episode.answers:
            episode.answers = list(answer)
            return True
        if [told.observation for told in answer] != [t.observation for t in episode.answers]:
            detail = f"after the same {len(answer) - 1} actions the environment said otherwise"
            episode.forget()
            self._failed(slot, EpisodeFailure.NOT_REPRODUCIBLE, detail)
            return False
        return True

    def _decide(self) -> None:
        """Ask the policy for all episodes that have no decision pending."""
        slots = [slot for slot, episode in self.running.items() if episode.pending is None]
        if not slots:
            return
        views = {slot: self.running[slot].view() for slot in slots}
        chats = {slot: self.agent.messages(views[slot]) for slot in slots}
        requests = [
            Request(
                chats[slot], self.plan.sample_seed(self.running[slot]), self.running[slot].now.info
            )
            for slot in slots
        ]
        began = time.perf_counter()
        samples = self.policy(requests, self.plan.sampling)
        self.policy_seconds += time.perf_counter() - began
        for slot, sample in zip(slots, samples, strict=True):
            self.tokens += len(sample.response_ids)
            if slot not in self.running:  # its group was dropped meanwhile
                continue
            if sample.finish == "prompt_too_long":
                self._out_of_context(slot)
                continue
            decision = self.agent.decide(sample.text, views[slot])
            self.running[slot].pending = Pending(chats[slot], sample, decision)

    def _out_of_context(self, slot: int) -> None:
        """The prompt fills the model's context: the episode ends with the step before."""
        episode = self.running[slot]
        if episode.steps:
            episode.cut()
            return
        detail = "the first prompt leaves no room for an answer in the model's context"
        self._give_up(slot, EpisodeFailure.PROMPT_TOO_LONG, detail)

    def _carry_out(self) -> None:
        """Carry out all pending decisions; take up again what fails on the way."""
        for slot in list(self.running):
            episode = self.running[slot]
            if episode.pending is not None and not episode.pending.decision.action:
                episode.passed(last=self._is_last(episode))
        while pending := [s for s, episode in self.running.items() if episode.pending is not None]:
            orders = {slot: self._action(self.running[slot]) for slot in pending}
            answers = self._ask(self.pool.step, orders)
            lost = []
            for slot in pending:
                if slot not in self.running:  # its group was dropped meanwhile
                    continue
                answer = answers[slot]
                if isinstance(answer, StepResult):
                    answer = _unwritable([answer]) or answer
                if isinstance(answer, Failure):
                    self._failed(slot, answer.kind, answer.detail)
                    lost.append(slot)
                else:
                    self._answered(slot, answer)
            self._ready(lost)

    def _action(self, episode: Episode) -> str:
        assert episode.pending is not None
        action = episode.pending.decision.action
        assert action
        return action

    def _answered(self, slot: int, told: StepResult) -> None:
        episode = self.running[slot]
        episode.carried_out(told, last=self._is_last(episode))
        limit = self.plan.episode_limit
        if limit is not None and episode.seconds > limit and not episode.over:
            detail = f"{episode.seconds:.1f} s in the environment; the limit is {limit:g} s"
            self._give_up(slot, EpisodeFailure.TOO_LONG, detail)

    def _is_last(self, episode: Episode) -> bool:
        return len(episode.steps) + 1 >= self.plan.max_turns

    def _failed(self, slot: int, kind: AnyFailure, detail: str) -> None:
        """Count a failure against its episode, and give it up if it was the last."""
        episode = self.running[slot]
        if kind is FailureKind.LOST:
            key = (episode.group, episode.member)
            self.losses[key] = self.losses.get(key, 0) + 1
            too_often = self.losses[key] > LOST_TOO_OFTEN
        else:
            episode.failures += 1
            too_often = episode.failures > self.failures.retries
        if too_often:
            self._give_up(slot, kind, detail)
        else:
            self.retries += 1

    def _give_up(self, slot: int, kind: AnyFailure, detail: str) -> None:
        episode = self.running.pop(slot)
        lost = FailedEpisode(
            self.plan.group_name(episode.group),
            self.plan.trajectory_name(episode.group, episode.member),
            kind,
            detail,
            len(episode.steps),
        )
        if self.failures.stop:
            raise RolloutFailedError(lost)
        self.failed.append((episode.group, lost))
        failed = sum(group == episode.group for group, _ in self.failed)
        if self.plan.size - failed < self.failures.needs(self.plan.size):
            self._drop(episode.group)

    def _drop(self, group: int) -> None:
        """Stop what is left of a group that can no longer count."""
        self.doomed.add(group)
        self.waiting = deque(episode for episode in self.waiting if episode.group != group)
        for slot in [s for s, episode in self.running.items() if episode.group == group]:
            del self.running[slot]

    def _leave(self) -> None:
        """Move the episodes that are over out of the pool."""
        for slot in [s for s, episode in self.running.items() if episode.over]:
            episode = self.running.pop(slot)
            info = episode.answers[0].info
            self.done[episode.group, episode.member] = Trajectory(
                self.plan.group_name(episode.group),
                self.plan.trajectory_name(episode.group, episode.member),
                info["task"],
                info["task_family"],
                tuple(episode.steps),
                _without(episode),
            )

    def _ask(self, work: Callable[[Orders], Answers], orders: Orders) -> Answers:
        """One call of the pool, its time counted."""
        began = time.perf_counter()
        answers = work(orders)
        self.environment_seconds += time.perf_counter() - began
        return answers

    def _result(self, clock: Clock) -> Rollout:
        kept = [self.done[key] for key in sorted(self.done) if key[0] not in self.doomed]
        dropped = [
            DroppedGroup(
                self.plan.group_name(group),
                self.plan.size - sum(g == group for g, _ in self.failed),
                self.failures.needs(self.plan.size),
                tuple(lost for g, lost in self.failed if g == group),
            )
            for group in sorted(self.doomed)
        ]
        lost = tuple(lost for _, lost in self.failed)
        return Rollout(tuple(kept), tuple(dropped), lost, clock, self.retries)


def _without(episode: Episode) -> tuple[float | None, ...] | None:
    """What the environment said at the end of a team's episode, if it said it of every step."""
    told = episode.now.info.get("without")
    return tuple(told) if told is not None and len(told) == len(episode.steps) else None


def _unwritable(answers: Sequence[StepResult]) -> Failure | None:
    """Text that no file can hold (half surrogates) is refused at the door."""
    for told in answers:
        if not (encodable(told.observation) and encodable(told.info["state"])):
            return Failure(FailureKind.MALFORMED, "the environment sent text that is not Unicode")
    return None
