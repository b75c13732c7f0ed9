"""What a pool is: many environments side by side, each in a slot of its own.

::

    with ProcessPool(EnvironmentSpec("sokoban"), workers=4, slots=64, ...) as pool:
        answers = pool.reset({slot: Begin(seed=slot // 8) for slot in range(64)})
        answers = pool.step({0: "left", 7: "up"})

A call carries out one order for each slot that it names and returns when all are answered. Every
slot that was asked gets exactly one answer: ``Told``, or ``Failure`` with the reason. A failure
ends the episode of its slot. The pool never tries again by itself, because only the caller knows
whether the episode is still wanted; ``replay`` takes it up where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self


@dataclass(frozen=True)
class EnvironmentSpec:
    """Which environment to make, as plain data that can travel to a worker."""

    name: str
    """A key of ``ascribe.envs.ENVIRONMENTS``, or ``package.module:factory``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the environment takes when it is made."""


@dataclass(frozen=True)
class Begin:
    """How an episode is to begin: what ``reset`` of the environment takes."""

    seed: int
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Told:
    """What an environment told us. A reset has reward 0 and ends nothing."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """Plain data; what was not is named under the key ``dropped``."""
    seconds: float = field(compare=False)
    """How long the environment took; no part of what it told."""

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class FailureKind(StrEnum):
    """Why there is no answer."""

    CRASHED = "crashed"
    """The worker process died during this slot's step."""
    HUNG = "hung"
    """This slot's step took longer than its limit, so the worker was killed."""
    RAISED = "raised"
    """The environment raised an exception."""
    STARTED_NOT = "started_not"
    """The environment could not be made."""
    MALFORMED = "malformed"
    """The environment returned something that is no valid answer."""
    LOST = "lost"
    """The slot has no episode: it never began, an earlier failure ended it, or the worker that held
    it died through no fault of this slot."""


@dataclass(frozen=True)
class Failure:
    """Why a slot has no answer, and so no episode until its next reset."""

    kind: FailureKind
    detail: str
    """A few words, printable and of bounded length."""


class PoolBroken(RuntimeError):  # noqa: N818 (named for what is wrong)
    """A worker died again and again, without one answer from an environment in between."""


Move = Begin | str
"""One thing an environment is asked: to begin, or to carry out an action."""

Answer = Told | Failure


class Pool(Protocol):
    """Environments side by side. A pool belongs to one thread at a time."""

    slots: int
    """Slots are numbered from 0."""

    def reset(self, begins: Mapping[int, Begin]) -> dict[int, Told | Failure]:
        """Begin an episode in each of these slots."""
        ...

    def step(self, actions: Mapping[int, str]) -> dict[int, Told | Failure]:
        """Carry out one action in each of these slots."""
        ...

    def replay(
        self, episodes: Mapping[int, tuple[Begin, Sequence[str]]]
    ) -> dict[int, list[Told] | Failure]:
        """Begin episodes and play their actions: all that was told, the reset's first."""
        ...

    def close(self) -> None:
        """End the workers. A closed pool takes no more orders; closing it again does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
