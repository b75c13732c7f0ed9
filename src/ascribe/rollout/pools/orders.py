"""From calls to orders and back: what all pools do alike around their workers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from ascribe.rollout.pools.limits import Limits
from ascribe.rollout.pools.pool import Answer, Begin, Failure, FailureKind, Move, Told


@dataclass
class Order:
    """The moves that one slot is to make in one call, and the answers to them so far."""

    slot: int
    moves: Sequence[Move]
    answers: list[Told] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def done(self) -> bool:
        """Whether no move is left to be made. None follows a failure."""
        return self.failure is not None or len(self.answers) == len(self.moves)

    @property
    def result(self) -> list[Told] | Failure:
        """All that was told, or why not."""
        return self.failure or self.answers


class Sheet:
    """The orders of one worker in one call. It carries them out one after the other.

    Args:
        orders: of different slots.
        made: the slots whose environment the worker has made; kept up to date.
    """

    def __init__(self, orders: Sequence[Order], made: set[int]) -> None:
        self.orders = orders
        self._made = made
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether every order is done."""
        return self._at == len(self.orders)

    @property
    def move(self) -> tuple[int, Move]:
        """The slot and the move that the worker is at."""
        order = self.orders[self._at]
        return order.slot, order.moves[len(order.answers)]

    def limit(self, limits: Limits) -> float:
        """Seconds that this move may take."""
        slot, move = self.move
        if not isinstance(move, Begin):
            return limits.step
        return limits.reset if slot in self._made else limits.start + limits.reset

    def note(self, answer: Answer) -> None:
        """Take the answer to this move, and go on to the next."""
        order = self.orders[self._at]
        _, move = self.move
        if isinstance(answer, Told):
            order.answers.append(answer)
            self._made.add(order.slot)
        else:
            order.failure = answer
            if isinstance(move, Begin):  # the worker does not keep an environment that cannot begin
                self._made.discard(order.slot)
        self._at += order.done

    def died(self, kind: FailureKind, detail: str) -> None:
        """The worker is gone: the move that it was at is to blame, and every episode is lost.

        What was told at the end of an episode stays, for nothing of that episode is lost.
        """
        culprit = self.orders[self._at].slot
        because = f"slot {culprit} on the same worker {kind.value}"
        for order in self.orders:
            if order.slot == culprit:
                order.failure = Failure(kind, detail)
            elif order.failure is None and not (order.done and order.answers[-1].over):
                order.failure = Failure(FailureKind.LOST, because)
        self._at = len(self.orders)


class OrderedPool(ABC):
    """The methods of a pool, by way of orders. A pool that derives from it carries them out."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, not {slots}")
        self.slots = slots
        self._closed = False

    def reset(self, begins: Mapping[int, Begin]) -> dict[int, Told | Failure]:
        """Begin an episode in each of these slots."""
        return self._one({slot: [begin] for slot, begin in begins.items()})

    def step(self, actions: Mapping[int, str]) -> dict[int, Told | Failure]:
        """Carry out one action in each of these slots."""
        return self._one({slot: [action] for slot, action in actions.items()})

    def replay(
        self, episodes: Mapping[int, tuple[Begin, Sequence[str]]]
    ) -> dict[int, list[Told] | Failure]:
        """Begin episodes and play their actions: all that was told, the reset's first."""
        return self._all({slot: [begin, *actions] for slot, (begin, actions) in episodes.items()})

    def close(self) -> None:
        """End the workers."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _carry_out(self, orders: Sequence[Order]) -> None:
        """Carry out every order until it is done."""

    @abstractmethod
    def _close(self) -> None:
        """End the workers; called once."""

    def _one(self, moves: Mapping[int, Sequence[Move]]) -> dict[int, Told | Failure]:
        return {
            slot: result if isinstance(result, Failure) else result[0]
            for slot, result in self._all(moves).items()
        }

    def _all(self, moves: Mapping[int, Sequence[Move]]) -> dict[int, list[Told] | Failure]:
        if self._closed:
            raise RuntimeError("the pool is closed")
        for slot, wanted in moves.items():
            if not 0 <= slot < self.slots:
                raise ValueError(f"there is no slot {slot}; there are {self.slots}, from 0")
            for move in wanted:
                if not isinstance(move, Begin | str):
                    raise TypeError(f"an action is text, not {type(move).__name__}")
        orders = [Order(slot, wanted) for slot, wanted in moves.items()]
        self._carry_out(orders)
        return {order.slot: order.result for order in orders}


def dealt(orders: Sequence[Order], workers: int) -> dict[int, list[Order]]:
    """The orders of each worker that has any: slots are dealt to the workers in turn."""
    shares: dict[int, list[Order]] = {}
    for order in orders:
        shares.setdefault(order.slot % workers, []).append(order)
    return shares
