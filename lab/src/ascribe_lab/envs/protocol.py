"""What an environment is: Gymnasium's five-tuple with text for observations and actions.

::

    observation, info = env.reset(seed=7)
    observation, reward, terminated, truncated, info = env.step("go north")

The contract, which ``ascribe env check`` verifies:

- One seed, one episode: ``reset(seed=s)`` gives the same task, the same first observation and the
  same results of the same actions in every instance made with the same options. So a group of
  trajectories is a seed. ``reset(options={"task": i})`` picks the task by number instead, and the
  seed decides the rest; tasks are numbered from 0 in an order that never changes.
- An episode ends once. After ``terminated`` or ``truncated``, ``step`` raises ``EpisodeOverError``.
- ``info`` carries, at every step, the keys of ``INFO_KEYS``.

``TextEnvironment`` implements all of it but the game itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from ascribe.steps.errors import AscribeError, InputError, MissingPackageError
from ascribe_lab.extras import install

Info = dict[str, Any]
Options = Mapping[str, Any]

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
action of an expert, or None if there is none; where a single action gives the right answer, that is
in ``right_action``). For teams: ``agent`` (who decides now) and, once the
episode is over, ``without`` (for each decision what the team would have earned without the agent
that took it, or None for a decision that served only to measure that).
"""


@runtime_checkable
class Environment(Protocol):
    """A text environment. See the module for the contract."""

    tasks: int | None
    """How many tasks there are, or None if they are drawn from the seed without end."""

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[str, Info]:
        """Begin an episode. Returns the first observation, and info."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act. Returns observation, reward, terminated, truncated and info."""
        ...

    def close(self) -> None:
        """Release what the environment holds."""
        ...


def missing_members(value: object) -> list[str]:
    """The methods and attributes of an environment that a value lacks."""
    return [name for name in ("reset", "step", "close", "tasks") if not hasattr(value, name)]


class EpisodeOverError(AscribeError, RuntimeError):
    """``step`` was called before ``reset``, or after the episode ended."""


class MissingExtraError(MissingPackageError):
    """An environment needs a package that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: {install(extra)}")
        self.extra = extra


# Environments that share their bookkeeping.

State = TypeVar("State")


@dataclass(frozen=True)
class Outcome:
    """The result of an action."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    won: bool = False
    valid: bool = True
    truncated: bool = False


@dataclass(frozen=True)
class Start(Generic[State]):
    """How an episode begins."""

    episode: State
    observation: str
    task: str
    family: str


class StepCounter(ABC):
    """Counts the steps of an episode, ends it at the horizon, and refuses steps after the end."""

    file_options: ClassVar[frozenset[str] | None] = frozenset()
    """Options that a data file, such as a file of pivots, may set: none that holds a path, an
    address or a name of code, and none that can make the environment slow. None: a file may not
    have it made at all."""

    tasks: int | None = None
    example_actions: Sequence[str] | None = None

    def __init__(self, horizon: int) -> None:
        if horizon < 1:
            raise InputError(f"horizon must be at least 1, not {horizon}")
        self.horizon = horizon
        self._steps = 0
        self._over = True

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Carry out one action."""
        if self._over:
            raise EpisodeOverError("the episode is over or never began: call reset() first")
        if not isinstance(action, str):
            raise TypeError(f"an action is text, not {type(action).__name__}")
        outcome = self._outcome(action)
        self._steps += 1
        truncated = not outcome.terminated and (outcome.truncated or self._steps >= self.horizon)
        self._over = outcome.terminated or truncated
        observation, info = self._report(outcome)
        return observation, float(outcome.reward), outcome.terminated, truncated, info

    @abstractmethod
    def _outcome(self, action: str) -> Outcome:
        """Carry out an action."""

    @abstractmethod
    def _report(self, outcome: Outcome) -> tuple[str, Info]:
        """The observation and info after ``reset`` or an action."""


class TextEnvironment(StepCounter, Generic[State]):
    """Base class of Ascribe's environments: seeds, limits, ends and info.

    A game implements how a task begins (``begin``) and what an action does (``act``), and where
    it needs to the admissible actions (``admissible``), a key of the situation (``state_key``), the
    expert's next action (``expert_action``) and further keys of info (``more_info``).
    Everything that changes during an episode lives in ``self.episode``.

    Args:
        horizon: an episode is truncated after so many actions.
        expert: whether info carries ``expert_action``.
    """

    def __init__(self, *, horizon: int, expert: bool = False) -> None:
        super().__init__(horizon)
        self.expert = expert
        self.episode: State | None = None
        self._task: Info = {}

    @abstractmethod
    def begin(self, task: int, generator: np.random.Generator) -> Start[State]:
        """Set up task number ``task``; whatever is random comes from the generator."""

    @abstractmethod
    def act(self, episode: State, action: str) -> Outcome:
        """Carry out an action; changes the episode in place."""

    def admissible(self, episode: State) -> list[str] | None:  # noqa: ARG002
        """The actions that can be taken now, in an order that never changes; None for any text."""
        return None

    def state_key(self, episode: State, observation: str) -> str:  # noqa: ARG002
        """A key of the situation; right as it is if the observation shows all that matters."""
        return observation

    def expert_action(self, episode: State) -> str | None:
        """The expert's next action; None if there is none from here."""
        raise NotImplementedError

    def right_action(self, episode: State) -> str | None:  # noqa: ARG002
        """The action that solves the task now, if there is one that does whatever came before."""
        return None

    def more_info(self, episode: State) -> Info:  # noqa: ARG002
        """Further keys of info."""
        return {}

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[str, Info]:
        """Begin an episode; see the module for what seed and options mean."""
        generator = np.random.default_rng(seed)
        start = self.begin(self._pick(dict(options or {}), generator), generator)
        self.episode = start.episode
        self._steps, self._over = 0, False
        self._task = {"task": start.task, "task_family": start.family}
        return self._report(Outcome(start.observation))

    def close(self) -> None:
        """There is nothing to release."""

    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        return pick_task(options, self.tasks, generator)

    def _outcome(self, action: str) -> Outcome:
        assert self.episode is not None
        return self.act(self.episode, action)

    def _report(self, outcome: Outcome) -> tuple[str, Info]:
        episode = self.episode
        assert episode is not None
        info: Info = {
            **self._task,
            "admissible_actions": [] if self._over else self.admissible(episode),
            "won": outcome.won,
            "state": self.state_key(episode, outcome.observation),
            "valid": outcome.valid,
        }
        if self.example_actions is not None:
            info["example_actions"] = list(self.example_actions)
        if self.expert:
            info["expert_action"] = None if self._over else self.expert_action(episode)
            if not self._over and (right := self.right_action(episode)) is not None:
                info["right_action"] = right
        return outcome.observation, info | self.more_info(episode)


def pick_task(options: dict[str, Any], tasks: int | None, generator: np.random.Generator) -> int:
    """The number of the task that ``reset`` begins: its option ``task``, or else drawn.

    No other option may be there.
    """
    task = options.pop("task", None)
    if options:
        raise InputError(f"unknown options of reset: {', '.join(sorted(options))}")
    if task is None:
        return int(generator.integers(tasks if tasks is not None else 2**62))
    if tasks is not None and not 0 <= task < tasks:
        raise InputError(f"there is no task {task}", hint=f"there are {tasks}, counted from 0")
    return int(task)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """The value of an option, which must be one of those allowed."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value
