"""``ProcessPool``: environments in worker processes of this machine, with time limits.

A worker is a fresh Python interpreter, never a fork: the pool's process may hold threads of torch
or Ray. It does not import the program's main module either, so scripts need no guard.
"""

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ascribe.rollout.pools.channel import STOP, Channel
from ascribe.rollout.pools.limited import LimitedPool
from ascribe.rollout.pools.limits import Limits
from ascribe.rollout.pools.pool import Answer, EnvironmentSpec
from ascribe.rollout.pools.seat import Life

STOP_LIMIT = 1.0
"""Seconds to hand over the request to stop."""


class ProcessPool(LimitedPool):
    """Environments in worker processes.

    Args:
        spec: the environment.
        workers: how many processes; no more are started than there are slots.
        slots: how many environments.
        step_limit: seconds that a step may take.
        reset_limit: seconds that a reset may take.
        start_limit: seconds that a process may take to start, and an environment to be made.
        tries: how often in a row a worker may die without one answer from an environment. After
            that, whatever needs this worker raises ``PoolBroken``.
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
    ) -> None:
        if os.name != "posix":
            raise OSError("ProcessPool needs a POSIX system; use SerialPool or RayPool")
        limits = Limits(step_limit, reset_limit, start_limit)
        start = partial(ProcessLife, pickle.dumps(spec), start_limit)
        super().__init__(start, workers, slots, limits, tries)

    @property
    def processes(self) -> list[int | None]:
        """The process of each worker; slot ``s`` is with worker ``s % len(processes)``."""
        lives = [seat.life for seat in self._seats]
        return [life.pid if isinstance(life, ProcessLife) else None for life in lives]

    def _wait(self, lives: Sequence[Life], seconds: float) -> list[int]:
        poll = select.poll()
        numbers = {}
        for number, life in enumerate(lives):
            assert isinstance(life, ProcessLife)
            numbers[life.channel.fileno()] = number
            poll.register(life.channel, select.POLLIN)
        # Rounded up: a limit is not over before it is over.
        return [numbers[descriptor] for descriptor, _ in poll.poll(int(seconds * 1000) + 1)]


class ProcessLife(Life):
    """One worker process."""

    def __init__(self, spec: bytes, limit: float) -> None:
        super().__init__()
        ours, theirs = socket.socketpair()
        watched, self._lifeline = os.pipe()
        self.channel = Channel(ours)
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from ascribe.rollout.pools.child import main; main({theirs.fileno()}, {watched})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=(theirs.fileno(), watched),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with what the program prints
                start_new_session=True,  # so that it can be killed with all that it starts
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            theirs.close()
            os.close(watched)
        self.pid = self._process.pid
        with suppress(TimeoutError, EOFError):  # that it is dead or hangs will be seen soon
            self.channel.send(spec, limit)

    def greet(self, limit: float) -> None:
        """Its first message says that it is ready."""
        self.channel.receive(limit)

    def give(self, orders: bytes, limit: float) -> None:
        """Send the orders."""
        self.channel.send(orders, limit)

    def answers(self) -> list[Answer]:
        """Every message after the first is an answer."""
        return [pickle.loads(message) for message in self.channel.arrived()]

    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Send the last message."""
        with suppress(TimeoutError, EOFError):
            self.channel.send(STOP, STOP_LIMIT)

    def end(self, patience: float) -> str:
        """Kill the process, and whatever the environments started that is left of it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._let_go()
        if code >= 0:
            return f"the worker exited with code {code}"
        return f"the worker was ended by signal {-code}"

    def _let_go(self) -> None:
        self.channel.close()
        os.close(self._lifeline)
