"""Whatever is asked in whatever order, all pools tell the same; also while workers are killed."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascribe_lab.rollout.pools import (
    EnvironmentSpec,
    Failure,
    FailureKind,
    Pool,
    ProcessPool,
    Reset,
    SerialPool,
    StepResult,
)
from lab.tests.rollout.toys import RETURNS, TOY

SLOTS = 5
SPEC = EnvironmentSpec(TOY)

slots = st.integers(0, SLOTS - 1)
begins = st.builds(
    Reset, st.integers(0, 9), st.sampled_from([None, {"task": 1}, {"do": "raise early"}])
)
actions = st.one_of(
    st.sampled_from(["go", "stay", "end", "raise no", "huge 300000", "leave", ""]),
    st.sampled_from(sorted(RETURNS)).map("return {}".format),
    st.text(max_size=20).map("say it: {}".format),
)
calls = st.one_of(
    st.tuples(st.just("reset"), st.dictionaries(slots, begins)),
    st.tuples(st.just("step"), st.dictionaries(slots, actions)),
    st.tuples(
        st.just("replay"),
        st.dictionaries(slots, st.tuples(begins, st.lists(actions, max_size=4)), max_size=3),
    ),
)


@pytest.fixture(
    scope="module",
    params=["one process", "two processes"],
)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    workers = 1 if request.param == "one process" else 2
    with ProcessPool(SPEC, workers, SLOTS, 60.0, 60.0) as process_pool:
        yield process_pool


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=st.lists(calls, max_size=8))
def test_all_pools_tell_the_same(pool: Pool, schedule: list[tuple[str, Any]]) -> None:
    start = {slot: Reset(slot) for slot in range(SLOTS)}
    with SerialPool(SPEC, SLOTS) as reference:
        for method, commands in [("reset", start), *schedule]:
            expected = getattr(reference, method)(commands)
            results = getattr(pool, method)(commands)
            assert list(results.items()) == list(expected.items())


def scripts(count: int, length: int) -> dict[int, list[str]]:
    generator = random.Random(3)
    words = ["go", "stay", "huge 50000", "wait 0.005"]
    return {slot: [generator.choice(words) for _ in range(length)] for slot in range(count)}


def play(
    pool: Pool, wanted: dict[int, list[str]], seen: dict[int, list[StepResult]]
) -> list[Failure]:
    """Play each slot's actions to their end; what fails is replayed, then goes on."""
    lost = set(wanted)
    failures: list[Failure] = []
    while True:
        while lost:
            commands = {s: (Reset(s), wanted[s][: max(0, len(seen[s]) - 1)]) for s in sorted(lost)}
            for slot, result in pool.replay(commands).items():
                if isinstance(result, Failure):
                    failures.append(result)
                    continue
                assert result[: len(seen[slot])] == seen[slot]
                seen[slot] = result
                lost.discard(slot)
        steps = {s: wanted[s][len(seen[s]) - 1] for s in wanted if len(seen[s]) <= len(wanted[s])}
        if not steps:
            return failures
        for slot, result in pool.step(steps).items():
            if isinstance(result, Failure):
                failures.append(result)
                lost.add(slot)
            else:
                seen[slot].append(result)


@pytest.mark.slow
def test_episodes_survive_that_workers_are_killed_at_random() -> None:
    wanted = scripts(count=6, length=100)
    expected: dict[int, list[StepResult]] = {slot: [] for slot in wanted}
    with SerialPool(SPEC, len(wanted)) as reference:
        assert play(reference, wanted, expected) == []
    seen: dict[int, list[StepResult]] = {slot: [] for slot in wanted}
    finished = threading.Event()
    kills = []

    def kill(pool: ProcessPool) -> None:
        """Again and again, some results after the last time, at any moment of a step."""
        generator = random.Random(5)
        then = 20
        while not finished.wait(generator.uniform(0, 0.01)):
            results = sum(map(len, seen.values()))
            victim = generator.choice(pool.processes)
            if results >= then and victim is not None:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills.append(victim)
                then = results + generator.randrange(120)

    with ProcessPool(SPEC, 2, len(wanted), 60.0, 60.0, tries=50) as pool:
        killer = threading.Thread(target=kill, args=(pool,))
        killer.start()
        try:
            failures = play(pool, wanted, seen)
        finally:
            finished.set()
            killer.join()
    assert seen == expected
    assert len(kills) >= 3
    assert {failure.kind for failure in failures} == {FailureKind.CRASHED, FailureKind.LOST}
