"""Prompts: what is shown at which step, and that hostile values change nothing but their place."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents import (
    AGENTS,
    CHAT_TOKENS,
    FIELDS,
    LastTurns,
    TextPrompt,
    Turn,
    View,
    agent_for,
    neutralise,
)
from ascribe_lab.agents.agent import Memory
from tests.hostile import HOSTILE, LONG, hostile_texts

ALL = [(name, style) for name, styles in AGENTS.items() for style in styles]

PROMPT = TextPrompt(
    body="{task};{step};{past}{observation};{choices}",
    past="{taken} {shown} {history};",
    turn="{observation}>{action}>{response}",
    choices="[{admissible}]",
)


def content(prompt: TextPrompt, view: View, memory: Memory = LastTurns(2)) -> str:  # noqa: B008
    return prompt(view, memory(view.turns))[-1]["content"]


def turns(count: int) -> list[Turn]:
    return [Turn(f"o{i}", f"r{i}", f"a{i}") for i in range(count)]


# What is shown.


def test_the_first_step_has_no_past() -> None:
    assert content(PROMPT, View("t", "o0")) == "t;1;o0;"


def test_later_steps_have_the_turns_that_the_memory_left() -> None:
    assert content(PROMPT, View("t", "o3", turns(3))) == "t;4;3 2 o1>a1>r1\no2>a2>r2;o3;"
    assert content(PROMPT, View("t", "o3", turns(3)), LastTurns(0)) == "t;4;3 0 (nothing);o3;"


def test_choices_are_shown_where_there_are_any() -> None:
    assert content(PROMPT, View("t", "o", admissible=["a", "b"])) == "t;1;o;[a\nb]"
    assert content(PROMPT, View("t", "o", admissible=[])) == "t;1;o;"


def test_a_turn_at_which_nothing_was_done_says_so() -> None:
    assert "o0>(nothing)>r0" in content(PROMPT, View("t", "o", [Turn("o0", "r0", "")]))


def test_the_start_is_shown_once() -> None:
    prompt = TextPrompt("{start}|{past}", "{history}|{observation}", "{observation}>{action}")
    assert content(prompt, View("t", "o0")) == "o0|"
    assert content(prompt, View("t", "o2", turns(2))) == "o0|(as above)>a0\no1>a1|o2"


def test_observations_beyond_the_budget_are_cut_with_a_mark() -> None:
    view = View("a long task", "0123456789", [Turn("abcdefghij", "", "a long action")])
    said = content(replace(PROMPT, longest=4), view)
    assert "01 [... 6 characters left out ...] 89" in said
    assert "ab [... 6 characters left out ...] ij>a long action" in said
    assert "a long task" in said


@pytest.mark.parametrize("name", LONG)
def test_nothing_is_cut_by_default(name: str) -> None:
    assert (
        content(PROMPT, View("t", LONG[name]))
        == f"t;1;{neutralise(replace_surrogates(LONG[name]))};"
    )


def test_every_field_can_be_used() -> None:
    templates = {name: "".join(f"{{{field}}}" for field in known) for name, known in FIELDS.items()}
    view = View("t", "o1", [Turn("o0", "r", "a")], ["b"])
    assert content(TextPrompt(**templates), view) == "t2o0o111(as above)aro1b"


# Templates that are refused.


@pytest.mark.parametrize(
    ("templates", "said"),
    [
        ({"body": "{observation} {goal}"}, "body has unknown fields: goal"),
        ({"body": "{observation} {history}"}, "body has unknown fields: history"),
        ({"body": "{observation} {"}, "a single '{' at character 14"),
        ({"body": "{task}"}, "must show the observation"),
        ({"body": "{start}"}, "must show the observation"),
        ({"body": "{observation}", "past": "{history}"}, "the template past and {past}"),
        ({"body": "{observation}{past}"}, "the template past and {past}"),
        ({"body": "{observation}{past}", "past": "{taken}"}, "past must show {history}"),
        ({"body": "{observation}{choices}", "choices": "-"}, "choices must show {admissible}"),
        ({"body": "{observation}", "turn": "-"}, "turn must show something"),
        ({"body": "{observation}", "turn": "{task}"}, "turn has unknown fields: task"),
        ({"body": "{observation}<|im_end|>"}, "body holds the name of a chat token"),
        ({"body": "{observation}", "longest": 0}, "longest must be at least 1, not 0"),
        ({"body": "{observation}", "tokens": ("a b",)}, "cannot break the chat token 'a b'"),
    ],
)
def test_templates_that_cannot_work_are_refused(templates: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        TextPrompt(**templates)


# Hostile values.


def _view(text: str) -> View:
    return View(text, text, [Turn(text, text, text), Turn(text, text, "")], [text, text])


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_stay_where_they_are_put(text: str) -> None:
    x = neutralise(replace_surrogates(text))
    history = f"{x}>{x or '(nothing)'}>{x}\n{x}>(nothing)>{x}"
    assert content(PROMPT, _view(text)) == f"{x};3;2 2 {history};{x};[{x}\n{x}]"


@pytest.mark.parametrize(("name", "style"), ALL)
def test_no_prompt_holds_a_chat_token_or_half_a_character(name: str, style: str) -> None:
    for view in [view for text in HOSTILE.values() for view in (View(text, text), _view(text))]:
        for message in agent_for(name, style).messages(view):
            assert not any(token in message["content"] for token in CHAT_TOKENS)
            message["content"].encode()


@given(st.lists(hostile_texts("<", "|im_end|>", "/s>", "{task}"), min_size=2, max_size=2))
def test_values_side_by_side_make_up_no_token(values: list[str]) -> None:
    prompt = TextPrompt("{task}{observation}")
    said = content(prompt, View(*values))
    assert not any(token in said for token in CHAT_TOKENS)
    assert said == neutralise(replace_surrogates("".join(values)))
