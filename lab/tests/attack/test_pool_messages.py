"""Point 6: no fork of a worker sends results, and what an environment takes is limited.

In the first build results were untagged pickles: when an environment forked, the fork's late result
was taken for that of the next command. The tests of forks failed there; those of limits fail before
texts and memory were limited.
"""

from collections.abc import Iterator

import pytest

from ascribe_lab.rollout.pools import EnvironmentSpec, Failure, FailureKind, ProcessPool, StepResult
from ascribe_lab.rollout.pools.worker import LONGEST_TEXT
from lab.tests.rollout.toys import TOY, begin, kinds

MEMORY = 0.5
"""GiB that a worker may have here."""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    """Slots 0 and 2 are with one worker, 1 with the other."""
    spec = EnvironmentSpec(TOY, memory=MEMORY)
    with ProcessPool(spec, workers=2, slots=3, step_limit=30.0, reset_limit=30.0) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _begun(pool: ProcessPool) -> None:
    begin(pool)


@pytest.mark.parametrize("action", ["late_fork", "late_c_fork"])
def test_a_result_that_a_fork_sends_late_is_not_taken_for_another(
    pool: ProcessPool, action: str
) -> None:
    """The fork returns from the same step a second later, while other steps are under way."""
    first = pool.step({0: action})[0]
    assert isinstance(first, StepResult)
    assert first.observation == "parent"
    results = pool.step({0: "wait 1.5", 2: "who"})
    assert results[0].observation == "waited 1.5"
    assert results[2].observation == str(pool.processes[0])
    results = pool.step({0: "who", 2: "end"})
    assert results[0].observation == str(pool.processes[0])
    assert results[2].terminated


def test_an_observation_beyond_the_limit_fails_its_episode(pool: ProcessPool) -> None:
    results = pool.step({0: f"huge {LONGEST_TEXT + 1}", 1: f"huge {LONGEST_TEXT}"})
    assert kinds(results) == {0: "malformed", 1: "ok"}
    detail = "the observation is text of 8,388,609 characters; the limit is 8,388,608"
    assert results[0] == Failure(FailureKind.MALFORMED, detail)


def test_a_result_beyond_the_limit_fails_its_episode(pool: ProcessPool) -> None:
    results = pool.step({0: "many 70", 1: "go"})
    assert kinds(results) == {0: "malformed", 1: "ok"}
    assert "bytes; the limit is 67,108,864" in results[0].detail
    assert kinds(pool.step({0: "go", 2: "go"})) == {0: "lost", 2: "ok"}


def test_memory_beyond_the_limit_fails_its_episode(pool: ProcessPool) -> None:
    worker = pool.processes[0]
    results = pool.step({0: "take 1000", 2: "take 10"})
    assert kinds(results) == {0: "raised", 2: "ok"}
    assert results[0].detail == "MemoryError: a worker may have 0.5 GiB (memory_limit)"
    assert pool.processes[0] == worker


def test_a_worker_never_gets_more_memory_than_the_machine_has() -> None:
    spec = EnvironmentSpec(TOY)
    with ProcessPool(spec, workers=1, slots=1, step_limit=30.0, reset_limit=30.0) as pool:
        begin(pool)
        result = pool.step({0: f"take {1 << 30}"})[0]
    assert isinstance(result, Failure)
    assert result.kind is FailureKind.RAISED
    assert "MemoryError: a worker may have" in result.detail
