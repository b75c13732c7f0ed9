"""``ProcessPool``: environments in worker processes, with time limits; ``SerialPool``: without.

A worker carries out the tasks of its slots one after the other and sends every result as soon as it
has it, so the time between two results is the time of one command. A worker that dies or hangs
takes the episodes of all its slots with it, and is restarted when it is next needed.
"""

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import NamedTuple

from ascribe.steps.errors import InputError
from ascribe_lab.rollout.pools.pool import (
    EnvironmentQuery,
    EnvironmentSpec,
    Failure,
    FailureKind,
    Pool,
    PoolBrokenError,
    Reset,
    StepResult,
    Task,
)
from ascribe_lab.rollout.pools.worker import LARGEST_MESSAGE, READY, STOP, Worker, decode

LIVENESS_INTERVAL = 0.5
"""Seconds between two checks whether silent workers still run."""
CLOSING_TIME = 5.0
"""Seconds that environments have to close."""
EXIT_TIME = 0.5
"""Seconds that a worker has between closing its connection and its exit."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds before the second restart in a row, doubled with each further one up to a limit."""


class SerialPool(Pool):
    """All environments in this process, one after another, for tests and debugging.

    There are no time limits: an environment that hangs or crashes also hangs or ends the program.
    What environments print through Python goes to standard error.

    Args:
        spec: the environment.
        slots: how many of it.
    """

    def __init__(self, spec: EnvironmentSpec, slots: int) -> None:
        super().__init__(slots)
        self._worker = Worker(spec)

    def _run(self, tasks: Sequence[Task]) -> None:
        with redirect_stdout(sys.stderr):
            for task in tasks:
                while not task.done:
                    task.record(self._worker.execute(task.slot, task.command))

    def _close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._worker.close()


class TimeLimits(NamedTuple):
    """Time limits in seconds."""

    step: float
    reset: float
    start: float
    """The start of a worker, and the making of an environment."""


class WorkerProcess:
    """Keeps one worker process running, and reports which slot killed it.

    Args:
        spec: the environment, pickled.
        limits: time limits of steps, resets and starts.
        tries: how often in a row a worker may die without a result.
    """

    connection: Connection

    def __init__(self, spec: bytes, limits: TimeLimits, tries: int) -> None:
        self._spec, self._limits, self._tries = spec, limits, tries
        self.process: subprocess.Popen[bytes] | None = None
        """None while no worker runs."""
        self._deaths = 0
        """Since the last result from an environment."""
        self._last_death = ""
        self._ready = False
        self._with_environment: set[int] = set()
        """The slots whose environment is made."""
        self._tasks: Sequence[Task] = ()
        self.pending: deque[Task] = deque()
        """The tasks of the present call that are not done."""
        self._limit = 0.0
        self.deadline = 0.0
        """When the worker must be ready, or the result of the current command must be here."""

    # Starting.

    def start(self) -> None:
        """Start a worker unless one is running."""
        if self.process is not None and self.process.poll() is not None:
            self._record_death()
        if self.process is not None:
            return
        if self._deaths >= self._tries:
            raise PoolBrokenError(
                f"a worker died {self._deaths} times in a row without one result from an "
                f"environment; the last time: {self._last_death}"
            )
        if self._deaths > 1:
            time.sleep(min(FIRST_DELAY * 2.0 ** (self._deaths - 2), LONGEST_DELAY))
        self._launch()
        self._ready = False
        self._with_environment.clear()
        self.deadline = time.monotonic() + self._limits.start

    def _launch(self) -> None:
        self.connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from {Worker.__module__} import main; main({theirs.fileno()}, {lifeline})"
        )
        try:
            _limit_stalls(self.connection.fileno(), self._limits.step)
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=(theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with what the program prints
                start_new_session=True,  # so that it can be killed with all that it starts
            )
        except BaseException:
            self._release()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    def wait_until_ready(self) -> None:
        """Wait until the worker has started, restarting it if need be."""
        self.start()
        while not self._ready:
            try:
                if not self.connection.poll(max(self.deadline - time.monotonic(), 0.001)):
                    self._record_death(f"not ready within {self._limits.start:g} s")
                elif self.connection.recv_bytes(LARGEST_MESSAGE) == READY:
                    self.connection.send_bytes(self._spec)
                    self._ready = True
            except (OSError, EOFError):
                self._record_death()
            self.start()

    # A call.

    def assign(self, tasks: Sequence[Task], message: bytes) -> None:
        """Send the worker its tasks of a call, pickled."""
        self._tasks = tasks
        self.pending = deque(task for task in tasks if not task.done)
        self._begin_command()
        try:
            self.connection.send_bytes(message)
        except BlockingIOError:  # it takes nothing
            self._time_out()
        except OSError:
            self._crash()

    def receive(self) -> None:
        """Take the next message; there must be one, or the worker must be gone."""
        try:
            result = decode(self.connection.recv_bytes(LARGEST_MESSAGE))
        except (OSError, EOFError, ValueError, TypeError, KeyError):  # gone, or it sent nonsense
            self._crash()
            return
        task = self.pending[0]
        if isinstance(task.command, EnvironmentQuery):
            self._deaths = 0
        elif isinstance(result, StepResult):
            self._deaths = 0
            self._with_environment.add(task.slot)
        elif isinstance(task.command, Reset):  # the worker closes an environment that cannot begin
            self._with_environment.discard(task.slot)
        task.record(result)
        if task.done:
            self.pending.popleft()
        self._begin_command()

    def check(self) -> None:
        """End a worker that has sent nothing because it is gone or takes too long."""
        assert self.process is not None
        if self.process.poll() is not None:
            # A fork of the worker may hold the connection open, so that its end does not show.
            if not self.connection.poll():
                self._crash()
        elif time.monotonic() >= self.deadline:
            self._time_out()

    def abandon(self) -> None:
        """End the worker if it is in the middle of a call."""
        if self.pending:
            self.pending.clear()
            self.end()

    def _begin_command(self) -> None:
        """Set the deadline of the command that the worker carries out next."""
        if not self.pending:
            return
        task = self.pending[0]
        if isinstance(task.command, EnvironmentQuery):
            self._limit = task.command.limit
        elif isinstance(task.command, str):
            self._limit = self._limits.step
        elif task.slot in self._with_environment:
            self._limit = self._limits.reset
        else:
            self._limit = self._limits.start + self._limits.reset
        self.deadline = time.monotonic() + self._limit

    def _time_out(self) -> None:
        detail = f"no result within {self._limit:g} s"
        self._fail_tasks(FailureKind.HUNG, self._record_death(detail))

    def _crash(self) -> None:
        self._fail_tasks(FailureKind.CRASHED, self._record_death())

    def _fail_tasks(self, kind: FailureKind, detail: str) -> None:
        """Fail the task whose command ended the worker, and mark the other episodes as lost.

        Episodes that had already ended keep their results.
        """
        culprit = self.pending[0]
        lost = Failure(FailureKind.LOST, f"slot {culprit.slot} on the same worker {kind.value}")
        for task in self._tasks:
            if task is culprit:
                task.failure = Failure(kind, detail)
            elif task.failure is None and not (task.done and task.results[-1].over):
                task.failure = lost
        self.pending.clear()

    # Ending.

    def _record_death(self, reason: str | None = None) -> str:
        """End the worker and count its death. Returns why it died."""
        # A worker that closed its connection is exiting; its exit code tells more than our kill.
        ending = self.end(0.0 if reason else EXIT_TIME)
        self._deaths += 1
        self._last_death = reason or ending
        return self._last_death

    def end(self, patience: float = 0.0) -> str:
        """Wait so many seconds for the worker to exit, then kill it. Returns how it ended."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):  # with all that environments started
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.process = None
        self._release()
        if code >= 0:
            return f"the worker exited with code {code}"
        return f"the worker was ended by signal {-code}"

    def _release(self) -> None:
        self.connection.close()
        os.close(self._lifeline)


class ProcessPool(Pool):
    """Environments in worker processes, under time limits. Slots are dealt to the workers in turn.

    A worker is a fresh Python interpreter, never a fork: this process may hold threads of torch or
    Ray. It does not import the program's main module either, so scripts need no guard.

    Args:
        spec: the environment.
        workers: how many; no more are started than there are slots.
        slots: how many environments.
        step_limit: seconds that a step may take.
        reset_limit: seconds that a reset may take.
        start_limit: seconds that a worker may take to start, and an environment to be made.
        tries: how often in a row a worker may die without one result from an environment. After
            that, a call that needs this worker raises ``PoolBrokenError``.
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
            raise OSError("ProcessPool needs a POSIX system; use SerialPool")
        super().__init__(slots)
        limits = TimeLimits(step_limit, reset_limit, start_limit)
        for name, limit in limits._asdict().items():
            if not limit > 0:
                raise InputError(f"{name}_limit must be above 0, not {limit}")
        if workers < 1:
            raise InputError(f"workers must be at least 1, not {workers}")
        pickled = pickle.dumps(spec)
        self._workers = [WorkerProcess(pickled, limits, tries) for _ in range(min(workers, slots))]
        self._finalizer = weakref.finalize(self, _end, self._workers, os.getpid())
        for worker in self._workers:
            worker.start()

    @property
    def processes(self) -> list[int | None]:
        """The process of each worker; slot ``s`` is with worker ``s % len(processes)``."""
        running = [worker.process for worker in self._workers]
        return [None if process is None else process.pid for process in running]

    def _run(self, tasks: Sequence[Task]) -> None:
        shares: dict[int, list[Task]] = {}
        for task in tasks:
            shares.setdefault(task.slot % len(self._workers), []).append(task)
        # A command that cannot be pickled raises here, before anything is sent.
        messages = [
            pickle.dumps([(task.slot, task.commands) for task in share])
            for share in shares.values()
        ]
        workers = [self._workers[index] for index in shares]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.wait_until_ready()
        try:
            for worker, share, message in zip(workers, shares.values(), messages, strict=True):
                worker.assign(share, message)
            while busy := [worker for worker in workers if worker.pending]:
                patience = min(worker.deadline for worker in busy) - time.monotonic()
                timeout = min(max(patience, 0.0), LIVENESS_INTERVAL)
                ready = wait([worker.connection for worker in busy], timeout)
                for worker in busy:
                    if worker.connection in ready:
                        worker.receive()
                    else:
                        worker.check()
        except BaseException:
            for worker in workers:
                worker.abandon()
            raise

    def _close(self) -> None:
        self._finalizer()


def _end(workers: Sequence[WorkerProcess], owner: int) -> None:
    """End all workers; in the process that started them, not in a fork of it."""
    if os.getpid() != owner:
        return
    running = [worker for worker in workers if worker.process is not None]
    for worker in running:
        with suppress(OSError):
            worker.connection.send_bytes(STOP)
    deadline = time.monotonic() + CLOSING_TIME
    for worker in running:
        worker.end(max(0.0, deadline - time.monotonic()))


def _limit_stalls(descriptor: int, seconds: float) -> None:
    """Make reads and writes fail after this many seconds without progress.

    Connections have no timeouts, and a stopped process may take or send half a message.
    """
    seconds = min(seconds, 1e6)  # no limit at all is given as infinity
    timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or 1)
    with socket.socket(fileno=os.dup(descriptor)) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
