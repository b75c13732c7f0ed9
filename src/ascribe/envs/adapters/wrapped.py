"""What all adapters share: ends, the limit, clean text and info."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from ascribe.envs.protocol import EpisodeOverError, Info

LONGEST_ACTION = 200_000
"""An action of more characters is not passed on: others' parsers were not made for it."""


@dataclass(frozen=True)
class Told:
    """What a wrapped environment said."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True


class WrappedEnvironment(ABC):
    """Somebody else's environment in Ascribe's protocol.

    Args:
        task: the task in words, for the prompt.
        family: the kind of task, for reports.
        horizon: an episode is truncated after so many actions. Others' limits often do not count
            actions that they do not understand, so there is always one.
        won_at: an episode is won if its last reward is at least this.
        example_actions: a few well-formed actions, where none are listed.
    """

    tasks: int | None = None

    def __init__(
        self,
        *,
        task: str,
        family: str,
        horizon: int,
        won_at: float = 1.0,
        example_actions: Sequence[str] | None = None,
    ) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, not {horizon}")
        self.task = task
        self.family = family
        self.horizon = horizon
        self.won_at = won_at
        self.example_actions = example_actions
        self._steps = 0
        self._over = True

    @abstractmethod
    def _begin(self, seed: int, options: dict[str, Any]) -> Told:
        """Begin an episode there."""

    @abstractmethod
    def _act(self, action: str) -> Told:
        """Carry out an action there."""

    def _admissible(self) -> list[str] | None:
        """The actions that can be taken now; None where any text may be."""
        return None

    @abstractmethod
    def _state(self, observation: str) -> str:
        """A key of the situation."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin an episode; without a seed one is drawn."""
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        self._over = True
        told = self._begin(seed, dict(options or {}))
        self._steps, self._over = 0, False
        return self._tell(told)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Carry out one action."""
        if self._over:
            raise EpisodeOverError("the episode is over or never began: call reset() first")
        if not isinstance(action, str):
            raise TypeError(f"an action is text, not {type(action).__name__}")
        if len(action) > LONGEST_ACTION:
            told = Told(f"The action is longer than {LONGEST_ACTION:,} characters.", valid=False)
        else:
            told = self._act(clean(action))
        if not isfinite(told.reward):
            raise ValueError(f"the wrapped environment paid {told.reward}")
        self._steps += 1
        truncated = not told.terminated and (told.truncated or self._steps >= self.horizon)
        self._over = told.terminated or truncated
        observation, info = self._tell(told)
        return observation, float(told.reward), told.terminated, truncated, info

    @abstractmethod
    def close(self) -> None:
        """Give back what the wrapped environment holds; may be called twice."""

    def _tell(self, told: Told) -> tuple[str, Info]:
        observation = clean(told.observation)
        info: Info = {
            "task": clean(self.task),
            "task_family": self.family,
            "admissible_actions": [] if self._over else self._admissible(),
            "won": bool(self._over and told.reward >= self.won_at),
            "state": clean(self._state(observation)),
            "valid": bool(told.valid),
        }
        if self.example_actions is not None:
            info["example_actions"] = list(self.example_actions)
        return observation, info


def clean(text: str) -> str:
    """The text with halves of surrogate pairs replaced, so that it can be written and sent."""
    return text.encode("utf-8", "replace").decode("utf-8")
