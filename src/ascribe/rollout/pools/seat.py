"""``Seat``: the place of one worker, where the next one sits down when it has died."""

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ascribe.rollout.pools.limits import Limits, Restarts
from ascribe.rollout.pools.orders import Order, Sheet
from ascribe.rollout.pools.pool import Answer, FailureKind, Told

LEAVING = 0.5
"""Seconds that a worker has between falling silent and its end."""
SHORT = 0.001


class Life(ABC):
    """One worker, from its start to its end. Starting one does not wait until it takes orders."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.is_ready = False
        self.made: set[int] = set()
        """The slots whose environment is made."""

    @abstractmethod
    def greet(self, limit: float) -> None:
        """Wait until it takes orders; TimeoutError if it does not, EOFError if it is gone."""

    @abstractmethod
    def give(self, orders: bytes, limit: float) -> None:
        """Hand over orders; raises what ``greet`` raises."""

    @abstractmethod
    def answers(self) -> list[Answer]:
        """One or more of the answers that are here; EOFError if no more will come."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether it is known to have ended."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to close its environments and leave."""

    @abstractmethod
    def end(self, patience: float) -> str:
        """Give it so many seconds to leave by itself, then kill it. Returns how it ended."""


class Seat:
    """A worker, started anew after each death.

    Args:
        start: starts one.
        limits: how long things may take.
        tries: how often in a row it may die without an answer.
    """

    def __init__(self, start: Callable[[], Life], limits: Limits, tries: int) -> None:
        self._start, self._limits = start, limits
        self._restarts = Restarts(tries)
        self.life: Life | None = None
        self._sheet = Sheet([], set())
        self._began = 0.0
        """When the worker began with the move that it is at, or a little later."""

    @property
    def busy(self) -> bool:
        """Whether an order is not done yet."""
        return not self._sheet.done

    @property
    def deadline(self) -> float:
        """When the next answer must be here."""
        return self._began + self._sheet.limit(self._limits)

    def launch(self) -> None:
        """Start a worker unless there is one that lives."""
        if self.life is not None and self.life.is_over():
            self._bury()
        if self.life is None:
            self._restarts.wait()
            self.life = self._start()

    def prepare(self) -> None:
        """Wait until the worker takes orders, starting it again if need be."""
        while True:
            self.launch()
            if self._alive.is_ready:
                return
            left = self._alive.began + self._limits.start - time.monotonic()
            try:
                self._alive.greet(max(left, SHORT))
                self._alive.is_ready = True
            except TimeoutError:
                self._bury(f"not ready within {self._limits.start:g} s")
            except EOFError:
                self._bury()

    def give(self, orders: Sequence[Order]) -> None:
        """Hand over the orders of a call."""
        message = pickle.dumps([(order.slot, order.moves) for order in orders])
        self._sheet = Sheet(orders, self._alive.made)
        self._began = time.monotonic()
        try:
            self._alive.give(message, self._sheet.limit(self._limits))
        except TimeoutError:
            self.hurry(self.deadline)
        except EOFError:
            self._crashed()

    def hear(self) -> None:
        """Take the answers that are here; there must be one, or the worker must be gone."""
        try:
            answers = self._alive.answers()
        except EOFError:
            self._crashed()
            return
        for answer in answers:
            self._sheet.note(answer)
            self._began = time.monotonic()
            if isinstance(answer, Told):
                self._restarts.answered()

    def hurry(self, silent_until: float) -> None:
        """End the worker if it has been silent beyond its deadline."""
        if self.deadline <= silent_until:
            why = self._bury(f"no answer within {self._sheet.limit(self._limits):g} s")
            self._sheet.died(FailureKind.HUNG, why)

    def look(self) -> None:
        """Notice a death that cannot be heard, because a child of the worker holds the line."""
        if self.busy and self._alive.is_over():
            self.hear()
            if self.busy:
                self._crashed()

    def abandon(self) -> None:
        """End the worker if it is in the middle of a call."""
        if self.life is not None and self.busy:
            self.life.end(0.0)
            self.life = None
        self._sheet = Sheet([], set())

    def stop(self) -> None:
        """Ask the worker to close its environments and leave."""
        if self.life is not None:
            self.life.stop()

    def leave(self, by: float) -> None:
        """Wait until then for the worker to leave, and end it."""
        if self.life is not None:
            self.life.end(max(0.0, by - time.monotonic()))
            self.life = None

    @property
    def _alive(self) -> Life:
        assert self.life is not None
        return self.life

    def _crashed(self) -> None:
        self._sheet.died(FailureKind.CRASHED, self._bury())

    def _bury(self, why: str | None = None) -> str:
        """End the worker and count its death. Returns why it died."""
        # One that fell silent is about to leave: how it does says more than how we kill it.
        ending = self._alive.end(0.0 if why else LEAVING)
        self.life = None
        self._restarts.died(why or ending)
        return why or ending
