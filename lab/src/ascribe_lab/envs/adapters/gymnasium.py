"""Gymnasium environments with discrete or text actions.

Gymnasium works with arrays and numbers, so the caller says how they read: ``render`` puts an
observation into words, ``actions`` gives each action its name.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from ascribe.steps.errors import InputError
from ascribe_lab.envs.adapters.wrapped import AdapterOptions, WrappedEnvironment
from ascribe_lab.envs.protocol import MissingExtraError, Outcome

Actions = Sequence[str] | Callable[[Any], Mapping[str, Any]] | None


class GymnasiumEnvironment(WrappedEnvironment):
    """A Gymnasium environment as text.

    One seed is one episode if the wrapped environment draws from ``self.np_random``, as Gymnasium
    asks. The options of ``reset`` are passed to it.

    Args:
        environment: an identifier for ``gymnasium.make``, or a function that makes the environment.
        render: from an observation and the unwrapped environment to text.
        actions: the names of a discrete space, in order; or a function from the unwrapped
            environment to the actions that can be taken now, by name; or None for a text space.
        state: a key of the situation, from what ``render`` is given; by default the rendered text,
            which is right if the observation shows all that matters.
        task: the task in words.
        options: see ``WrappedEnvironment``; the family is by default the identifier.
    """

    def __init__(
        self,
        environment: str | Callable[[], Any],
        *,
        render: Callable[[Any, Any], str],
        actions: Actions,
        state: Callable[[Any, Any], str] | None = None,
        task: str,
        **options: Unpack[AdapterOptions],
    ) -> None:
        name = environment if isinstance(environment, str) else "gymnasium"
        super().__init__(name, task=task, **options)
        try:
            import gymnasium
            from gymnasium.spaces import Discrete, Text
        except ImportError as error:
            raise MissingExtraError("Gymnasium", "gymnasium") from error
        if isinstance(environment, str):
            environment = partial(gymnasium.make, environment)
        self.env: Any = environment()
        self.render = render
        self.actions = actions
        self.state = state
        self._raw: Any = None
        space = self.env.action_space
        if actions is None and not isinstance(space, Text):
            raise InputError(f"actions must be named, for the space is {space}")
        if isinstance(actions, Sequence) and (
            not isinstance(space, Discrete) or len(actions) != space.n
        ):
            raise InputError(f"{len(actions)} names do not fit the space {space}")

    def _named(self) -> Mapping[str, Any] | None:
        """The present actions by name; None for a text space."""
        if self.actions is None:
            return None
        if callable(self.actions):
            return self.actions(self.env.unwrapped)
        first = int(self.env.action_space.start)
        return {name: first + number for number, name in enumerate(self.actions)}

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        self._raw, _ = self.env.reset(seed=seed, options=options or None)
        return self._rendered()

    def act(self, action: str) -> Outcome:
        named = self._named()
        if not (action in named if named is not None else self.env.action_space.contains(action)):
            return Outcome(self._rendered(), valid=False)
        raw = action if named is None else named[action]
        self._raw, reward, terminated, truncated, _ = self.env.step(raw)
        return Outcome(self._rendered(), float(reward), bool(terminated), truncated=bool(truncated))

    def admissible(self) -> list[str] | None:
        named = self._named()
        return None if named is None else list(named)

    def _rendered(self) -> str:
        return self.render(self._raw, self.env.unwrapped)

    def state_key(self, observation: str) -> str:
        return observation if self.state is None else self.state(self._raw, self.env.unwrapped)

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()
