"""A stopwatch whose phases may interrupt one another."""

import pytest

from ascribe.engines import metrics
from ascribe.engines.metrics import Stopwatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; tests move it on."""
    now = [100.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    return now


def test_no_second_counts_twice(clock: list[float]) -> None:
    watch = Stopwatch()
    with watch("update"):
        clock[0] += 1
        with watch("rollout"):
            clock[0] += 10
            with watch("credit"):
                clock[0] += 100
        clock[0] += 2
    clock[0] += 1000
    with watch("rollout"):
        clock[0] += 20
    assert watch.lap() == {"update": 3, "rollout": 30, "credit": 100}
    assert watch.lap() == {}


def test_a_phase_that_raises_is_over(clock: list[float]) -> None:
    watch = Stopwatch()

    def fail() -> None:
        clock[0] += 1
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"), watch("rollout"):
        fail()
    clock[0] += 5
    assert watch.lap() == {"rollout": 1}
