"""The pool interface: many environments in parallel, each in its own slot.

::

    with ProcessPool(EnvironmentSpec("sokoban"), workers=4, slots=64, ...) as pool:
        results = pool.reset({slot: Reset(seed=slot // 8) for slot in range(64)})
        results = pool.step({0: "left", 7: "up"})

A call returns when every slot it names has a ``StepResult``, or a ``Failure`` with the reason. A
failure ends the episode of its slot. A pool never retries, because the episode may no longer be
needed; the caller resumes it in a new environment with ``replay``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

from ascribe.steps.errors import AscribeError, InputError


@dataclass(frozen=True)
class EnvironmentSpec:
    """Which environment to make, as plain data that can be sent to a worker."""

    name: str
    """A key of ``ascribe_lab.envs.ENVIRONMENTS``, or ``package.module:factory``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    memory: float | None = None
    """GiB of data that a worker may have; None: the memory of its machine."""


@dataclass(frozen=True)
class Reset:
    """How an episode begins: the arguments of the environment's ``reset``."""

    seed: int
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class EnvironmentQuery:
    """What to find out about an environment, where it can do no harm: in its worker."""

    name: Literal["facts", "contract"]
    """``facts``: the number of tasks and the horizon, or the reason why it is ``refused``.
    ``contract``: the report after another part of ``ascribe_lab.envs.contract``."""
    limit: float
    """Seconds that it may take."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of ``contract``: the part, seeds and max_steps."""


Command = Reset | str | EnvironmentQuery
"""A command to a worker: begin an episode, carry out an action, or find something out."""


@dataclass(frozen=True)
class StepResult:
    """What an environment returned. After a reset the reward is 0 and nothing has ended."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """Plain data; keys whose values were not are listed under ``dropped``. After a query, what
    was found out."""
    seconds: float = field(compare=False)
    """How long the environment took."""

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class FailureKind(StrEnum):
    """Why there is no result."""

    CRASHED = "crashed"
    """The worker process died during this slot's step."""
    HUNG = "hung"
    """This slot's step took longer than its limit, so the worker was killed."""
    RAISED = "raised"
    """The environment raised an exception."""
    NOT_STARTED = "not_started"
    """The environment could not be made."""
    MALFORMED = "malformed"
    """The environment returned something that violates the protocol."""
    LOST = "lost"
    """The slot has no episode: none was begun, an earlier failure ended it, or its worker died
    because of another slot."""


@dataclass(frozen=True)
class Failure:
    """Why a slot has no result, and so no episode until its next reset."""

    kind: FailureKind
    detail: str
    """A short printable text."""


class PoolBrokenError(AscribeError, RuntimeError):
    """A worker died again and again without one result from an environment in between."""


@dataclass
class Task:
    """The commands for one slot in one call, and the results so far."""

    slot: int
    commands: Sequence[Command]
    results: list[StepResult] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def done(self) -> bool:
        """Whether no command is left; a failure is always the last."""
        return self.failure is not None or len(self.results) == len(self.commands)

    @property
    def command(self) -> Command:
        """The command that is being carried out."""
        return self.commands[len(self.results)]

    def record(self, result: StepResult | Failure) -> None:
        """Add the result of the current command."""
        if isinstance(result, Failure):
            self.failure = result
        else:
            self.results.append(result)


class Pool(ABC):
    """Environments side by side. A pool belongs to one thread at a time."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise InputError(f"slots must be at least 1, not {slots}")
        self.slots = slots
        """Slots are numbered from 0."""
        self._closed = False

    def reset(self, resets: Mapping[int, Reset]) -> dict[int, StepResult | Failure]:
        """Begin an episode in each of these slots."""
        return _first(self._call({slot: [reset] for slot, reset in resets.items()}))

    def step(self, actions: Mapping[int, str]) -> dict[int, StepResult | Failure]:
        """Carry out one action in each of these slots."""
        return _first(self._call({slot: [action] for slot, action in actions.items()}))

    def replay(
        self, episodes: Mapping[int, tuple[Reset, Sequence[str]]]
    ) -> dict[int, list[StepResult] | Failure]:
        """Begin episodes and play their actions; returns all results, the reset's first."""
        return self._call({slot: [reset, *actions] for slot, (reset, actions) in episodes.items()})

    def ask(self, query: EnvironmentQuery) -> dict[str, Any] | Failure:
        """Find something out about the environment, in the worker of slot 0."""
        result = _first(self._call({0: [query]}))[0]
        return result if isinstance(result, Failure) else result.info

    def close(self) -> None:
        """End the workers. A closed pool takes no calls; closing it again does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _run(self, tasks: Sequence[Task]) -> None:
        """Carry out every task until it is done."""

    @abstractmethod
    def _close(self) -> None:
        """End the workers; called once."""

    def _call(
        self, commands: Mapping[int, Sequence[Command]]
    ) -> dict[int, list[StepResult] | Failure]:
        if self._closed:
            raise RuntimeError("the pool is closed")
        for slot, slot_commands in commands.items():
            if not 0 <= slot < self.slots:
                raise InputError(f"there is no slot {slot}", hint=f"there are {self.slots}, from 0")
            for command in slot_commands:
                if not isinstance(command, Command):
                    raise TypeError(f"an action is text, not {type(command).__name__}")
        tasks = [Task(slot, slot_commands) for slot, slot_commands in commands.items()]
        self._run(tasks)
        return {task.slot: task.failure or task.results for task in tasks}


def _first(results: dict[int, list[StepResult] | Failure]) -> dict[int, StepResult | Failure]:
    return {slot: r if isinstance(r, Failure) else r[0] for slot, r in results.items()}
