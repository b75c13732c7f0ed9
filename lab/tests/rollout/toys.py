"""A small environment that does what its actions say, also what no environment should do."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ascribe_lab.envs import EpisodeOverError
from ascribe_lab.rollout.pools import Failure, Pool, Reset, StepResult

HERE = __name__
TOY = f"{HERE}:Toy"

INFO = {
    "admissible_actions": ["go", "stay"],
    "won": False,
    "task_family": "toy",
    "task": "do as you are told",
    "state": "here",
    "valid": True,
}


class Unreadable(Exception):  # noqa: N818 (a toy)
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


class Toy:
    """Any other action is added up; ``end`` ends the episode.

    Args:
        start: ``raise``, ``hang``, ``crash`` or ``slow``: what making it does.
        log: a file that gets a line when an environment is made and when it is closed.
    """

    tasks = None

    def __init__(self, *, start: str = "", log: str | None = None) -> None:
        self.log = log
        self.over = True
        self.sum = 0
        if start == "raise":
            raise LookupError("no \x1b[31mgame\x1b[0m files")
        if start == "hang":
            time.sleep(1000)
        if start == "slow":
            time.sleep(0.8)
        if start == "crash":
            os._exit(7)
        self.note("made")

    def note(self, word: str) -> None:
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write(f"{word}\n")

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Any]:
        options = dict(options or {})
        self.over = False
        self.sum = crc32(f"{seed} {sorted(options.items())}".encode())
        if "do" in options:
            return self.do(options["do"])[0], dict(INFO)
        return f"begun at {self.sum}", dict(INFO, state=str(self.sum))

    def step(self, action: str) -> Any:
        if self.over:
            raise EpisodeOverError("the episode is over")
        return self.do(action)

    def close(self) -> None:
        self.note("closed")
        if self.log is not None and self.log.endswith("slow"):
            time.sleep(1000)

    def do(self, action: str) -> Any:
        word, _, rest = action.partition(" ")
        strange = getattr(self, f"do_{word}", None)
        if strange is not None:
            return strange(rest)
        self.sum = crc32(action.encode(), self.sum)
        return self.tell(f"now at {self.sum}", reward=self.sum % 8 / 8)

    def tell(self, observation: str, reward: float = 0.0) -> Any:
        return observation, reward, False, False, dict(INFO, state=str(self.sum))

    def do_end(self, _: str) -> Any:
        self.over = True
        return "the end", 1.0, True, False, dict(INFO, won=True, admissible_actions=[])

    def do_wait(self, seconds: str) -> Any:
        time.sleep(float(seconds))
        return self.tell(f"waited {seconds}")

    def do_raise(self, message: str) -> Any:
        raise ValueError(message)

    def do_unreadable(self, _: str) -> Any:
        raise Unreadable

    def do_leave(self, _: str) -> Any:
        sys.exit(5)

    def do_crash(self, code: str) -> Any:
        os._exit(int(code or 3))

    def do_kill(self, _: str) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_hang(self, _: str) -> Any:
        time.sleep(1000)

    def do_lock(self, _: str) -> Any:
        """Hang with the interpreter's lock held, so that no thread of this process can run."""
        ctypes.PyDLL(None).sleep(1000)

    def do_stop(self, _: str) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return self.tell("awake again")

    def do_huge(self, size: str) -> Any:
        return self.tell("é" * int(size))

    def do_many(self, count: str) -> Any:
        """A list of long texts."""
        observation, *others, info = self.tell("many")
        return observation, *others, info | {"example_actions": ["x" * 1_000_000] * int(count)}

    def do_take(self, size: str) -> Any:
        """Take this many MiB of memory."""
        return self.tell(f"took {len(bytearray(int(size) << 20)):,} bytes")

    def do_say(self, text: str) -> Any:
        print(text, flush=True)
        return self.tell("said")

    def do_shout(self, text: str) -> Any:
        """Print by Python, by the system, and by a child."""
        print(f"out {text}", flush=True)
        print(f"err {text}", file=sys.stderr, flush=True)
        os.write(1, f"raw {text}\n".encode())
        subprocess.run(["echo", f"child {text}"], check=True)
        return self.tell(f"read {sys.stdin.read()!r}")

    def do_child(self, _: str) -> Any:
        """Leave a process running."""
        return self.tell(str(subprocess.Popen(["sleep", "1000"]).pid))

    def do_fork(self, _: str) -> Any:
        """Die, but leave a fork behind that holds whatever is open, in a session of its own."""
        if os.fork() == 0:
            os.setsid()
            time.sleep(20)
            os._exit(0)
        os._exit(4)

    def do_c_fork(self, _: str) -> Any:
        """The same by the C library, so that Python does not know of it."""
        if ctypes.CDLL(None).fork() == 0:
            os.setsid()
            time.sleep(20)
            os._exit(0)
        os._exit(4)

    def do_late_fork(self, _: str) -> Any:
        """Return in a fork too, a second later."""
        return self._return_twice(os.fork())

    def do_late_c_fork(self, _: str) -> Any:
        return self._return_twice(ctypes.CDLL(None).fork())

    def _return_twice(self, pid: int) -> Any:
        if pid:
            return self.tell("parent")
        time.sleep(1)
        return self.tell("fork")

    def do_who(self, _: str) -> Any:
        return self.tell(f"{os.getpid()}")

    def do_interrupt(self, _: str) -> Any:
        """Ctrl-C, as a terminal sends it to every process in the foreground."""
        os.kill(os.getpid(), signal.SIGINT)
        return self.tell("still here")

    def do_return(self, kind: str) -> Any:
        """Something that is no valid result, or nearly none."""
        return RETURNS[kind]


class Text(str):
    """Text of another type, that would run code wherever it is read."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("read")

    def __reduce__(self) -> Any:
        raise RuntimeError("pickled")


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


RETURNS: dict[str, Any] = {
    "nothing": None,
    "list": ["seen", 0.0, False, False, INFO],
    "four": ("seen", 0.0, False, INFO),
    "bytes": (b"seen", 0.0, False, False, INFO),
    "surrogate": ("\ud800", 0.0, False, False, INFO),
    "nan": ("seen", float("nan"), False, False, INFO),
    "infinite": ("seen", np.float32("inf"), False, False, INFO),
    "enormous": ("seen", 10**400, False, False, INFO),
    "too large": ("seen", 1e101, False, False, INFO),
    "without": ("seen", 0.0, False, False, dict(INFO, without=[1e101])),
    "agent": ("seen", 0.0, False, False, dict(INFO, agent=3)),
    "word": ("seen", "1.0", False, False, INFO),
    "array": ("seen", np.zeros(1), False, False, INFO),
    "number": ("seen", 0.0, 0, False, INFO),
    "none": ("seen", 0.0, False, None, INFO),
    "no_info": ("seen", 0.0, False, False, None),
    "lacks": ("seen", 0.0, False, False, {"won": False}),
    "won": ("seen", 0.0, False, False, dict(INFO, won="yes")),
    "admissible": ("seen", 0.0, False, False, dict(INFO, admissible_actions="go")),
    "mixed": ("seen", 0.0, False, False, dict(INFO, admissible_actions=["go", 3])),
    "odd": (
        Text("seen"),
        np.float32(0.5),
        np.bool_(False),
        False,
        dict(
            INFO,
            won=np.bool_(True),
            admissible_actions=("go", Text("stay")),
            count=np.int64(3),
            nested={"deep": [1, 2.5, None, (True, "x")]},
            board=np.zeros(3),
            ring=circle(),
            nan=float("nan"),
            thing=object(),
            numbered={1: "one"},
        )
        | {7: "seven"},
    ),
}
MALFORMED = [kind for kind in RETURNS if kind != "odd"]


def begin(pool: Pool) -> None:
    """An episode in every slot."""
    results = pool.reset({slot: Reset(slot) for slot in range(pool.slots)})
    assert {type(result) for result in results.values()} == {StepResult}


def kinds(results: Mapping[int, Any]) -> dict[int, str]:
    """The kind of each failure; ``ok`` where there is none."""
    return {
        slot: result.kind.value if isinstance(result, Failure) else "ok"
        for slot, result in results.items()
    }
