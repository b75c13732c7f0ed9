"""Gymnasium environments with discrete or text actions.

Gymnasium speaks in arrays and numbers, so somebody must say how a number reads: ``render`` puts an
observation into words, ``actions`` gives each action its name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ascribe.envs.adapters.wrapped import WrappedEnvironment, clean
from ascribe.envs.protocol import MissingExtraError, Outcome

Actions = Sequence[str] | Callable[[Any], Mapping[str, Any]] | None


class GymnasiumEnvironment(WrappedEnvironment):
    """A Gymnasium environment as text.

    One seed is one episode if the wrapped environment draws from ``self.np_random``, as Gymnasium
    asks. The options of ``reset`` go through to it.

    Args:
        environment: an identifier for ``gymnasium.make``, or a function that makes the environment.
        render: from an observation and the unwrapped environment to text.
        actions: the names of a discrete space, in order; or a function from the unwrapped
            environment to the actions that can be taken now, by name; or None for a text space.
        state: a key of the situation, from what ``render`` is given; by default the rendered text,
            which is right if the observation shows all that matters.
        task: the task in words.
        family: the kind of task; by default the identifier.
        horizon: an episode is truncated after so many actions.
        won_at: an episode is won if its last reward is at least this.
        example_actions: a few well-formed actions for a text space.
    """

    def __init__(
        self,
        environment: str | Callable[[], Any],
        *,
        render: Callable[[Any, Any], str],
        actions: Actions,
        state: Callable[[Any, Any], str] | None = None,
        task: str,
        family: str | None = None,
        horizon: int,
        won_at: float = 1.0,
        example_actions: Sequence[str] | None = None,
    ) -> None:
        name = environment if isinstance(environment, str) else "gymnasium"
        super().__init__(
            task=task,
            family=family or name,
            horizon=horizon,
            won_at=won_at,
            example_actions=example_actions,
        )
        self.env = _make(environment)
        self.render = render
        self.actions = actions
        self.state = state
        self._raw: Any = None
        self._check_actions()

    def _check_actions(self) -> None:
        from gymnasium.spaces import Discrete, Text

        space = self.env.action_space
        if self.actions is None and not isinstance(space, Text):
            raise ValueError(f"actions must be named, for the space is {space}")
        if isinstance(self.actions, Sequence) and (
            not isinstance(space, Discrete) or len(self.actions) != space.n
        ):
            raise ValueError(f"{len(self.actions)} names do not fit the space {space}")

    def _named(self) -> Mapping[str, Any] | None:
        """The actions of the moment by name; None for a text space."""
        if self.actions is None:
            return None
        if callable(self.actions):
            return self.actions(self.env.unwrapped)
        first = int(self.env.action_space.start)
        return {name: first + number for number, name in enumerate(self.actions)}

    def _begin(self, seed: int, options: dict[str, Any]) -> str:
        self._raw, _ = self.env.reset(seed=seed, options=options or None)
        return self._rendered()

    def _act(self, action: str) -> Outcome:
        named = self._named()
        if named is None:
            raw: Any = action
            known = bool(self.env.action_space.contains(action))
        else:
            raw = named.get(action)
            known = action in named
        if not known:
            return Outcome(self._rendered(), valid=False)
        self._raw, reward, terminated, truncated, _ = self.env.step(raw)
        return Outcome(self._rendered(), float(reward), bool(terminated), truncated=bool(truncated))

    def _admissible(self) -> list[str] | None:
        named = self._named()
        return None if named is None else [clean(name) for name in named]

    def _rendered(self) -> str:
        return self.render(self._raw, self.env.unwrapped)

    def _state(self, observation: str) -> str:
        if self.state is None:
            return observation
        return self.state(self._raw, self.env.unwrapped)

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()


def _make(environment: str | Callable[[], Any]) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtraError("Gymnasium", "gymnasium") from error
    return gymnasium.make(environment) if isinstance(environment, str) else environment()
