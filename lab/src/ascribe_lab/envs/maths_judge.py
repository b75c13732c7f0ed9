"""Whether two answers are equal, judged by ``math-verify`` in a process of its own.

Answers are written by models, and a short one can ask for an endless computation (``9**9**9``). No
handler of a signal interrupts it, and handlers would not work outside the main thread anyway. So
the judge is a child process that may die: it reads one JSON object a line,
``{"gold": ..., "answer": ..., "seconds": ...}``, and responds with one of ``VERDICTS``. Its memory
and the processor time of each answer are limited, and it ends when its parent does. Processor time,
not the clock: on a busy machine an answer that is right must not become a wrong one.

Each process has one judge at most, which its threads share. It starts when it is first asked.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from threading import Event, Lock, Timer
from typing import Any

VERDICTS = ("right", "wrong", "unreadable")
READY = "ready"

MEMORY = 4 * 2**30
PATIENCE = 120.0
"""Seconds by the clock, after which a silent child is killed: if it sleeps, or cannot limit its own
processor time."""

WARM_UP = ((r"\boxed{x^2-1}", r"\boxed{(x+1)(x-1)}"), (r"\boxed{(1, 2)}", r"\boxed{(2, 1)}"))
"""Judged before the first answer, since the first comparisons load half a library."""


class Judge:
    """The parent's side: asks a child process, and starts another one if that had to be killed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[str] | None = None

    def __call__(self, gold: str, answer: str, seconds: float) -> str:
        """The verdict on an answer; ``unreadable`` if it takes more seconds of processor time."""
        with self._lock:
            if self._child is None:
                self._start()
            request = {"gold": gold, "answer": answer, "seconds": seconds}
            verdict = self._exchange(json.dumps(request), PATIENCE + seconds)
            return verdict if verdict in VERDICTS else "unreadable"

    def close(self) -> None:
        """End the child process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(OSError):
                child.communicate()  # waits, and closes the pipes

    def _start(self) -> None:
        # -P: a file in the working folder must not pass for a library.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
        )
        if self._exchange("", PATIENCE) != READY:
            self.close()
            raise RuntimeError("the process that judges answers did not start")

    def _exchange(self, line: str, seconds: float) -> str:
        """Write a line and read one; after too long the child is killed, and the line is empty."""
        child, expired = self._child, Event()
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None

        def expire() -> None:
            expired.set()
            child.kill()

        timer = Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            response = child.stdout.readline().rstrip("\n")
        except OSError:
            response = ""
        finally:
            timer.cancel()
            timer.join()
        if expired.is_set() or not response:
            self.close()
        return response


def judge() -> Judge:
    """The judge of this process."""
    return _judge(os.getpid())


@cache
def _judge(process: int) -> Judge:
    """By process: a forked worker must neither ask nor end the child of its parent."""
    own = Judge()
    atexit.register(lambda: own.close() if os.getpid() == process else None)
    return own


def serve() -> None:
    """The child's side: answer requests until there are no more."""
    responses, sys.stdout = sys.stdout, sys.stderr
    verdict = judging()
    for gold, answer in WARM_UP:
        verdict(gold, answer)
    _limit_memory()
    for line in sys.stdin:
        response = READY
        if line.strip():
            request = json.loads(line)
            _limit_time(request["seconds"])
            response = verdict(request["gold"], request["answer"])
            _limit_time(0)
        responses.write(response + "\n")
        responses.flush()


def judging() -> Callable[[str, str], str]:
    """The function that gives a verdict, without a limit of time."""
    math_verify: Any = import_module("math_verify")

    @lru_cache(maxsize=1024)
    def read(text: str) -> Any:
        return math_verify.parse(text, parsing_timeout=None)

    def verdict(gold: str, answer: str) -> str:
        try:
            if not (parsed := read(answer)):
                return "unreadable"
            right = math_verify.verify(read(gold), parsed, timeout_seconds=None)
        except Exception:
            # An answer over which the library stumbles is none.
            return "unreadable"
        return "right" if right else "wrong"

    return verdict


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _limit_time(seconds: float) -> None:
    """Let the system end this process after so much processor time from now; 0 for no limit."""
    # Nobody handles the signal, so it also ends a computation that never returns to Python.
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    serve()
