"""Rewards, states and ends of turns in TRL's own tool loop: every kind of call, one real run.

Page: docs/engines/trl_reference.md, "Rewards and states of single turns".
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ascribe.steps.files import read_table
from tests.engines import trl_toys as toys
from tests.tool_model import CALL

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


class Unplayed:
    """An environment without a state, which is refused before a tool is called."""

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


class KeyMethod(Unplayed):
    def state_key(self) -> str:
        """A method is a tool for TRL."""
        return "room 0"


class RewardMethod(Unplayed):
    def reward_so_far(self) -> float:
        """A method is a tool for TRL."""
        return 0.0


class ObjectKey(Unplayed):
    @property
    def state_key(self) -> Any:
        """An object, whose text has its address."""
        return [self]


class FunctionKey(Unplayed):
    def reset(self, **given: Any) -> str:
        """Begin an episode."""
        self.state_key = lambda: "room 0"
        return super().reset(**given)


class BrokenKey(Unplayed):
    @property
    def state_key(self) -> str:
        """Read before there is a room."""
        return f"room {self.room}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("environment", "error", "problem"),
    [
        (Unplayed, ValueError, "state='key': Unplayed has no attribute state_key"),
        (KeyMethod, ValueError, "KeyMethod.state_key is a method, and TRL .* make it a property"),
        (RewardMethod, ValueError, "RewardMethod.reward_so_far is a method, and TRL gives"),
        (ObjectKey, ValueError, r"state_key of ObjectKey is \[<.* return a text of what it holds"),
        (FunctionKey, ValueError, "state_key of FunctionKey is <function .* return a text"),
        (BrokenKey, AttributeError, "'BrokenKey' object has no attribute 'room'"),
    ],
)
def test_attributes_that_cannot_be_read_are_refused_before_an_environment_is_played(
    rooms: Any, environment: type, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        rooms(environment, state="key").train()


class Counting(Unplayed):
    """Each move earns something; the reward of the episode leaves that out."""

    def reset(self, **given: Any) -> str:
        """Begin an episode."""
        self.reward_so_far = 0.0
        return super().reset(**given)

    def move(self, room: int) -> str:
        """Go to a room.

        Args:
            room: its number.
        """
        self.reward_so_far += 0.25
        return f"You are in room {room}."


class CountingAll(Counting):
    """The reward of the episode is what was earned."""

    def get_reward(self) -> float:
        """Of the whole episode."""
        return self.reward_so_far


@pytest.mark.parametrize("environment", [Counting, CountingAll])
def test_rewards_of_turns_that_the_episode_s_leaves_out_are_named_once(
    rooms: Any, environment: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And in the same run, states and actions are those of TRL's messages."""
    played: list[Any] = []

    def note(prompts: Any, completions: Any, **_: Any) -> list[float]:
        for prompt, said in zip(prompts, completions, strict=True):
            texts = [f"{prompt[-1]['role']}: {prompt[-1]['content']}"]
            for message in said:
                if message["role"] == "tool":
                    texts.append(f"tool: {message['content']}")
                    continue
                calls = [call["function"] for call in message.get("tool_calls") or ()]
                said_plainly = message.get("content", "").strip()
                written = [json.dumps(c, sort_keys=True, separators=(",", ":")) for c in calls]
                played.append((texts.pop(), f"[{','.join(written)}]", said_plainly))
        return [0.0] * len(prompts)

    made = rooms(environment, reward_funcs=note, dump_dir=tmp_path)
    made.train()
    table = read_table(tmp_path / "rollouts_00000.parquet")
    assert len(table) == len(played) > 8
    for state, action, (shown, calls, said) in zip(
        table.state.texts(), table.action.texts(), played, strict=True
    ):
        assert state == shown
        assert action in {calls, calls[1:-1], said}
    assert toys.logged(made, "ascribe/from_tokens_share") == [0]
    names = (
        "reward_so_far of Counting: 0.[257]+ in all for an episode to which the reward functions"
    )
    told = re.findall(names + r" gave 0; .* so its last turn gets -0.[257]+ besides", caplog.text)
    assert len(told) == (environment is Counting)


def test_two_spellings_of_a_call_are_one_action(
    rooms: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is made to write them; the rest is TRL's loop."""
    from trl import GRPOTrainer

    made = rooms(CountingAll, dump_dir=tmp_path)
    calls = [CALL % ("move", "room", room) for room in (1, 2)]
    calls += [call.replace('": ', '":') for call in calls]

    def written(self: Any, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        texts = ["Done."] * len(prompt_ids) if turns else calls * 2
        turns.append(len(texts))
        return [[*made._texts(text)["input_ids"], made._texts.eos_token_id] for text in texts], None

    turns: list[int] = []
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", written)
    made.train()
    table = read_table(tmp_path / "rollouts_00000.parquet")
    first = [text for text, step in zip(table.action.texts(), table.step, strict=True) if step == 0]
    assert (
        first
        == [
            '{"arguments":{"room":1},"name":"move"}',
            '{"arguments":{"room":2},"name":"move"}',
        ]
        * 4
    )
    assert turns == [8, 8]
