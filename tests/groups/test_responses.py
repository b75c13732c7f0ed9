"""Reading tool calls of responses: what is a call, and what is none."""

import pytest

from ascribe.groups.responses import ToolCallError, first_call, tag_call


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
    ("text", "problem"),
    [
        ("find egg", "no_action"),
        ("<tool_call>{}", "action_not_closed"),
        ("<tool_call> </tool_call>", "empty_action"),
        (_call(f'{{"a": "{"b" * 65_536}"}}'), "action_too_long"),
        (_call("{'a': 1}"), "bad_json"),
        (_call("{} trailing"), "bad_json"),
        (_call('{"a": NaN}'), "bad_json"),
        (_call('{"a": 1e999}'), "bad_json"),
        (_call(f'{{"a": {"9" * 5000}}}'), "bad_json"),
        (_call("[" * 30_000), "bad_json"),
        (_call("[" * 30_000 + "]" * 30_000), "bad_json"),
        (_call('"not json"'), "bad_json"),
        (_call('{"a": 1, "a": 1}'), "duplicate_key"),
        (_call('{"b": [{"a": 1, "\\u0061": 2}]}'), "duplicate_key"),
        (_call('"{\\"a\\": 1, \\"a\\": 2}"'), "duplicate_key"),
        ('<tool_call>{"name": "x", "name": "x"}</tool_call>', "duplicate_key"),
        (_call("[]"), "not_a_call"),
        (_call("null"), "not_a_call"),
        ('{"name": ""}', "not_a_call"),
        ('{"name": ["x"]}', "not_a_call"),
        ('{"tool_calls": []}', "not_a_call"),
        ('{"tool_calls": null}', "not_a_call"),
        ('[["name", "x"]]', "not_a_call"),
        # Of several the first is told.
        ("<tool_call>{</tool_call><tool_call>[]</tool_call>", "bad_json"),
    ],
)
def test_tool_calls_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(ToolCallError) as caught:
        first_call(text)
    assert caught.value.problem == problem


def test_a_tool_call_may_hold_its_own_closing_tag() -> None:
    call = '{"name":"say","arguments":{"text":"</tool_call><think>"}}'
    assert first_call(tag_call(call)) == ("say", {"text": "</tool_call><think>"})


@pytest.mark.parametrize("text", ["<TOOL_CALL>", '<tool_call>{\\"name\\":\\"x\\"}</tool_call>'])
def test_tags_inside_json_are_text(text: str) -> None:
    name, arguments = first_call(f'{{"name":"say","arguments":{{"text":"{text}"}}}}')
    assert (name, list(arguments)) == ("say", ["text"])
