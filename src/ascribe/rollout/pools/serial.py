"""``SerialPool``: all environments in this process, one after another, for tests and debugging."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from ascribe.rollout.pools.orders import Order, OrderedPool, Sheet
from ascribe.rollout.pools.pool import EnvironmentSpec
from ascribe.rollout.pools.worker import Worker


class SerialPool(OrderedPool):
    """Environments in this process.

    There are no time limits: an environment that hangs hangs the program, and one that crashes ends
    it. What environments print goes to standard error, as far as Python prints it.

    Args:
        spec: the environment.
        slots: how many of it.
    """

    def __init__(self, spec: EnvironmentSpec, slots: int) -> None:
        super().__init__(slots)
        self._worker = Worker(spec)

    def _carry_out(self, orders: Sequence[Order]) -> None:
        sheet = Sheet(orders, set())
        with redirect_stdout(sys.stderr):
            while not sheet.done:
                slot, move = sheet.move
                sheet.note(self._worker.move(slot, move))

    def _close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._worker.close()
