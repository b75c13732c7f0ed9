"""What an environment is: Gymnasium's five-tuple with text for observations and actions.

::

    observation, info = env.reset(seed=7)
    observation, reward, terminated, truncated, info = env.step("go north")

The contract, which ``ascribe env check`` verifies:

- One seed, one start: ``reset(seed=s)`` gives the same task, the same first observation and the
  same answers to the same actions in every instance made with the same options. So a group of
  trajectories is a seed. ``reset(options={"task": i})`` picks the task by number instead, and the
  seed the rest; tasks are numbered from 0 in an order that never changes.
- An episode ends once. After ``terminated`` or ``truncated``, ``step`` raises ``EpisodeOverError``.
- ``info`` carries, at every step, the keys of ``INFO_KEYS``.
- ``snapshot()`` and ``restore()`` where the environment can; ``ascribe.envs.branching`` replays the
  actions where it cannot.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

Info = dict[str, Any]

INFO_KEYS = {
    "admissible_actions": "the actions that can be taken now, or None where any text may be",
    "won": "whether the task is done",
    "task_family": "the kind of task, for reports",
    "task": "the task in words, for the prompt",
    "state": "a key of the situation: equal keys, same situation, as far as the agent can see",
    "valid": "whether the last action was understood and could be carried out",
}
"""Every key that ``info`` must carry, and what it means.

Optional keys: ``example_actions`` (where ``admissible_actions`` is None: a few well-formed ones,
for random policies) and ``expert_action`` (from environments made with ``expert=True``: the next
action of somebody who can do the task, or None if there is none). For teams: ``agent`` (who decides
now) and, once the episode is over, ``without`` (for each of its decisions what the team would have
earned without the one who took it, or None for a decision that served only to find that out).
"""


@runtime_checkable
class Environment(Protocol):
    """A text environment. See the module for the contract."""

    tasks: int | None
    """How many tasks there are, or None if they are drawn from the seed without end."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin an episode. Returns the first observation, and info."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act. Returns observation, reward, terminated, truncated and info."""
        ...

    def close(self) -> None:
        """Give back what the environment holds."""
        ...


@runtime_checkable
class Branching(Environment, Protocol):
    """An environment that can go back to where it was."""

    def snapshot(self) -> Any:
        """The present moment of the episode: a value that can be pickled and restored anywhere."""
        ...

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        """Go back to a moment. Returns the observation and info of that moment."""
        ...


class EpisodeOverError(RuntimeError):
    """``step`` was called before ``reset``, or after the episode ended."""


class MissingExtraError(ImportError):
    """An environment needs a package that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed; run: pip install 'ascribe[{extra}]'")
        self.extra = extra
