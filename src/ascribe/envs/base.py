"""``TextEnvironment``: what every environment of Ascribe shares, so that each holds only its game.

A game gives four things: how a task begins (``_begin``), what an action does (``_act``), what the
agent could do now (``_admissible``), and a key of the situation (``_state``). Everything that
changes during an episode lives in ``self.episode``, one value that can be copied: this makes
snapshots.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from ascribe.envs.protocol import EpisodeOverError, Info

Episode = TypeVar("Episode")


@dataclass(frozen=True)
class Outcome:
    """What an action led to."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    won: bool = False
    valid: bool = True


@dataclass(frozen=True)
class Start(Generic[Episode]):
    """How an episode begins."""

    episode: Episode
    observation: str
    task: str
    family: str


@dataclass(frozen=True)
class Snapshot:
    """A moment of an episode, which any instance with the same options can restore."""

    episode: Any
    observation: str
    info: Info
    steps: int
    over: bool


class TextEnvironment(ABC, Generic[Episode]):
    """The chores of an environment: seeds, limits, ends, info and snapshots.

    Args:
        horizon: an episode is truncated after so many actions.
        expert: whether info carries ``expert_action``.
    """

    tasks: int | None = None
    example_actions: Sequence[str] | None = None

    def __init__(self, *, horizon: int, expert: bool = False) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, not {horizon}")
        self.horizon = horizon
        self.expert = expert
        self.episode: Episode | None = None
        self._observation = ""
        self._info: Info = {}
        self._steps = 0
        self._over = True

    @abstractmethod
    def _begin(self, task: int, generator: np.random.Generator) -> Start[Episode]:
        """Set up task number ``task``; whatever is random comes from the generator."""

    @abstractmethod
    def _act(self, episode: Episode, action: str) -> Outcome:
        """Carry out an action; changes the episode in place."""

    @abstractmethod
    def _admissible(self, episode: Episode) -> list[str] | None:
        """The actions that can be taken now, in an order that never changes."""

    @abstractmethod
    def _state(self, episode: Episode, observation: str) -> str:
        """A key of the situation."""

    def _expert(self, episode: Episode) -> str | None:
        """The next action of somebody who can do the task; None if there is none from here."""
        raise NotImplementedError

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin an episode; see ``ascribe.envs.protocol`` for what seed and options mean."""
        generator = np.random.default_rng(seed)
        task = self._pick(dict(options or {}), generator)
        start = self._begin(task, generator)
        self.episode = start.episode
        self._steps, self._over = 0, False
        self._info = {"task": start.task, "task_family": start.family}
        return self._tell(Outcome(start.observation))

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Carry out one action."""
        if self.episode is None or self._over:
            raise EpisodeOverError("the episode is over or never began: call reset() first")
        if not isinstance(action, str):
            raise TypeError(f"an action is text, not {type(action).__name__}")
        outcome = self._act(self.episode, action)
        self._steps += 1
        truncated = not outcome.terminated and self._steps >= self.horizon
        self._over = outcome.terminated or truncated
        observation, info = self._tell(outcome)
        return observation, float(outcome.reward), outcome.terminated, truncated, info

    def snapshot(self) -> Snapshot:
        """The present moment."""
        return deepcopy(
            Snapshot(self.episode, self._observation, self._info, self._steps, self._over)
        )

    def restore(self, snapshot: Snapshot) -> tuple[str, Info]:
        """Go back to a moment, here or in another instance with the same options."""
        moment = deepcopy(snapshot)
        self.episode, self._steps, self._over = moment.episode, moment.steps, moment.over
        self._observation, self._info = moment.observation, moment.info
        return self._observation, dict(self._info)

    def close(self) -> None:
        """Nothing to give back."""

    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        return pick_task(options, self.tasks, generator)

    def _tell(self, outcome: Outcome) -> tuple[str, Info]:
        episode = self.episode
        assert episode is not None
        self._observation = outcome.observation
        self._info = {
            "task": self._info["task"],
            "task_family": self._info["task_family"],
            "admissible_actions": None if self._over else self._admissible(episode),
            "won": outcome.won,
            "state": self._state(episode, outcome.observation),
            "valid": outcome.valid,
        }
        if self._over:
            self._info["admissible_actions"] = []
        if self.example_actions is not None:
            self._info["example_actions"] = list(self.example_actions)
        if self.expert:
            self._info["expert_action"] = None if self._over else self._expert(episode)
        return self._observation, dict(self._info)


def pick_task(options: dict[str, Any], tasks: int | None, generator: np.random.Generator) -> int:
    """The number of the task that ``reset`` was asked for: by the option, else drawn.

    Args:
        options: of ``reset``; ``task`` is taken out, and nothing else may be there.
        tasks: how many there are, or None if they are without end.
        generator: draws where no task is named.

    Raises:
        ValueError: if there is no such task or option.
    """
    task = options.pop("task", None)
    if options:
        raise ValueError(f"unknown options of reset: {', '.join(sorted(options))}")
    if task is None:
        return int(generator.integers(tasks if tasks is not None else 2**62))
    if tasks is not None and not 0 <= task < tasks:
        raise ValueError(f"there is no task {task}; there are {tasks}, counted from 0")
    return int(task)
