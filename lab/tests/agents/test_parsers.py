"""Parsers: what is read, what is not, and that nothing breaks them."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.agents import (
    PROBLEMS,
    Parsed,
    SearchAnswer,
    ThinkAction,
    WholeText,
)
from ascribe_lab.agents.parsers import ResponseParser
from tests.hostile import HOSTILE, LONG, hostile_texts

PARSERS: dict[str, ResponseParser] = {
    "think_action": ThinkAction(),
    "strict_think_action": ThinkAction(longest=20, needs_thought=True, only_one=True),
    "search_answer": SearchAnswer(),
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


def test_whole_text() -> None:
    assert WholeText()(" The answer\n is 4. ") == Parsed("The answer\n is 4.")
    assert WholeText(longest=3)("four") == Parsed(None, None, "action_too_long")
    assert WholeText()("\n") == Parsed(None, None, "empty_answer")


@pytest.mark.parametrize("parser", [ThinkAction, SearchAnswer, WholeText])
def test_a_limit_of_nothing_is_refused(parser: Callable[..., ResponseParser]) -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        parser(longest=0)


# There and back.

PLAIN = st.text(st.characters(exclude_characters="<>\n", exclude_categories=["Cs"]))
ACTIONS = PLAIN.map(str.strip).filter(bool)
THOUGHTS = st.none() | ACTIONS


@given(ACTIONS, THOUGHTS)
def test_think_action_round_trip(action: str, thought: str | None) -> None:
    assert ThinkAction()(ThinkAction().render(action, thought)) == Parsed(action, thought)


@given(st.sampled_from(["search", "answer"]), ACTIONS, THOUGHTS)
def test_search_answer_round_trip(kind: str, body: str, thought: str | None) -> None:
    action = f"{kind}[{body}]"
    assert SearchAnswer()(SearchAnswer().render(action, thought)) == Parsed(action, thought)


@given(st.text().map(str.strip).filter(bool))
def test_whole_text_round_trip(action: str) -> None:
    assert WholeText()(WholeText().render(action)) == Parsed(action)


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
