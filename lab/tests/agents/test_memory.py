"""Which turns the prompt shows."""

import pytest

from ascribe_lab.agents import (
    Agent,
    FullHistory,
    LastTurns,
    SendText,
    TextPrompt,
    Turn,
    View,
    WholeText,
)

TURNS = [Turn(f"saw {i}", f"said {i}", f"did {i}") for i in range(5)]


@pytest.mark.parametrize("count", range(8))
def test_the_last_turns_oldest_first(count: int) -> None:
    assert LastTurns(count)(TURNS) == TURNS[5 - min(count, 5) :]
    assert LastTurns(count)([]) == []


def test_the_full_history() -> None:
    assert FullHistory()(TURNS) == TURNS


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0, not -1"):
        LastTurns(-1)


def test_any_function_is_a_memory() -> None:
    prompt = TextPrompt("{past}{observation}", "{history}|", "{action}")
    agent = Agent(prompt, lambda turns: turns[::2], WholeText(), SendText())
    (message,) = agent.messages(View("task", "now", TURNS))
    assert message["content"] == "did 0\ndid 2\ndid 4|now"
