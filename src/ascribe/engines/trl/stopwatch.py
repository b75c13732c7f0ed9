"""``Stopwatch``: how long each phase took, where one phase may interrupt another."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Charges time to the innermost phase that is under way, so that no second counts twice."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._phases: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """What happens inside belongs to this phase."""
        self._charge()
        self._phases.append(phase)
        try:
            yield
        finally:
            self._charge()
            self._phases.pop()

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap."""
        found = dict(self._seconds)
        self._seconds.clear()
        return found

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._phases:
            self._seconds[self._phases[-1]] += now - self._since
        self._since = now
