"""What ends a run of verl in which a part died: verl itself may wait for it forever.

``ascribe train`` starts verl by ``run``, and verl's first process is inside ``watching``. Ray knows
which actors died, on any node, and why; a server's own processes are looked for on this machine.
A script of one's own is watched, too, if it is started by
``python -m ascribe_lab.train.verl.watch MODULE``, where ``MODULE`` starts verl.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import _exit as exit_at_once
from threading import Thread
from typing import Any

import psutil

POLL = 5.0
"""Seconds between two looks."""

GRACE = 20.0
"""Seconds in which verl may end by itself after a part has died."""

PATIENCE = 5.0
"""Seconds in which what is left of a run may end by itself."""

LOST = 70
"""Exit code of a run in which a part died."""

SERVERS = ("VLLM::", "sglang::")
"""How the processes of a rollout server are called, which are not actors of Ray."""

TOOLS = "AgentLoop"
"""In the names of actors whose own actors, those of tools, are not parts of the run."""


def run(words: Sequence[str], environment: Mapping[str, str], late: Callable[[], bool]) -> int:
    """Run a command, and leave no process behind; the exit code is ``LOST`` if it was late."""
    process = psutil.Popen(words, env=dict(environment))
    started = {process}
    try:
        while True:
            started |= _below(process)
            with suppress(psutil.TimeoutExpired):
                return int(process.wait(POLL))
            if late():
                return LOST
    finally:
        end(started.union(*map(_below, started)))


def end(processes: Iterable[Any]) -> None:
    """Wait for these to end by themselves, and kill the others."""
    left = psutil.wait_procs(list(processes), timeout=PATIENCE)[1]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=PATIENCE)


def _below(process: Any) -> set[Any]:
    """Its children, and theirs."""
    with suppress(psutil.Error):
        return set(process.children(recursive=True))
    return set()


@contextmanager
def watching() -> Iterator[None]:
    """End this process, its children and their children with ``LOST`` if a part dies."""
    parts, parent = Parts(), os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
            if parts.dead():
                time.sleep(GRACE)
                if parts.told():
                    break
        end(_below(psutil.Process()))
        exit_at_once(LOST)

    Thread(target=watch, daemon=True).start()
    try:
        yield
    except BaseException:
        if parts.told():
            sys.exit(LOST)
        raise


class Parts:
    """The parts of a run of verl, as its first process sees them."""

    def __init__(self) -> None:
        from ray._private import state  # Ray's public list of actors asks its dashboard

        self._actors = state.actors
        self._servers: dict[int, tuple[int, str]] = {}

    def told(self) -> bool:
        """Whether any died; which did is printed."""
        found = self.dead()
        for part in found:
            print(f"a part of the run died: {part}", file=sys.stderr, flush=True)
        return bool(found)

    def dead(self) -> list[str]:
        """Those that died, other than at the end of their work."""
        import ray

        if not ray.is_initialized():
            return []
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        try:
            actors = self._actors(job_id=job).values()
        except ray.exceptions.RayError:  # Ray itself is ending, and this process with it
            return []
        loops = [one["Address"] for one in actors if TOOLS in one["ActorClassName"]]
        lost = [_why_lost(one) for one in actors if one["OwnerAddress"] not in loops]
        running = {}
        for process in _below(psutil.Process()):
            with suppress(psutil.Error):
                title = " ".join(process.cmdline()).strip()  # nothing once it has ended
                if title.startswith(SERVERS):
                    running[process.pid] = process.ppid(), title
        self._servers |= running
        for process in self._servers.keys() - running.keys():
            parent, title = self._servers[process]
            if psutil.pid_exists(parent):
                lost.append(f"{title}, process {process}")
        return list(filter(None, lost))


def _why_lost(actor: Mapping[str, Any]) -> str:
    """What Ray says of an actor whose process or node died; of others nothing."""
    cause = actor["DeathCause"]
    died = cause.actor_died_error_context
    if actor["State"] != "DEAD":
        return ""
    if cause.HasField("oom_context"):
        why = cause.oom_context.error_message
    elif died.Reason.Name(died.reason) in {"WORKER_DIED", "NODE_DIED"}:
        why = died.error_message
    else:
        return ""
    return f"{actor['ActorClassName']}, process {actor['Pid']}: {' '.join(why.split())[:500]}"


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    with watching():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
