"""Going back in an episode: by snapshot where an environment can, by replay where it cannot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ascribe.envs.protocol import Branching, Environment, Info


@dataclass(frozen=True)
class Moment:
    """A moment as the way to it: the reset and the actions since."""

    seed: int | None
    options: Mapping[str, Any] | None
    actions: tuple[str, ...]
    observation: str


class NotReproducibleError(RuntimeError):
    """The same actions from the same seed led to another observation."""


class Replayed:
    """An environment whose snapshots are the actions so far; restoring plays them again.

    It costs a reset and as many steps as were taken. The environment must be deterministic given
    the seed: if the last observation differs, ``NotReproducibleError`` is raised.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.tasks = environment.tasks
        self._begun: tuple[int | None, Mapping[str, Any] | None] | None = None
        self._actions: list[str] = []
        self._observation = ""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin an episode. Without a seed it could not be played again, so one is needed."""
        if seed is None:
            raise ValueError("an episode that may be played again needs a seed")
        self._observation, info = self.environment.reset(seed=seed, options=options)
        self._begun, self._actions = (seed, options), []
        return self._observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act, and remember the action."""
        answer = self.environment.step(action)
        self._actions.append(action)
        self._observation = answer[0]
        return answer

    def snapshot(self) -> Moment:
        """The way to the present moment."""
        if self._begun is None:
            raise RuntimeError("there is no episode yet: call reset() first")
        return Moment(*self._begun, tuple(self._actions), self._observation)

    def restore(self, snapshot: Moment) -> tuple[str, Info]:
        """Play the way to a moment again."""
        observation, info = self.reset(seed=snapshot.seed, options=snapshot.options)
        for action in snapshot.actions:
            observation, _, _, _, info = self.step(action)
        if observation != snapshot.observation:
            raise NotReproducibleError(
                f"after the same {len(snapshot.actions)} actions the observation is another one"
            )
        return observation, info

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def branching(environment: Environment) -> Branching:
    """The environment itself if it can go back, else one that replays."""
    return environment if isinstance(environment, Branching) else Replayed(environment)
