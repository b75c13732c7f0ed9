"""The episodes of an iteration, and the player that plays them.

Groups have seeds that follow from the run's seed alone, so a resumed run plays the same tasks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ascribe.engines.inputs import OF_TEAMS
from ascribe_lab.agents import Agent
from ascribe_lab.envs import ENVIRONMENTS
from ascribe_lab.models.policy import mix_seeds
from ascribe_lab.rollout import FailurePolicy, Rollout, Sampling, SamplingPolicy, Setup, rollout
from ascribe_lab.rollout.episode import RunningEpisode
from ascribe_lab.rollout.pools import Pool
from ascribe_lab.rollout.pools.pool import Reset
from ascribe_lab.rollout.run import Clock, Plan


def task_rows(
    count: int, seed: int, name: str, tasks: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """One row for each group that a run plays; row i is the same however many rows there are.

    Args:
        count: how many groups.
        seed: of the run.
        name: groups are called ``name/0``, ``name/1``, ...
        tasks: numbers of tasks; all are played, in an order drawn anew, before one is played again.
            None: the group's seed draws the task.
    """
    return [task_row(number, seed, name, tasks) for number in range(count)]


def task_row(number: int, seed: int, name: str, tasks: Sequence[int] | None) -> dict[str, Any]:
    """Row ``number`` of ``task_rows``."""
    return {
        "prompt": "",  # engines ask for it; prompts come from the environment
        "group": f"{name}/{number}",
        "seed": mix_seeds(seed, number),
        "task": None if tasks is None else task_of(number, seed, tasks),
    }


def task_of(number: int, seed: int, tasks: Sequence[int]) -> int:
    """The task of row ``number``."""
    turn, place = divmod(number, len(tasks))
    order = np.random.default_rng([seed, turn]).permutation(len(tasks))
    return int(tasks[order[place]])


def columns_of(environment: str) -> tuple[str, ...]:
    """The columns that an environment of this name may give; only Ascribe's own are known."""
    return () if environment in ENVIRONMENTS and environment != "team" else OF_TEAMS


@dataclass(frozen=True)
class EpisodeSpec:
    """An episode to play: a member of a group."""

    group: str
    member: int
    seed: int
    """Of the group: it determines where the episode begins."""
    task: int | None = None
    attempts: tuple[str, ...] = ()
    """Responses that the agent is shown to correct."""

    @property
    def name(self) -> str:
        """The name of its trajectory."""
        return f"{self.group}/{self.member}"


def episode_specs(
    rows: Iterable[Mapping[str, Any]], before: Iterable[str] = ()
) -> list[EpisodeSpec]:
    """The episodes of rows that are repeated once for each member of their group.

    Args:
        rows: from ``task_rows``, those of one process.
        before: groups of the rows that earlier processes have.
    """
    members = Counter(before)
    specs = []
    for row in rows:
        specs.append(EpisodeSpec(row["group"], members[row["group"]], row["seed"], row["task"]))
        members[row["group"]] += 1
    return specs


@dataclass(frozen=True)
class SpecPlan(Plan):
    """A plan of chosen members of groups; other processes may play the others.

    ``size`` is that of a whole group: members that others play are not missing.
    """

    specs: tuple[EpisodeSpec, ...] = ()

    def episodes(self) -> list[RunningEpisode]:
        """The episodes to play."""
        numbers = {name: number for number, name in enumerate(self._names)}
        return [
            RunningEpisode(
                numbers[spec.group],
                spec.member,
                Reset(spec.seed, None if spec.task is None else {"task": spec.task}),
                attempts=spec.attempts,
            )
            for spec in self.specs
        ]

    def group_name(self, group: int) -> str:
        """The name of a group."""
        return self._names[group]

    def trajectory_name(self, group: int, member: int) -> str:
        """The name of a trajectory."""
        return f"{self._names[group]}/{member}"

    def sample_seed(self, episode: RunningEpisode) -> int:
        """The seed of an episode's next sample, whichever process plays it."""
        return mix_seeds(episode.reset.seed, episode.member, len(episode.steps), 1)

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(spec.group for spec in self.specs))


@dataclass
class Player:
    """Plays the episodes of an iteration, in a pool that stays open between iterations.

    Attributes:
        setup: the environment and its pool.
        agent: makes prompts, and parses responses.
        sampling: how tokens are drawn.
        max_turns: decisions after which an episode is cut.
        failures: what to do about episodes that fail.
        slots: environments that are open at once.
        episode_limit: seconds in the environment after which an episode fails.
        pool: open already; None: one is opened for the first episodes.
    """

    setup: Setup
    agent: Agent
    sampling: Sampling
    max_turns: int
    failures: FailurePolicy
    slots: int
    episode_limit: float | None = None
    pool: Pool | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def play(
        self,
        specs: Sequence[EpisodeSpec],
        size: int,
        policy: SamplingPolicy,
        failures: FailurePolicy | None = None,
    ) -> Rollout:
        """Play these members of groups of ``size``; ``failures`` in place of the player's own."""
        if self.pool is None:
            self.pool = self._open.enter_context(self.setup.open_pool(self.slots))
        plan = SpecPlan(
            groups=len({spec.group for spec in specs}),
            size=size,
            max_turns=self.max_turns,
            sampling=self.sampling,
            episode_limit=self.episode_limit,
            specs=tuple(specs),
        )
        return rollout(plan, self.pool, self.agent, policy, failures=failures or self.failures)

    def close(self) -> None:
        """Close the pool; the next episodes open another."""
        self.pool = None
        self._open.close()


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """Several rollouts as one, in their order."""
    clocks = [one.clock for one in rollouts]
    return Rollout(
        tuple(trajectory for one in rollouts for trajectory in one.trajectories),
        tuple(group for one in rollouts for group in one.dropped),
        tuple(failed for one in rollouts for failed in one.failed),
        Clock(
            sum(clock.policy_seconds for clock in clocks),
            sum(clock.environment_seconds for clock in clocks),
            sum(clock.seconds for clock in clocks),
            sum(clock.tokens for clock in clocks),
        ),
        sum(one.retries for one in rollouts),
    )
