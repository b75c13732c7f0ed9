"""The program of a worker process: takes orders, sends an answer after every move."""

import fcntl
import os
import pickle
import signal
import socket
import sys
import threading

from ascribe.rollout.pools.channel import READY, STOP, Channel
from ascribe.rollout.pools.worker import Worker


def main(connection: int, lifeline: int) -> None:
    """Serve the pool at the other end of the connection until it says to stop.

    Args:
        connection: descriptor of a socket; the specification of the environment comes first, then
            the orders of each call.
        lifeline: descriptor of a pipe that nobody writes to and whose other end the pool holds open
            as long as it lives.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool to handle
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)
    die_with_the_pool(lifeline)
    serve(Channel(socket.socket(fileno=connection)))


def serve(channel: Channel) -> None:
    """Carry out what comes through the channel until it says to stop."""
    worker = Worker(pickle.loads(channel.receive()))
    channel.send(READY)
    try:
        while (orders := channel.receive()) != STOP:
            for answer in worker.moves(pickle.loads(orders)):
                channel.send(pickle.dumps(answer))
    finally:
        worker.close()


def die_with_the_pool(lifeline: int) -> None:
    """Kill this process, and all that it started, as soon as the lifeline breaks.

    On Linux the kernel does it, even while an environment holds the interpreter's lock. (Its other
    offer, a signal at the parent's death, comes when the *thread* ends that made the process.)
    Elsewhere a thread does.
    """
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # On Linux too: the pool may have died before the kernel was asked.
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
