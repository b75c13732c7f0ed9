"""``LimitedPool``: what pools with workers and time limits share, wherever their workers live."""

import os
import pickle
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence

from ascribe.rollout.pools.limits import Limits
from ascribe.rollout.pools.orders import Order, OrderedPool, dealt
from ascribe.rollout.pools.seat import Life, Seat

LOOK_AGAIN = 0.5
"""Seconds between two looks whether silent workers still live."""
CLOSING_TIME = 5.0
"""Seconds that environments have to close."""


class LimitedPool(OrderedPool):
    """Environments with workers, under time limits.

    A worker carries out the moves of its slots one after the other and sends every answer as soon
    as it has it, so the time between two answers is the time of one move. A worker that dies or
    hangs takes the episodes of all its slots with it, and is started anew when it is next needed.

    Args:
        start: starts a worker.
        workers: how many; no more are started than there are slots.
        slots: how many environments.
        limits: how long things may take.
        tries: how often in a row a worker may die without one answer from an environment.
    """

    def __init__(
        self, start: Callable[[], Life], workers: int, slots: int, limits: Limits, tries: int
    ) -> None:
        super().__init__(slots)
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self._seats = [Seat(start, limits, tries) for _ in range(min(workers, slots))]
        self._finalizer = weakref.finalize(self, _end, self._seats, os.getpid())
        for seat in self._seats:
            seat.launch()

    @abstractmethod
    def _wait(self, lives: Sequence[Life], seconds: float) -> list[int]:
        """Wait for answers, at most so many seconds. Returns which of the lives have some."""

    def _carry_out(self, orders: Sequence[Order]) -> None:
        # An order that cannot travel is found here, before it could disturb anybody.
        pickle.dumps([order.moves for order in orders])
        shares = [(self._seats[at], share) for at, share in dealt(orders, len(self._seats)).items()]
        seats = [seat for seat, _ in shares]
        for seat in seats:
            seat.launch()
        for seat in seats:
            seat.prepare()
        try:
            for seat, share in shares:
                seat.give(share)
            self._listen(seats)
        except BaseException:
            # Answers to this call must not be taken for answers to the next one.
            for seat in seats:
                seat.abandon()
            raise

    def _listen(self, seats: Sequence[Seat]) -> None:
        """Take answers until every order is done."""
        look = time.monotonic() + LOOK_AGAIN
        while busy := [seat for seat in seats if seat.busy]:
            until = min(look, *(seat.deadline for seat in busy))
            lives = [seat.life for seat in busy if seat.life is not None]
            ready = self._wait(lives, max(0.0, until - time.monotonic()))
            for number in ready:
                busy[number].hear()
            if not ready:  # nobody has answered until then
                for seat in busy:
                    seat.hurry(until)
            if time.monotonic() >= look:
                look = time.monotonic() + LOOK_AGAIN
                for seat in busy:
                    seat.look()

    def _close(self) -> None:
        self._finalizer()


def _end(seats: Sequence[Seat], owner: int) -> None:
    """End all workers; in the process that started them, not in a fork of it."""
    if os.getpid() != owner:
        return
    for seat in seats:
        seat.stop()
    by = time.monotonic() + CLOSING_TIME
    for seat in seats:
        seat.leave(by)
