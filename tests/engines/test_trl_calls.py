"""Rewards, states and ends of turns in TRL's own tool loop: every kind of call, one real run.

Page: docs/engines/trl.md, "Rewards and states of single turns".
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engines import trl_toys as toys

pytest.importorskip("trl")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import against_stock as stock

pytestmark = [pytest.mark.engine, toys.QUIET]

KINDS = {
    "turns with several calls",
    "calls that fail",
    "calls of no tool, or with wrong arguments",
    "calls without a reward",
    "turns without a call",
    "turns whose results were rolled back",
    "turns at the limit of turns",
    "episodes that were truncated",
}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[stock.Episode]:
    """32 episodes of a small model that calls tools well and badly."""
    return stock.trl(tmp_path_factory.mktemp("stock"), 2)


def test_turns_are_paid_for_the_calls_they_made(episodes: list[stock.Episode]) -> None:
    """By hand, from the environment's log and TRL's messages; every kind of call occurs."""
    kinds: Counter[str] = Counter()
    for episode in episodes:
        assert episode.steps == stock.by_hand(episode, kinds)
    assert {kind for kind, count in kinds.items() if count} == KINDS
    assert len({reward for episode in episodes for reward, _, _ in episode.steps[:-1]}) > 2
    assert len({state for episode in episodes for _, state, _ in episode.steps}) == 3


def test_truncated_is_one_thing(episodes: list[stock.Episode]) -> None:
    """By a token limit, by the limit of turns, or by a result that did not fit."""
    ways: Counter[str] = Counter()
    for episode in episodes:
        *others, (_, _, cut) = episode.steps
        assert not any(truncated for _, _, truncated in others)
        called = bool(episode.messages[-1].get("tool_calls"))
        assert cut == (called or not episode.ended)
        ways["by tokens"] += not episode.ended
        ways["by turns, or a result"] += called and episode.ended
        ways["not"] += not cut
        ways["by the limit of turns"] += called and len(episode.steps) == stock.TURNS
    assert len(ways) == 4
    assert all(ways.values())


class Untold(stock.Rooms):
    """One episode in four says nothing of its reward that is a number."""

    made = 0

    def reset(self, **given: Any) -> str:
        """Begin an episode."""
        said = super().reset(**given)
        Untold.made += 1
        if Untold.made == 2:
            self.reward_so_far = None  # type: ignore[assignment]
        return said

    def _called(self, *_: Any) -> None: ...

    def get_reward(self) -> float:
        """Of the whole episode."""
        return float(self.room)


@pytest.fixture
def rooms(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from datasets import Dataset

    from ascribe.engines.trl import AscribeTrainer
    from tests.engines.trl_tools import TASK, tool_model

    model, tokenizer = tool_model(tmp_path_factory)

    def make(environment: type, **options: Any) -> Any:
        return AscribeTrainer(
            str(model),
            args=toys.config(tmp_path, max_completion_length=60),
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": TASK}]}] * 8),
            processing_class=tokenizer,
            environment_factory=environment,
            recipe="gigpo",
            **options,
        )

    return make


def test_an_environment_s_fault_drops_its_group(
    rooms: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = rooms(Untold)
    made.train()
    assert toys.logged(made, "ascribe/dropped/bad_turn_rewards") == [1]
    assert toys.logged(made, "ascribe/dropped_groups") == [1]
    assert "episode 0/0/1: turn_rewards is [nan" in caplog.text


def test_a_key_that_the_environment_lacks_is_refused_before_it_is_played(rooms: Any) -> None:
    class Keyless:
        """An environment without a state."""

        def reset(self, **_: Any) -> str:
            """Begin an episode."""
            return " You are in room 0."

        def move(self, room: int) -> str:
            """Go to a room.

            Args:
                room: its number.
            """
            raise AssertionError("it was played")

        def get_reward(self) -> float:
            """Nothing."""
            return 0.0

    with pytest.raises(ValueError, match="state='key': Keyless has no attribute state_key"):
        rooms(Keyless, state="key").train()
