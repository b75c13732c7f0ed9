"""How long things may take, and how often a worker may die."""

import time
from dataclasses import dataclass

from ascribe.rollout.pools.pool import PoolBroken

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0


@dataclass(frozen=True)
class Limits:
    """Seconds that things may take."""

    step: float
    reset: float
    start: float
    """A worker, until it takes orders; an environment, until it is made."""

    def __post_init__(self) -> None:
        for name in ("step", "reset", "start"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}_limit must be above 0, not {getattr(self, name)}")


class Restarts:
    """Counts the deaths of a worker since the last answer from one of its environments.

    The first restart is at once, the next after 0.1 s, then 0.2 s, 0.4 s and so on.
    """

    def __init__(self, tries: int) -> None:
        if tries < 1:
            raise ValueError(f"tries must be at least 1, not {tries}")
        self._tries = tries
        self._deaths = 0
        self._last = ""
        self._not_before = 0.0

    def answered(self) -> None:
        """An environment answered, so the worker is good for something."""
        self._deaths = 0

    def died(self, detail: str) -> None:
        """The worker died."""
        delay = 0.0 if self._deaths == 0 else FIRST_DELAY * 2.0 ** (self._deaths - 1)
        self._not_before = time.monotonic() + min(delay, LONGEST_DELAY)
        self._deaths += 1
        self._last = detail

    def wait(self) -> None:
        """Wait until the worker may be started again; PoolBroken if it may not."""
        if self._deaths >= self._tries:
            raise PoolBroken(
                f"a worker died {self._deaths} times in a row without one answer from an "
                f"environment; the last time: {self._last}"
            )
        time.sleep(max(0.0, self._not_before - time.monotonic()))
