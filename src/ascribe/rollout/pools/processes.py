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
from multiprocessing.connection import Pipe, wait
from typing import NamedTuple

from ascribe.rollout.pools.pool import (
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
from ascribe.rollout.pools.worker import LARGEST_MESSAGE, READY, STOP, Worker, decode

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


class ProcessWorker:
    """Keeps one worker process running, and reports which slot killed it.

    Args:
        spec: the environment, pickled.
        limits: time limits of steps, resets and starts.
        tries: how often in a row a worker may die without a result.
    """

    process: "subprocess.Popen[bytes]"

    def __init__(self, spec: bytes, limits: TimeLimits, tries: int) -> None:
        self._spec, self._limits, self._tries = spec, limits, tries
        self._deaths = 0
        """Since the last result from an environment."""
        self._last_death = ""
        self._restart_at = 0.0
        self.running = False
        self._ready = False
        self._started = 0.0
        self._with_environment: set[int] = set()
        """The slots whose environment is made."""
        self._call = 0
        self._tasks: Sequence[Task] = ()
        self._pending: deque[Task] = deque()
        self._command_began = 0.0

    @property
    def busy(self) -> bool:
        """Whether a task is not done yet."""
        return bool(self._pending)

    @property
    def limit(self) -> float:
        """Seconds that the current command may take."""
        task = self._pending[0]
        if isinstance(task.command, EnvironmentQuery):
            return task.command.limit
        if isinstance(task.command, str):
            return self._limits.step
        has_environment = task.slot in self._with_environment
        return self._limits.reset if has_environment else self._limits.start + self._limits.reset

    @property
    def deadline(self) -> float:
        """When the result of the current command must be here."""
        return self._command_began + self.limit

    def start(self) -> None:
        """Start a worker unless one is running."""
        if self.running and self.process.poll() is not None:
            self._record_death()
        if self.running:
            return
        if self._deaths >= self._tries:
            raise PoolBrokenError(
                f"a worker died {self._deaths} times in a row without one result from an "
                f"environment; the last time: {self._last_death}"
            )
        time.sleep(max(0.0, self._restart_at - time.monotonic()))
        self._launch()
        self.running, self._ready, self._started = True, False, time.monotonic()
        self._with_environment.clear()

    def prepare(self) -> None:
        """Wait until the worker is ready, restarting it if need be."""
        self.start()
        while not self._ready:
            remaining = self._started + self._limits.start - time.monotonic()
            try:
                self._wait_until_ready(max(remaining, 0.001))
                self._ready = True
            except TimeoutError:
                self._record_death(f"not ready within {self._limits.start:g} s")
            except EOFError:
                self._record_death()
            self.start()

    def assign(self, call: int, tasks: Sequence[Task], message: bytes) -> None:
        """Send the worker the tasks of a call."""
        self._call, self._tasks = call, tasks
        self._pending = deque(task for task in tasks if not task.done)
        self._command_began = time.monotonic()
        try:
            self._send(message)
        except TimeoutError:
            self.time_out()
        except EOFError:
            self._crashed()

    def receive(self) -> None:
        """Take the next message; there must be one, or the worker must be gone."""
        task = self._pending[0]
        try:
            tag, result = decode(self._receive())
        except (EOFError, ValueError, TypeError, KeyError):  # gone, or its messages are corrupt
            self._crashed()
            return
        if tag != (self._call, task.slot, len(task.results)):
            return  # a stale message from a fork of the worker
        if isinstance(task.command, EnvironmentQuery):
            self._deaths = 0
        elif isinstance(result, StepResult):
            self._deaths = 0
            self._with_environment.add(task.slot)
        elif isinstance(task.command, Reset):  # the worker closes an environment that cannot begin
            self._with_environment.discard(task.slot)
        task.record(result)
        self._command_began = time.monotonic()
        if task.done:
            self._pending.popleft()

    def time_out(self) -> None:
        """End the worker because the current command takes too long."""
        detail = f"no result within {self.limit:g} s"
        self._record_death(detail)
        self._fail_tasks(FailureKind.HUNG, detail)

    def check_running(self) -> None:
        """Detect an exit that did not close the connection because a fork holds it open."""
        if self.busy and self.process.poll() is not None:
            while self.busy and self.connection.poll(0):
                self.receive()
            if self.busy:
                self._crashed()

    def abandon(self) -> None:
        """End the worker if it is in the middle of a call."""
        if self.busy:
            self.end(time.monotonic())
        self._pending.clear()

    def end(self, deadline: float) -> None:
        """Wait until the deadline for the worker to exit, then kill it."""
        if self.running:
            self.running = False
            self._kill(max(0.0, deadline - time.monotonic()))

    def _crashed(self) -> None:
        self._fail_tasks(FailureKind.CRASHED, self._record_death())

    def _fail_tasks(self, kind: FailureKind, detail: str) -> None:
        """Fail the task whose command ended the worker, and mark the other episodes as lost.

        Episodes that had already ended keep their results.
        """
        culprit = self._pending[0]
        lost = Failure(FailureKind.LOST, f"slot {culprit.slot} on the same worker {kind.value}")
        for task in self._tasks:
            if task is culprit:
                task.failure = Failure(kind, detail)
            elif task.failure is None and not (task.done and task.results[-1].over):
                task.failure = lost
        self._pending.clear()

    def _record_death(self, reason: str | None = None) -> str:
        """End the worker and count its death. Returns why it died."""
        # A worker that closed its connection is exiting; its exit code tells more than our kill.
        self.running = False
        ending = self._kill(0.0 if reason else EXIT_TIME)
        delay = 0.0 if self._deaths == 0 else FIRST_DELAY * 2.0 ** (self._deaths - 1)
        self._restart_at = time.monotonic() + min(delay, LONGEST_DELAY)
        self._deaths += 1
        self._last_death = reason or ending
        return self._last_death

    # The process and the connection to it: TimeoutError if it is too slow, EOFError if it is gone.

    def _launch(self) -> None:
        self.connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from ascribe.rollout.pools.worker import main; main({theirs.fileno()}, {lifeline})"
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

    def _wait_until_ready(self, timeout: float) -> None:
        if not self.connection.poll(timeout):
            raise TimeoutError
        if self._receive() != READY:
            raise EOFError
        self._send(self._spec)

    def _send(self, tasks: bytes) -> None:
        try:
            self.connection.send_bytes(tasks)
        except BlockingIOError:
            raise TimeoutError from None
        except OSError:
            raise EOFError from None

    def _receive(self) -> bytes:
        try:
            return self.connection.recv_bytes(LARGEST_MESSAGE)
        except OSError:  # incomplete or too large
            raise EOFError from None

    def request_stop(self) -> None:
        """Send the last message."""
        with suppress(TimeoutError, EOFError):
            self._send(STOP)

    def _kill(self, patience: float) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):  # with all that environments started
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
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
                raise ValueError(f"{name}_limit must be above 0, not {limit}")
        for name, count in {"workers": workers, "tries": tries}.items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
        pickled = pickle.dumps(spec)
        self._workers = [ProcessWorker(pickled, limits, tries) for _ in range(min(workers, slots))]
        self._finalizer = weakref.finalize(self, _end, self._workers, os.getpid())
        self._calls = 0
        for worker in self._workers:
            worker.start()

    @property
    def processes(self) -> list[int | None]:
        """The process of each worker; slot ``s`` is with worker ``s % len(processes)``."""
        return [worker.process.pid if worker.running else None for worker in self._workers]

    def _run(self, tasks: Sequence[Task]) -> None:
        self._calls += 1
        batches: dict[int, list[Task]] = {}
        for task in tasks:
            batches.setdefault(task.slot % len(self._workers), []).append(task)
        # A command that cannot be pickled raises here, before anything is sent.
        messages = [
            pickle.dumps((self._calls, [(task.slot, task.commands) for task in batch]))
            for batch in batches.values()
        ]
        workers = [self._workers[index] for index in batches]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.prepare()
        try:
            for worker, batch, message in zip(workers, batches.values(), messages, strict=True):
                worker.assign(self._calls, batch, message)
            self._collect(workers)
        except BaseException:
            for worker in workers:
                worker.abandon()
            raise

    def _collect(self, workers: Sequence[ProcessWorker]) -> None:
        """Take results until every task is done."""
        check = time.monotonic() + LIVENESS_INTERVAL
        while busy := [worker for worker in workers if worker.busy]:
            wake_at = min(check, *(worker.deadline for worker in busy))
            connections = [worker.connection for worker in busy]
            ready = set(wait(connections, max(0.0, wake_at - time.monotonic())))
            now = time.monotonic()
            for worker, connection in zip(busy, connections, strict=True):
                if connection in ready:
                    worker.receive()
                elif now >= worker.deadline:
                    worker.time_out()
            if now >= check:
                check = now + LIVENESS_INTERVAL
                for worker in busy:
                    worker.check_running()

    def _close(self) -> None:
        self._finalizer()


def _end(workers: Sequence[ProcessWorker], owner: int) -> None:
    """End all workers; in the process that started them, not in a fork of it."""
    if os.getpid() != owner:
        return
    for worker in workers:
        if worker.running:
            worker.request_stop()
    deadline = time.monotonic() + CLOSING_TIME
    for worker in workers:
        worker.end(deadline)


def _limit_stalls(descriptor: int, seconds: float) -> None:
    """Make reads and writes fail after this many seconds without progress.

    Connections have no timeouts, and a stopped process may take or send half a message.
    """
    seconds = min(seconds, 1e6)  # no limit at all is given as infinity
    timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or 1)
    with socket.socket(fileno=os.dup(descriptor)) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
