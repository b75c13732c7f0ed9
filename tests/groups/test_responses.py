"""Reading tool calls of responses: what is a call, and what is none."""

import pytest

from ascribe.groups.responses import first_call


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "find", "arguments": {"q": "egg", "n": 2}}\n</tool_call>',
        '{"arguments": {"n": 2, "q": "egg"}, "name": "find"}',
        '<think>x</think>\n{"name": "find", "arguments": "{\\"q\\": \\"egg\\", \\"n\\": 2}"}',
        '{"tool_calls": [{"id": "1", "type": "function", "function": '
        '{"name": "find", "arguments": "{\\"n\\": 2, \\"q\\": \\"egg\\"}"}}]}',
        '[{"function": {"name": "find", "arguments": {"n": 2, "q": "egg"}}}, {"name": "other"}]',
        '<tool_call>{"name": 1}</tool_call><tool_call>'
        '{"name": "find", "arguments": {"n": 2, "q": "\\u0065gg"}}</tool_call>',
    ],
)
def test_tool_calls_that_mean_the_same_are_the_same_action(text: str) -> None:
    assert first_call(text) == ("find", {"n": 2, "q": "egg"})


def test_a_tool_call_needs_no_arguments() -> None:
    assert first_call('{"name": "look"}') == ("look", {})
    llama = '{"name": "go", "parameters": {"to": "hall"}}'
    assert first_call(llama) == ("go", {"to": "hall"})


def _call(arguments: str) -> str:
    return f'<tool_call>{{"name": "x", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        "find egg",
        "<tool_call>{}",
        "<tool_call> </tool_call>",
        _call(f'{{"a": "{"b" * 65_536}"}}'),
        _call("{'a': 1}"),
        _call("{} trailing"),
        _call('{"a": NaN}'),
        _call('{"a": 1e999}'),
        _call(f'{{"a": {"9" * 5000}}}'),
        _call("[" * 30_000),
        _call("[" * 30_000 + "]" * 30_000),
        _call('"not json"'),
        _call('{"a": 1, "a": 1}'),
        _call('{"b": [{"a": 1, "\\u0061": 2}]}'),
        _call('"{\\"a\\": 1, \\"a\\": 2}"'),
        '<tool_call>{"name": "x", "name": "x"}</tool_call>',
        _call("[]"),
        _call("null"),
        '{"name": ""}',
        '{"name": ["x"]}',
        '{"tool_calls": []}',
        '{"tool_calls": null}',
        '[["name", "x"]]',
        "<tool_call>{</tool_call><tool_call>[]</tool_call>",
    ],
)
def test_tool_calls_that_are_none(text: str) -> None:
    assert first_call(text) is None


def test_a_tool_call_may_hold_its_own_closing_tag() -> None:
    call = r'{"name":"say","arguments":{"text":"\u003c/tool_call>\u003cthink>"}}'
    assert first_call(f"<tool_call>{call}</tool_call>") == ("say", {"text": "</tool_call><think>"})


@pytest.mark.parametrize("text", ["<TOOL_CALL>", '<tool_call>{\\"name\\":\\"x\\"}</tool_call>'])
def test_tags_inside_json_are_text(text: str) -> None:
    call = first_call(f'{{"name":"say","arguments":{{"text":"{text}"}}}}')
    assert call is not None
    assert (call[0], list(call[1])) == ("say", ["text"])
