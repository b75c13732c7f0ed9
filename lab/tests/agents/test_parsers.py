"""Parsers: what is read, what is not, and that nothing breaks them."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups.actions import tool_call
from ascribe_lab.agents import (
    PROBLEMS,
    Parsed,
    SearchAnswer,
    ThinkAction,
    ThoughtAction,
    ToolCall,
    WholeText,
)
from ascribe_lab.agents.parsers import ResponseParser
from tests.hostile import HOSTILE, LONG, hostile_texts

PARSERS: dict[str, ResponseParser] = {
    "think_action": ThinkAction(),
    "strict_think_action": ThinkAction(longest=20, needs_thought=True, only_one=True),
    "search_answer": SearchAnswer(),
    "thought_action": ThoughtAction(),
    "tool_call": ToolCall(),
    "whole_text": WholeText(),
}


# What each reads.


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("<think>far</think><action>go to fridge 1</action>", "go to fridge 1", "far"),
        ("<think>\nfar \n</think>\n\n<action>\n go  on \r\n</action> and more", "go  on", "far"),
        ("<action>look</action>", "look", None),
        ("Sure! <ACTION>Look</Action >", "Look", None),
        ("<action>a</action><action>b</action>", "a", None),
        ("<action></action><action> </action><action>b</action>", "b", None),
        ("<action><action>go</action></action>", "go", None),
        ("<action>never closed <action>go</action>", "go", None),
        ("</action><action>go</action>", "go", None),
        ("<action>search[<b>x</b>]</action>", "search[<b>x</b>]", None),
        # A thought holds no actions; one that is not closed is no thought.
        (
            "<think>maybe <action>a</action></think><action>b</action>",
            "b",
            "maybe <action>a</action>",
        ),
        ("<think>a</think>x<think><action>b</action></think><action>c</action>", "c", "a"),
        ("<action>a</action><think>why</think>", "a", "why"),
        ("<think>far <action>go</action>", "go", None),
        ("<think>a<think>b</think><action>c</action>", "c", "a<think>b"),
        # Some chat templates write the opening tag themselves.
        ("so be it</think><action>go</action>", "go", "so be it"),
        ("<think></think><action>go</action>", "go", ""),
        ("<action>half \ud800</action>", "half \ufffd", None),
    ],
)
def test_think_action(text: str, action: str, thought: str | None) -> None:
    assert ThinkAction()(text) == Parsed(action, thought)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty_answer"),
        (" \n", "empty_answer"),
        ("go to fridge 1", "no_action"),
        ("go</action>", "no_action"),
        ("< action>go</ action>", "no_action"),
        ("<think><action>go</action></think>", "no_action"),
        ("<think>a</think><action>go", "action_not_closed"),
        ("<action>go<think>a</think></action>", "action_not_closed"),
        ("<action> </action>", "empty_action"),
        (f"<action>{'a' * 10_001}</action>", "action_too_long"),
    ],
)
def test_think_action_finds_nothing(text: str, problem: str) -> None:
    found = ThinkAction()(text)
    assert (found.action, found.problem) == (None, problem)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("<think>a</think><action>b</action>", Parsed("b", "a")),
        ("<think>a</think><action>b</action>c</action>", Parsed("b", "a")),
        ("<action>b</action>", Parsed("b", None, "no_thought")),
        ("<think> </think><action>b</action>", Parsed("b", "", "no_thought")),
        (
            "<think>a</think><action>b</action><action>c</action>",
            Parsed("b", "a", "several_actions"),
        ),
        ("<think>a</think>", Parsed(None, "a", "no_action")),
    ],
)
def test_demands_make_an_action_invalid_but_it_is_still_there(text: str, parsed: Parsed) -> None:
    assert ThinkAction(needs_thought=True, only_one=True)(text) == parsed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>x</think><search> who was Ada? </search>", "search[who was Ada?]"),
        ("<answer>Ada Lovelace</answer>", "answer[Ada Lovelace]"),
        ("<search>a</search><answer>b</answer>", "search[a]"),
        ("<answer>b</answer><search>a</search>", "answer[b]"),
        ("<SEARCH>a[1]]</SEARCH>", "search[a[1]]]"),
        ("<search>a<answer>b</answer>", "answer[b]"),
        ("<search>a</answer><answer>b</answer>", "answer[b]"),
        ("<search>a</search><information>answer[x]</information>", "search[a]"),
        ("<answer>two\nlines</answer>", "answer[two\nlines]"),
    ],
)
def test_search_answer(text: str, action: str) -> None:
    found = SearchAnswer()(text)
    assert (found.action, found.problem) == (action, None)


def test_search_answer_can_demand_one_action() -> None:
    found = SearchAnswer(only_one=True)("<search>a</search><answer>b</answer>")
    assert found == Parsed("search[a]", None, "several_actions")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("search[a]", "no_action"),
        ("<search>a</answer>", "action_not_closed"),
        ("<search>a</answer>b</search>", "action_not_closed"),
        ("<search></search>", "empty_action"),
    ],
)
def test_search_answer_finds_nothing(text: str, problem: str) -> None:
    assert SearchAnswer()(text) == Parsed(None, None, problem)


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("Thought: far\nAction: go to fridge 1", "go to fridge 1", "far"),
        ("Thought:\nfar\naway\n\nAction:\n\n  go on \nmore", "go on", "far\naway"),
        ("Thought 1: far\r\nAction 1: go\r\nObservation 1: done\r\nAction 2: no", "go", "far"),
        ("I think.\nACTION: go", "go", "I think."),
        ("action: go", "go", None),
        ("Action: Action: go", "Action: go", None),
        ("Action:\nAction: go", "go", None),
        ("Thought: Action: none\nAction: go", "go", "Action: none"),
    ],
)
def test_thought_action(text: str, action: str, thought: str | None) -> None:
    assert ThoughtAction()(text) == Parsed(action, thought)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Thought: far", "no_action"),
        ("My action: go", "no_action"),
        ("Reaction: go", "no_action"),
        ("Thought: far\nAction:\n\nObservation: done", "empty_action"),
        (f"Action: {'a' * 10_001}", "action_too_long"),
    ],
)
def test_thought_action_finds_nothing(text: str, problem: str) -> None:
    found = ThoughtAction()(text)
    assert (found.action, found.problem) == (None, problem)


CALL = '{"name":"find","arguments":{"n":2,"q":"egg"}}'


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
    found = ToolCall()(text)
    assert (found.action, found.problem) == (CALL, None)


def test_keys_of_actions_read_what_the_parser_writes() -> None:
    assert tool_call(CALL) == '["find", {"n": 2, "q": "egg"}]'


def test_a_tool_call_needs_no_arguments() -> None:
    assert ToolCall()('{"name": "look"}').action == '{"name":"look","arguments":{}}'
    llama = '{"name": "go", "parameters": {"to": "hall"}}'
    assert ToolCall()(llama).action == '{"name":"go","arguments":{"to":"hall"}}'


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
        (_call('{"a": "\\ud800"}'), "bad_json"),
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
    assert ToolCall()(text) == Parsed(None, None, problem)


def test_whole_text() -> None:
    assert WholeText()(" The answer\n is 4. ") == Parsed("The answer\n is 4.")
    assert WholeText(longest=3)("four") == Parsed(None, None, "action_too_long")
    assert WholeText()("\n") == Parsed(None, None, "empty_answer")


@pytest.mark.parametrize("parser", [ThinkAction, SearchAnswer, ThoughtAction, ToolCall, WholeText])
def test_a_limit_of_nothing_is_refused(parser: Callable[..., ResponseParser]) -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        parser(longest=0)


# There and back.

PLAIN = st.text(st.characters(exclude_characters="<>\n", exclude_categories=["Cs"]))
ACTIONS = PLAIN.map(str.strip).filter(bool)
THOUGHTS = st.none() | ACTIONS
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(ACTIONS, THOUGHTS)
def test_think_action_round_trip(action: str, thought: str | None) -> None:
    assert ThinkAction()(ThinkAction().render(action, thought)) == Parsed(action, thought)


@given(st.sampled_from(["search", "answer"]), ACTIONS, THOUGHTS)
def test_search_answer_round_trip(kind: str, body: str, thought: str | None) -> None:
    action = f"{kind}[{body}]"
    assert SearchAnswer()(SearchAnswer().render(action, thought)) == Parsed(action, thought)


@given(ACTIONS, THOUGHTS)
def test_thought_action_round_trip(action: str, thought: str | None) -> None:
    assert ThoughtAction()(ThoughtAction().render(action, thought)) == Parsed(action, thought)


@given(st.text().map(str.strip).filter(bool))
def test_whole_text_round_trip(action: str) -> None:
    assert WholeText()(WholeText().render(action)) == Parsed(action)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=4), THOUGHTS)
def test_tool_call_round_trip(name: str, arguments: dict[str, object], thought: str | None) -> None:
    parser = ToolCall()
    action = parser(json.dumps({"arguments": arguments, "name": name}, indent=1)).action
    assert action is not None
    assert json.loads(action) == {"name": name, "arguments": arguments}
    assert parser(parser.render(action, thought)) == Parsed(action, thought)


def test_a_tool_call_may_hold_its_own_closing_tag() -> None:
    action = '{"name":"say","arguments":{"text":"</tool_call><think>"}}'
    assert ToolCall()(ToolCall().render(action)) == Parsed(action)


@pytest.mark.parametrize("text", ["<TOOL_CALL>", '<tool_call>{\\"name\\":\\"x\\"}</tool_call>'])
def test_tags_inside_json_are_text(text: str) -> None:
    action = f'{{"name":"say","arguments":{{"text":"{text}"}}}}'
    assert ToolCall()(action) == Parsed(action)


@pytest.mark.parametrize("name", PARSERS)
@given(action=hostile_texts(), thought=st.none() | hostile_texts())
def test_rendering_gives_the_action_or_is_refused(
    name: str, action: str, thought: str | None
) -> None:
    parser = PARSERS[name]
    try:
        answer = parser.render(action, thought)
    except ValueError:
        return
    assert parser(answer).action == action


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_what_cannot_be_said_is_refused(parser: ResponseParser) -> None:
    with pytest.raises(ValueError, match="no response of this format"):
        parser.render("")


# Whatever comes.


def _sound(parser: ResponseParser, text: str) -> None:
    found = parser(text)
    assert found.problem is None or found.problem in PROBLEMS
    assert (found.action is None) <= (found.problem is not None)
    for said in (found.action, found.thought):
        if said is not None:
            said.encode()
    if found.action is not None:
        assert found.action.strip() == found.action != ""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_hostile_texts(parser: ResponseParser, text: str) -> None:
    _sound(parser, text)


@pytest.mark.parametrize("name", PARSERS)
@given(text=hostile_texts("<think>", "</think>", "<action>", "</action>", "Action:", "\n"))
def test_random_hostile_texts(name: str, text: str) -> None:
    _sound(PARSERS[name], text)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_long_texts_take_linear_time(parser: ResponseParser, name: str) -> None:
    began = time.process_time()
    _sound(parser, LONG[name])
    # About 0.3 s at the worst; quadratic time would be minutes.
    assert time.process_time() - began < 5
