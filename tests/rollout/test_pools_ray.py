"""Ray actors that crash and hang. Needs the extra ray."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ascribe.rollout.pools import (
    EnvironmentSpec,
    Failure,
    FailureKind,
    PoolBrokenError,
    RayPool,
    Reset,
)
from tests.rollout.toys import TOY, begin, kinds

ray = pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.engine, pytest.mark.slow]


def open_pool(step_limit: float = 60.0, tries: int = 5, **options: Any) -> RayPool:
    """Slots 0 and 2 are with one actor, 1 and 3 with the other."""
    return RayPool(EnvironmentSpec(TOY, options), 2, 4, step_limit, 60.0, tries=tries, cpus=0.01)


@pytest.fixture
def pool() -> Iterator[RayPool]:
    with open_pool() as pool:
        begin(pool)
        yield pool


@pytest.mark.parametrize("action", ["crash", "kill"])
def test_a_crash_is_blamed_on_its_slot(pool: RayPool, action: str) -> None:
    results = pool.step({0: "go", 1: "go", 2: action, 3: "go"})
    assert kinds(results) == {0: "lost", 1: "ok", 2: "crashed", 3: "ok"}
    assert results[2].detail.startswith("ActorDiedError")
    assert results[2].detail.isprintable()
    results = pool.step(dict.fromkeys(range(4), "go"))
    assert kinds(results) == {0: "lost", 1: "ok", 2: "lost", 3: "ok"}
    begin(pool)


def test_an_episode_goes_on_where_it_was_after_a_replay(pool: RayPool) -> None:
    recorded = pool.replay({1: (Reset(0), ["go", "stay", "go"])})[1]
    pool.step({0: "go"})
    pool.step({0: "stay"})
    pool.step({0: "kill"})
    assert pool.replay({0: (Reset(0), ["go", "stay"])})[0] == recorded[:3]
    assert pool.step({0: "go"})[0] == recorded[3]


@pytest.mark.parametrize("action", ["hang", "lock"])
def test_a_step_over_its_limit_is_ended(action: str) -> None:
    with open_pool(step_limit=2.0) as pool:
        begin(pool)
        victim = int(pool.step({0: "who"})[0].observation)
        results = pool.step({0: "end", 1: "go", 2: action, 3: "go"})
        assert kinds(results) == {0: "ok", 1: "ok", 2: "hung", 3: "ok"}
        assert results[2] == Failure(FailureKind.HUNG, "no result within 2 s")
        deadline = time.monotonic() + 30
        while Path(f"/proc/{victim}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{victim}").exists()
        begin(pool)


def test_the_limit_is_that_of_one_step() -> None:
    with open_pool(step_limit=2.5) as pool:
        begin(pool)
        assert kinds(pool.replay({0: (Reset(0), ["wait 0.8"] * 4)})) == {0: "ok"}


def test_an_actor_that_dies_between_calls(pool: RayPool) -> None:
    os.kill(int(pool.step({0: "who"})[0].observation), signal.SIGKILL)
    results = pool.step({0: "go", 1: "go"})
    assert kinds(results) == {0: "crashed", 1: "ok"}
    begin(pool)


def test_an_actor_that_never_answers_breaks_the_pool() -> None:
    with open_pool(tries=2, start="crash") as pool:
        for _ in range(2):
            assert kinds(pool.reset({0: Reset(0), 2: Reset(0)})) == {0: "crashed", 2: "lost"}
        with pytest.raises(PoolBrokenError, match="died 2 times"):
            pool.reset({0: Reset(0)})


def test_ray_is_used_as_it_is(pool: RayPool) -> None:
    node = ray.get_runtime_context().get_node_id()
    with open_pool() as other:
        begin(other)
        assert ray.get_runtime_context().get_node_id() == node
    assert ray.is_initialized()
    assert kinds(pool.step({0: "go"})) == {0: "ok"}


def test_noise_mixes_with_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with open_pool() as pool:
        begin(pool)
        pool.step(dict.fromkeys(range(4), "shout HELLO"))
        time.sleep(1.5)  # Ray shows what actors print a little later
    assert "HELLO" not in capfd.readouterr().out
