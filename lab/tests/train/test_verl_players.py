"""Environments of a verl process: those of a group share a worker."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from ascribe_lab.rollout.pools.pool import Failure, FailureKind, Reset
from ascribe_lab.train.load import load_config
from ascribe_lab.train.resolve import resolve
from ascribe_lab.train.verl.players import Players
from lab.tests.train import verl_toys as toys


class Traced:
    """An environment that tells the process it is in, and how many were made there."""

    made = 0
    horizon = 9
    tasks = None

    def __init__(self) -> None:
        Traced.made += 1

    def _info(self) -> dict[str, Any]:
        facts = {
            "task": "t",
            "task_family": "f",
            "won": False,
            "valid": True,
            "admissible_actions": (),
        }
        return facts | {"state": f"{os.getpid()} {Traced.made}"}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        del seed, options
        return "begin", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "die":
            os._exit(3)
        return action, 0.0, False, False, self._info()

    def close(self) -> None:
        pass


def players(tmp_path: Path, **changes: Any) -> Players:
    path = toys.write_config(
        tmp_path / "run.yaml",
        tmp_path,
        **{
            "environment__name": "lab.tests.train.test_verl_players:Traced",
            "environment__options": {},
            "rollout__tasks": None,
            **changes,
        },
    )
    return Players(resolve(load_config(path).config))


def test_members_of_a_group_share_a_process(tmp_path: Path) -> None:
    made = players(tmp_path)
    together = Barrier(4)

    def member(number: int) -> list[str]:
        with made.borrow("u") as player:
            pool = player.pool
            assert pool is not None
            first = pool.reset({0: Reset(1)})[0]
            together.wait(60)
            results = [pool.step({0: f"{number} {turn}"})[0] for turn in range(20)]
            assert not isinstance(first, Failure)
            texts = []
            for turn, result in enumerate(results):
                assert not isinstance(result, Failure)
                assert result.observation == f"{number} {turn}", "somebody else's step"
                texts.append(result.info["state"])
            return texts

    with ThreadPoolExecutor(4) as threads:
        found = [text for few in threads.map(member, range(4)) for text in few]
    assert set(found) == {found[0]}, "one process, in which four environments were made"
    assert found[0].split()[1] == "4"
    with made.borrow("v") as player:  # the next group has the same worker
        assert player.pool is not None
        again = player.pool.reset({0: Reset(1)})[0]
        assert not isinstance(again, Failure)
        assert again.info["state"] == found[0]
        with made.borrow("w") as other:  # a group at the same time has another
            assert other.pool is not None
            elsewhere = other.pool.reset({0: Reset(1)})[0]
            assert not isinstance(elsewhere, Failure)
            assert elsewhere.info["state"].split()[0] != found[0].split()[0]
    made.close()


def test_a_member_that_ends_the_process_costs_the_others_a_replay(tmp_path: Path) -> None:
    made = players(tmp_path)
    with made.borrow("u") as one, made.borrow("u") as other:
        assert one.pool is not None
        assert other.pool is not None
        for player in (one, other):
            assert player.pool is not None
            player.pool.reset({0: Reset(1)})
        died, lost = one.pool.step({0: "die"})[0], other.pool.step({0: "go"})[0]
        assert isinstance(died, Failure)
        assert isinstance(lost, Failure)
        assert (died.kind, lost.kind) == (FailureKind.CRASHED, FailureKind.LOST)
        replayed = other.pool.replay({0: (Reset(1), ["go"])})[0]
        assert not isinstance(replayed, Failure)
        assert replayed[-1].observation == "go"
    made.close()


def test_workers_rest_between_groups_unless_something_broke(tmp_path: Path) -> None:
    made = players(tmp_path, environment__pool="serial", rollout__episode_limit=5)
    with made.borrow("u") as player:
        assert (player.max_turns, player.sampling.max_tokens) == (4, 24)
        assert player.episode_limit == 5
    assert len(made._idle) == 1
    with pytest.raises(KeyError), made.borrow("u"):
        raise KeyError
    assert not made._idle
    assert not made._playing


def test_more_episodes_than_a_group_has_members(tmp_path: Path) -> None:
    made = players(tmp_path, environment__pool="serial")
    with ThreadPoolExecutor(1):
        borrowed = [made.borrow("u") for _ in range(5)]
        for one in borrowed:
            one.__enter__()
        for one in borrowed:
            one.__exit__(None, None, None)
    assert len(made._idle) == 2
    assert not made._playing


def test_no_environment_is_made_to_ask_for_its_limit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rollout.max_turns: must be given"):
        players(tmp_path, rollout__max_turns=None)
