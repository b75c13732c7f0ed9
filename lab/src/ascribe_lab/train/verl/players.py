"""Environments for the episodes of a verl process: those of a group share a worker.

verl plays the members of a group as tasks of one event loop, and each has a thread here. They play
the same task, so what their environments load is loaded once.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from ascribe.steps.errors import InputError
from ascribe_lab.rollout import Sampling
from ascribe_lab.rollout.pools.pool import Pool, Task
from ascribe_lab.train.chat import whole_chat
from ascribe_lab.train.episodes import Player
from ascribe_lab.train.resolve import Run


class PoolSlot(Pool):
    """One slot of a pool that several threads share; they take turns at the worker.

    Args:
        shared: the pool and its lock.
        number: of the slot.
    """

    def __init__(self, shared: "SharedPool", number: int) -> None:
        super().__init__(1)
        self._shared, self._number = shared, number

    def _run(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.slot = self._number
        with self._shared.lock:
            self._shared.pool._run(tasks)
        for task in tasks:
            task.slot = 0

    def _close(self) -> None:
        """Nothing: the pool belongs to the others too."""


@dataclass(eq=False)
class SharedPool:
    """A pool with one worker, and its free slots."""

    pool: Pool
    free: list[int]
    opened: ExitStack
    lock: Lock = field(default_factory=Lock)
    broken: bool = False


class Players:
    """Players for the members of groups; workers stay open between groups.

    Args:
        run: the run.

    Raises:
        ValueError: without a limit of turns; an environment is not made only to ask for it.
    """

    def __init__(self, run: Run) -> None:
        config = run.config
        rollout, corrections = config.rollout, config.rollout.correcting()
        if rollout.max_turns is None:
            raise InputError(
                "rollout.max_turns: must be given", hint="ascribe train writes it by itself"
            )
        self.setup = replace(config.environment.setup(), workers=1)
        agent = self.setup.agent
        if config.update.layout == "trajectory":
            agent = whole_chat(agent)
        self.slots = rollout.size * max(1, rollout.corrections)
        self._player = Player(
            self.setup,
            agent if corrections is None else corrections.agent(agent),
            Sampling(max_tokens=rollout.max_tokens, stop=rollout.stop),  # the rest is verl's
            rollout.max_turns,
            # The trainer decides whether to stop: verl continues when an episode raises.
            replace(rollout.failures.policy(), stop=False),
            slots=1,
            episode_limit=rollout.episode_limit,
        )
        self._playing: dict[str, SharedPool] = {}
        self._idle: list[SharedPool] = []
        self._lock = Lock()

    @contextmanager
    def borrow(self, group: str) -> Iterator[Player]:
        """A player of one episode of a group."""
        with self._lock:
            shared = self._playing.get(group)
            if shared is None or not shared.free:
                shared = self._playing[group] = self._idle.pop() if self._idle else self._open()
            number = shared.free.pop()
        try:
            yield replace(self._player, pool=PoolSlot(shared, number))
        except (InterruptedError, TimeoutError):  # while sampling, so the pool is as it should be
            raise
        except BaseException:  # the pool may be in any state
            shared.broken = True
            raise
        finally:
            with self._lock:
                shared.free.append(number)
                if len(shared.free) == shared.pool.slots:  # nobody of the group plays
                    if self._playing.get(group) is shared:
                        del self._playing[group]
                    if shared.broken:
                        shared.opened.close()
                    else:
                        self._idle.append(shared)

    def close(self) -> None:
        """End the idle workers."""
        with self._lock:
            while self._idle:
                self._idle.pop().opened.close()

    def _open(self) -> SharedPool:
        opened = ExitStack()
        pool = opened.enter_context(self.setup.open_pool(self.slots))
        return SharedPool(pool, list(range(pool.slots)), opened)
