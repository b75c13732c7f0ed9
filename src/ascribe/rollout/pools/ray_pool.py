"""``RayPool``: environments in Ray actors, on this machine or on a cluster, with time limits."""

import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ascribe.envs import MissingExtraError
from ascribe.rollout.pools.limited import LimitedPool
from ascribe.rollout.pools.limits import Limits
from ascribe.rollout.pools.plain import short
from ascribe.rollout.pools.pool import Answer, EnvironmentSpec
from ascribe.rollout.pools.seat import Life
from ascribe.rollout.pools.worker import Worker


class RayPool(LimitedPool):
    """Environments in Ray actors, one for each worker.

    If Ray runs already in this program it is used as it is; if not, it is started on this machine.
    It is never stopped, for others may have come to use it.

    Args:
        spec: the environment. Its package must be installed wherever actors run.
        workers: how many actors; no more are started than there are slots.
        slots: how many environments.
        step_limit: seconds that a step may take.
        reset_limit: seconds that a reset may take.
        start_limit: seconds that an actor may take to start, and an environment to be made.
        tries: how often in a row an actor may die without one answer from an environment. After
            that, whatever needs this actor raises ``PoolBroken``.
        cpus: what each actor asks of Ray. Environments mostly wait for the policy, so a small part
            of a CPU lets many share one.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        workers: int,
        slots: int,
        step_limit: float,
        reset_limit: float,
        *,
        start_limit: float = 120.0,
        tries: int = 5,
        cpus: float = 0.1,
    ) -> None:
        self._ray = _ray()
        limits = Limits(step_limit, reset_limit, start_limit)
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False)
        actor = self._ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0)(Actor)
        start = partial(ActorLife, self._ray, actor, pickle.dumps(spec))
        super().__init__(start, workers, slots, limits, tries)

    def _wait(self, lives: Sequence[Life], seconds: float) -> list[int]:
        streams = {}
        for number, life in enumerate(lives):
            assert isinstance(life, ActorLife)
            streams[life.stream] = number
        ready, _ = self._ray.wait(list(streams), num_returns=1, timeout=seconds)
        return [streams[stream] for stream in ready]


class ActorLife(Life):
    """One actor."""

    def __init__(self, ray: Any, actor: Any, spec: bytes) -> None:
        super().__init__()
        self._ray = ray
        self._actor = actor.remote(spec, sys.path)
        self._greeting = self._actor.greet.remote()
        self._farewell: Any = None
        self._problem = "the actor was ended"
        self.stream: Any = None

    def greet(self, limit: float) -> None:
        """The actor answers a first call once it runs."""
        self._get(self._greeting, limit)

    def give(self, orders: bytes, limit: float) -> None:  # noqa: ARG002 (Ray queues the call)
        """Call the actor; the answers come as a stream."""
        self.stream = self._actor.moves.options(num_returns="streaming").remote(orders)

    def answers(self) -> list[Answer]:
        """The next of the stream."""
        return [self._get(next(self.stream))]

    def is_over(self) -> bool:
        """Not known: the next call of a dead actor says so."""
        return False

    def stop(self) -> None:
        """Call the actor one last time."""
        if self._ray.is_initialized():
            self._farewell = self._actor.close.remote()

    def end(self, patience: float) -> str:
        """Kill the actor."""
        if self._ray.is_initialized():
            if self._farewell is not None:
                self._ray.wait([self._farewell], timeout=patience)
            self._ray.kill(self._actor, no_restart=True)
        return self._problem

    def _get(self, reference: Any, limit: float | None = None) -> Any:
        try:
            return self._ray.get(reference, timeout=limit)
        except self._ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except self._ray.exceptions.RayError as error:
            self._problem = short(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            raise EOFError(self._problem) from None


class Actor:
    """A worker as Ray runs it."""

    def __init__(self, spec: bytes, path: list[str]) -> None:
        os.dup2(2, 1)  # Ray shows what actors print; it must not mix with what the program prints
        # What the program can import, the actor can, if it is where the actor runs.
        sys.path.extend(folder for folder in path if folder not in sys.path)
        self._worker = Worker(pickle.loads(spec))

    def greet(self) -> None:
        """Say nothing, but say it."""

    def moves(self, orders: bytes) -> Iterator[Answer]:
        """Carry out orders; an answer after every move."""
        yield from self._worker.moves(pickle.loads(orders))

    def close(self) -> None:
        """Close all environments."""
        self._worker.close()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("Ray", "ray") from None
    return ray
