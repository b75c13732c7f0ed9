from dataclasses import replace

import pytest

from ascribe.conversations import from_sequences
from ascribe.engines.crediting import with_first_tokens
from ascribe.estimators.base import BY_WORDS
from ascribe.estimators.bipace import BiPACEQ
from ascribe.estimators.clusters import BY_TEXT
from ascribe.groups.actions import action_keys, first_tokens, tag_body, tool_call, whole
from ascribe.models.policy import Sample
from ascribe.rollout.episode import Step
from ascribe.rollout.record import table as rollout_table
from ascribe.rollout.run import Clock, Rollout, Trajectory
from ascribe.steps.table import Coded

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("<think>far</think><action>go  to\nfridge 1</action>", "go to fridge 1"),
        ("<action>first</action><action>second</action>", "first"),
        ("<ACTION>Look</ACTION>", "Look"),
        ("<action>never closed", None),
        ("<action></action>", None),
        ("go to fridge 1", "go to fridge 1"),
        ("", None),
    ],
)
def test_tag_body(text: str, key: str | None) -> None:
    assert tag_body(text) == key


def test_first_tokens() -> None:
    assert first_tokens(3)("Go to  the fridge, now") == "Go to the"
    assert first_tokens(8)("a,b") == "a , b"
    assert first_tokens(8)("   ") is None


def test_first_tokens_are_those_of_the_response() -> None:
    """BiPACE, Section 3.5: of what the model wrote, not of the command that was parsed from it."""
    tokens = [(5, 6, 7, 8, 9, 10, 11, 12, n) for n in range(2)] + [(5, 6, 7), ()]
    commands, rewards = ["look", "open door", "look", "look"], [1.0, 0.0, 0.0, 0.0]
    steps = (
        Step("s", "o", (), Sample("", (), ids), action, True, None, reward, True, False, reward > 0)
        for ids, action, reward in zip(tokens, commands, rewards, strict=True)
    )
    trajectories = [
        Trajectory("g", f"g/{number}", "", "toy", (step,)) for number, step in enumerate(steps)
    ]
    table = rollout_table(Rollout(tuple(trajectories), (), (), Clock(0.0, 0.0, 0.0, 0), 0))
    by_tokens = BiPACEQ(action_key="first_tokens")
    assert by_tokens.action_keys(table).labels.tolist() == [0, 0, 1, -1]
    assert by_tokens.action_keys(table).key_share == 0.75
    assert by_tokens(table).notes == (BY_TEXT,)
    by_words = replace(table, first_tokens=None)
    assert by_tokens.action_keys(by_words).labels.tolist() == [0, 1, 0, 0]
    assert by_tokens(by_words).notes == (BY_WORDS, BY_TEXT)
    # The same of sequences, whose turns are credited on their tokens.
    sequences, masks = [[1, *ids] for ids in tokens[:3]], [[0, *map(bool, i)] for i in tokens[:3]]
    turns, spans = from_sequences(sequences, masks, group=["g"] * 3, reward=rewards[:3])
    turns = with_first_tokens(turns, spans, sequences, by_tokens)
    assert turns.first_tokens is not None
    assert turns.first_tokens.texts() == table.first_tokens.texts()[:3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            '<tool_call>{"name": "find", "arguments": {"q": "egg", "n": 2}}</tool_call>',
            '{"arguments": {"n": 2, "q": "egg"}, "name": "find"}',
        ),
        (
            '{"function": {"name": "find", "arguments": "{\\"q\\": 1}"}}',
            '{"name":"find","arguments":{"q":1}}',
        ),
    ],
)
def test_tool_calls_that_are_the_same(one: str, other: str) -> None:
    assert tool_call(one) == tool_call(other) is not None


@pytest.mark.parametrize("text", ["no json", "[1, 2]", '{"arguments": {}}', "{", "[" * 100_000])
def test_not_a_tool_call(text: str) -> None:
    assert tool_call(text) is None


def test_keys_are_spread_over_rows_with_the_share_that_has_one() -> None:
    actions = Coded.encode(["<action>a</action>", "<action>a </action>", "<action>b", None])
    keys = action_keys(actions, tag_body)
    assert keys.labels.tolist() == [0, 0, -1, -1]
    assert (keys.count, keys.key_share) == (1, 0.5)
    assert action_keys(actions, whole).key_share == 0.75
    assert action_keys(actions, lambda text: text[-1]).count == 2
