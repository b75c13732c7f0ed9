"""``RayPool``: environments in Ray actors, on this machine or on a cluster, with time limits."""

import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ascribe.envs import MissingExtraError
from ascribe.rollout.pools.processes import SupervisedPool, SupervisedWorker, TimeLimits
from ascribe.rollout.pools.worker import Worker, limit_memory, shorten

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, this variable makes a Ray that is started here listen on the loopback address alone,
on every system. Ray has no other way: it replaces a loopback address that it is told."""


def starts_own_ray() -> bool:
    """Whether ``ray.init()`` starts Ray on this machine, rather than joining a running cluster."""
    running = Path(tempfile.gettempdir(), "ray", "ray_current_cluster")
    return "RAY_ADDRESS" not in os.environ and not running.exists()


def start_ray() -> None:
    """Start Ray on this machine, on the loopback address, unless a cluster runs or is named."""
    import ray

    if starts_own_ray() and os.environ.setdefault(LOOPBACK, "0") == "0":
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # read on import
    ray.init(include_dashboard=False)


class RayPool(SupervisedPool):
    """Environments in Ray actors, one for each worker.

    If Ray is already running in this program it is used as it is; if not, it is started on this
    machine, on the loopback address, unless ``RAY_ADDRESS`` names a cluster. It is never stopped,
    because other code may be using it.

    The arguments are ``SupervisedPool``'s, and ``cpus``: the CPUs that each actor reserves, a small
    fraction by default because environments mostly wait for the policy. The environment's package
    must be installed wherever actors run.
    """

    def __init__(self, *arguments: Any, cpus: float = 0.1, **options: Any) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("Ray", "ray") from None
        self._ray, self._cpus = ray, cpus
        super().__init__(*arguments, **options)

    def _make_worker(self, spec: bytes, limits: TimeLimits, tries: int) -> "ActorWorker":
        if not self._ray.is_initialized():
            start_ray()
        options = {"num_cpus": self._cpus, "max_restarts": 0, "max_task_retries": 0}
        worker = ActorWorker(spec, limits, tries)
        worker.ray, worker.actor_class = self._ray, self._ray.remote(**options)(Actor)
        return worker

    def _wait(self, workers: Sequence[Any], timeout: float) -> list[Any]:
        streams = {worker.stream: worker for worker in workers}
        ready, _ = self._ray.wait(list(streams), num_returns=1, timeout=timeout)
        return [streams[stream] for stream in ready]


class ActorWorker(SupervisedWorker):
    """A Ray actor. Its death shows only at the next call."""

    ray: Any
    actor_class: Any

    def _launch(self) -> None:
        self._actor = self.actor_class.remote(self._spec, sys.path)
        self._greeting = self._actor.ready.remote()
        self._closed: Any = None
        self._problem = "the actor was ended"
        self.stream: Any = None

    def _wait_until_ready(self, timeout: float) -> None:
        self._get(self._greeting, timeout)

    def _send(self, tasks: bytes) -> None:
        self.stream = self._actor.messages.options(num_returns="streaming").remote(tasks)

    def _receive(self) -> bytes:
        message: bytes = self._get(next(self.stream))
        return message

    def request_stop(self) -> None:
        """Call the actor one last time."""
        if self.ray.is_initialized():
            self._closed = self._actor.close.remote()

    def _kill(self, patience: float) -> str:
        if self.ray.is_initialized():
            if self._closed is not None:
                self.ray.wait([self._closed], timeout=patience)
            self.ray.kill(self._actor, no_restart=True)
        return self._problem

    def _get(self, reference: Any, timeout: float | None = None) -> Any:
        try:
            return self.ray.get(reference, timeout=timeout)
        except self.ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except self.ray.exceptions.RayError as error:
            self._problem = shorten(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            raise EOFError(self._problem) from None


class Actor:
    """A worker as Ray runs it."""

    def __init__(self, spec: bytes, path: list[str]) -> None:
        os.dup2(2, 1)  # Ray shows what actors print; it must not mix with what the program prints
        # The actor can import whatever the program can, if it is installed on the actor's machine.
        sys.path.extend(folder for folder in path if folder not in sys.path)
        self._worker = Worker(limit_memory(pickle.loads(spec)))

    def ready(self) -> None:
        """Return once the actor runs."""

    def messages(self, tasks: bytes) -> Iterator[bytes]:
        """Carry out the tasks of a call; one message for each result."""
        yield from self._worker.messages(*pickle.loads(tasks))

    def close(self) -> None:
        """Close all environments."""
        self._worker.close()
