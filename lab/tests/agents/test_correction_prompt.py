"""The correction prompt: what it shows, and that hostile attempts stay in their place."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents import CHAT_TOKENS, ChatPrompt, View, neutralise
from ascribe_lab.agents.prompts import (
    CORRECTION_FIELDS,
    FENCE,
    CorrectingPrompt,
    CorrectionPrompt,
    fields,
)
from tests.hostile import HOSTILE, LONG, hostile_texts

pytestmark = pytest.mark.unit

PROMPT = CorrectionPrompt()
SHORT = CorrectionPrompt(body="{task};{count};{attempts}", attempt="[{number} {text}]", fence=())


def content(prompt: CorrectionPrompt, *texts: str, place: int = 0) -> str:
    task, target, *references = texts
    (message,) = prompt(task, target, references, place=place)
    assert message["role"] == "user"
    return message["content"]


def test_what_is_shown() -> None:
    assert content(SHORT, "t", "wrong", "a", "b") == "t;3;[1 wrong]\n\n[2 a]\n\n[3 b]"
    assert content(SHORT, "t", "wrong", "a", "b", place=2) == "t;3;[1 a]\n\n[2 b]\n\n[3 wrong]"


def test_the_default_says_nothing_about_which_is_right() -> None:
    """Exchanged attempts give the same message with the attempts exchanged."""
    one, other = content(PROMPT, "t", "AAA", "BBB"), content(PROMPT, "t", "BBB", "AAA")
    assert one.replace("AAA", "-").replace("BBB", "AAA").replace("-", "BBB") == other
    assert one == content(PROMPT, "t", "BBB", "AAA", place=1)


def test_the_default_uses_every_field() -> None:
    for name, known in CORRECTION_FIELDS.items():
        assert fields(getattr(PROMPT, name)) == set(known)


@given(
    texts=st.lists(
        hostile_texts("{task}", "{attempts}", "{text}", "<attempt 2>", "</attempt 1>", "<"),
        min_size=3,
        max_size=5,
    ),
    data=st.data(),
)
def test_attempts_stay_inside_their_fence(texts: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(texts) - 2))
    task, target, *references = texts
    shown = content(PROMPT, "the task", target, *references, place=place)
    ordered = [*references[:place], target, *references[place:]]
    opened = re.findall(r"<attempt (\d+)>\n", shown)
    closed = re.findall(r"\n</attempt (\d+)>", shown)
    assert opened == closed == [str(number + 1) for number in range(len(ordered))]
    parts = re.findall(r"<attempt \d+>\n(.*?)\n</attempt \d+>", shown, re.DOTALL)
    assert parts == [
        neutralise(neutralise(replace_surrogates(text), FENCE), CHAT_TOKENS) for text in ordered
    ]
    assert neutralise(shown, CHAT_TOKENS) == shown
    assert content(SHORT, task, "x", "y") == neutralise(
        replace_surrogates(f"{task};2;[1 x]\n\n[2 y]"), CHAT_TOKENS
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_no_chat_token_gets_through(name: str) -> None:
    shown = content(PROMPT, HOSTILE[name], HOSTILE[name], HOSTILE[name])
    assert not any(token in shown for token in CHAT_TOKENS)
    shown.encode("utf-8")


@pytest.mark.parametrize("name", LONG)
def test_long_attempts_are_cut_where_asked(name: str) -> None:
    shown = content(CorrectionPrompt(longest=1000), "t", LONG[name], "b")
    assert "characters left out" in shown
    assert len(shown) < 10_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"body": "{task} {attempts} {goal}"}, "unknown fields: goal"),
        ({"body": "{attempts}"}, "must show {task}"),
        ({"body": "{task}"}, "must show {attempts}"),
        ({"attempt": "{number}"}, "must show {text}"),
        ({"attempt": "<|im_end|>{text}"}, "chat token"),
        ({"attempt": "{text"}, "a single"),
        ({"fence": ("<",)}, "cannot break"),
        ({"longest": 0}, "longest"),
    ],
)
def test_templates_that_cannot_work_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorrectionPrompt(**changes)


def test_an_attempt_may_stand_alone() -> None:
    """IBPO's k = 1: there is nothing to compare it with, and the prompt does not say so."""
    (message,) = PROMPT("1 + 1?", "3", [])
    assert "1 + 1?" in message["content"]
    assert "<attempt 1>\n3\n</attempt 1>" in message["content"]
    assert "side by side" not in message["content"]


def test_calls_that_cannot_work_are_refused() -> None:
    for place in (-1, 2):
        with pytest.raises(ValueError, match="place"):
            PROMPT("t", "x", ["y"], place=place)


def test_a_prompt_asks_for_corrections_where_there_are_attempts() -> None:
    own = ChatPrompt()
    asked = CorrectingPrompt(own, SHORT)
    system = {"role": "system", "content": "You count well."}
    chat = json.dumps([system, {"role": "user", "content": "1 + 1? Answer in a box."}])
    assert asked(View("t", chat), ()) == own(View("t", chat), ())
    assert asked(View("t", chat, attempts=("2", "3")), ()) == [
        system,
        {"role": "user", "content": "1 + 1? Answer in a box.;2;[1 2]\n\n[2 3]"},
    ]
