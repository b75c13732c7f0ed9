import pytest

from ascribe.groups.actions import action_keys, first_tokens, tag_body, tool_call, whole
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
    assert (keys.count, (keys.labels >= 0).mean()) == (1, 0.5)
    assert (action_keys(actions, whole).labels >= 0).mean() == 0.75
    assert action_keys(actions, lambda text: text[-1]).count == 2
