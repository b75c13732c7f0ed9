"""``Worker``: the environments of some slots, and what is asked of them. Every pool has these.

One move in, one answer out, whatever the environment does short of hanging or killing the process.
A slot has an episode from a reset that went well until its first failure; a step without an episode
is ``LOST``. So a worker that was started anew needs to be told nothing about the one before it.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from ascribe.envs import Environment, make
from ascribe.rollout.pools.plain import Malformed, began, described, told
from ascribe.rollout.pools.pool import (
    Answer,
    Begin,
    EnvironmentSpec,
    Failure,
    FailureKind,
    Move,
)

NO_EPISODE = Failure(FailureKind.LOST, "there is no episode in this slot")

WHATEVER_IT_RAISES = (Exception, SystemExit)
"""Ctrl-C is not the environment's doing."""


class Worker:
    """Environments by slot. Each is made when its slot is first reset."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self._environments: dict[int, Environment] = {}
        self._playing: set[int] = set()

    def move(self, slot: int, move: Move) -> Answer:
        """Begin an episode in a slot, or carry out an action there."""
        answer = self._begin(slot, move) if isinstance(move, Begin) else self._act(slot, move)
        if isinstance(answer, Failure):
            self._playing.discard(slot)
        else:
            self._playing.add(slot)
        return answer

    def moves(self, orders: Iterable[tuple[int, Sequence[Move]]]) -> Iterator[Answer]:
        """Carry out the moves of each slot in turn. A slot's first failure is its last answer."""
        for slot, moves in orders:
            for move in moves:
                answer = self.move(slot, move)
                yield answer
                if isinstance(answer, Failure):
                    break

    def close(self) -> None:
        """Close all environments."""
        for slot in list(self._environments):
            self._discard(slot)

    def _begin(self, slot: int, begin: Begin) -> Answer:
        if slot not in self._environments:
            try:
                self._environments[slot] = make(self.spec.name, **self.spec.options)
            except WHATEVER_IT_RAISES as error:
                return Failure(FailureKind.STARTED_NOT, described(error))
        started = time.perf_counter()
        try:
            returned = self._environments[slot].reset(seed=begin.seed, options=begin.options)
            return began(returned, time.perf_counter() - started)
        except WHATEVER_IT_RAISES as error:
            # It may never begin again, say because a server of its own is gone: the next reset
            # makes a new one.
            self._discard(slot)
            return _failure(error)

    def _act(self, slot: int, action: str) -> Answer:
        if slot not in self._playing:
            return NO_EPISODE
        started = time.perf_counter()
        try:
            returned = self._environments[slot].step(action)
            return told(returned, time.perf_counter() - started)
        except WHATEVER_IT_RAISES as error:
            return _failure(error)

    def _discard(self, slot: int) -> None:
        with suppress(*WHATEVER_IT_RAISES):
            self._environments.pop(slot).close()


def _failure(error: BaseException) -> Failure:
    if isinstance(error, Malformed):
        return Failure(FailureKind.MALFORMED, described(error).partition(": ")[2])
    return Failure(FailureKind.RAISED, described(error))
