"""Base class of all adapters: ends, the limit, clean text and info."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Required, TypedDict

import numpy as np

from ascribe.steps.check import LARGEST_REWARD
from ascribe.steps.errors import InputError
from ascribe_lab.envs.protocol import Info, Options, Outcome, StepCounter

LONGEST_ACTION = 200_000
"""An action of more characters is not passed on: others' parsers were not made for it."""


class AdapterOptions(TypedDict, total=False):
    """What every adapter takes besides its own options; see ``WrappedEnvironment``."""

    family: str | None
    horizon: Required[int]
    won_at: float
    example_actions: Sequence[str] | None


class WrappedEnvironment(StepCounter):
    """An environment of another convention in Ascribe's protocol.

    Args:
        default_family: the family if none is given.
        task: the task in words, for the prompt.
        family: the kind of task, for reports.
        horizon: an episode is truncated after so many actions. Others' limits often do not count
            actions that they do not understand, so there is always one.
        won_at: an episode is won if its last reward is at least this.
        example_actions: a few well-formed actions, where none are listed.
    """

    def __init__(
        self,
        default_family: str,
        *,
        task: str,
        family: str | None = None,
        horizon: int,
        won_at: float = 1.0,
        example_actions: Sequence[str] | None = None,
    ) -> None:
        super().__init__(horizon)
        self.task = task
        self.family = family or default_family
        self.won_at = won_at
        self.example_actions = example_actions

    @abstractmethod
    def begin(self, seed: int, options: dict[str, Any]) -> str:
        """Begin an episode there. Returns the first observation."""

    @abstractmethod
    def act(self, action: str) -> Outcome:
        """Carry out an action there; ``Outcome.won`` is not read."""

    def admissible(self) -> list[str] | None:
        """The actions that can be taken now; None where any text may be."""
        return None

    def state_key(self, observation: str) -> str:
        """A key of the situation; right as it is if the observation shows all that matters."""
        return observation

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[str, Info]:
        """Begin an episode; without a seed one is drawn."""
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        self._over = True
        observation = self.begin(seed, dict(options or {}))
        self._steps, self._over = 0, False
        return self._report(Outcome(observation))

    @abstractmethod
    def close(self) -> None:
        """Release what the wrapped environment holds; may be called twice."""

    def _outcome(self, action: str) -> Outcome:
        if len(action) > LONGEST_ACTION:
            return Outcome(f"The action is longer than {LONGEST_ACTION:,} characters.", valid=False)
        outcome = self.act(clean(action))
        if not abs(outcome.reward) <= LARGEST_REWARD:
            raise InputError(f"the wrapped environment paid {outcome.reward}")
        return outcome

    def _report(self, outcome: Outcome) -> tuple[str, Info]:
        observation = clean(outcome.observation)
        listed = [] if self._over else self.admissible()
        info: Info = {
            "task": clean(self.task),
            "task_family": self.family,
            "admissible_actions": None if listed is None else [clean(one) for one in listed],
            "won": bool(self._over and outcome.reward >= self.won_at),
            "state": clean(self.state_key(observation)),
            "valid": bool(outcome.valid),
        }
        if self.example_actions is not None:
            info["example_actions"] = list(self.example_actions)
        return observation, info


def clean(text: str) -> str:
    """The text with halves of surrogate pairs replaced, so that it can be written and sent."""
    return text.encode("utf-8", "replace").decode("utf-8")
