"""Verifiers: what each accepts, and that no answer breaks one."""

import json
import string
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups.responses import Call
from ascribe.steps.strict_json import MAX_DEPTH, loads
from ascribe_lab.envs import MissingExtraError
from ascribe_lab.pivots import VERIFIERS, Candidate, make_verifier
from ascribe_lab.pivots.chat import write_call
from ascribe_lab.pivots.verifiers import COMPOSERS, combine, read_spec
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier, act, calls_in
from lab.tests.pivots.made import SEARCH, a_turn, call
from tests.hostile import HOSTILE, LONG, hostile_texts

needs_edit = pytest.mark.skipif(
    find_spec("rapidfuzz") is None, reason="needs the extra pivots (rapidfuzz)"
)

PLAIN = ["exact", "normalised", "tool_name", "tool_call", "shell"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(max_size=6), json_values, max_size=4)
names = st.text(string.ascii_lowercase, min_size=1, max_size=6)


def shuffled(value: Any, turn: int) -> Any:
    """The same JSON value with its keys in another order."""
    if isinstance(value, dict):
        pairs = [(name, shuffled(entry, turn)) for name, entry in value.items()]
        return dict(pairs[turn % max(1, len(pairs)) :] + pairs[: turn % max(1, len(pairs))])
    return [shuffled(entry, turn) for entry in value] if isinstance(value, list) else value


# All of them.


@pytest.mark.parametrize("name", PLAIN)
@given(action=hostile_texts(), answer=hostile_texts())
def test_a_verdict_whatever_the_texts_and_the_same_every_time(
    name: str, action: str, answer: str
) -> None:
    verify, turn = make_verifier(name), a_turn(action.encode("utf-8", "replace").decode())
    found = verify(turn, answer)
    assert found == verify(turn, answer)
    assert found.reward == float(bool(found.accepted))
    assert (found.accepted is None) == (found.reason == "not_applicable")


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_texts_take_no_long_time(name: str, text: str) -> None:
    make_verifier(name)(a_turn("ls -l"), text)
    make_verifier(name)(a_turn(call("run", command="ls -l")), text)


@pytest.mark.parametrize("name", PLAIN)
@given(words=st.text(min_size=1, max_size=20), name_of=names, given_arguments=arguments)
def test_the_demonstrated_action_is_accepted_wherever_the_verifier_applies(
    name: str, words: str, name_of: str, given_arguments: dict[str, Any]
) -> None:
    for action in (words, write_call(name_of, given_arguments), f"{words}\n{call(name_of)}"):
        assert make_verifier(name)(a_turn(action), action).accepted in (True, None)


def test_every_verifier_has_a_name_and_says_what_it_does() -> None:
    for make in VERIFIERS.values():
        assert make.__doc__


# Texts.


def test_exact_is_the_strict_reward() -> None:
    verify = make_verifier("exact")
    assert verify(a_turn("go north"), "go north") == Verdict(True, "same_text")
    assert verify(a_turn("go north"), "go north ") == Verdict(False, "other_text")


@pytest.mark.parametrize(
    "answer",
    [
        "<think>hm</think><action>Go   North</action>",
        "So: <action>go north</action>",
        "GO NORTH",
        "\tgo\nnorth ",
        "ｇｏ north",
    ],
)
def test_normalised_looks_at_the_words_of_the_action(answer: str) -> None:
    assert make_verifier("normalised")(a_turn("<action>go north</action>"), answer).accepted


@pytest.mark.parametrize("answer", ["go south", "", "<think>go north</think>", "go northwest"])
def test_normalised_refuses_other_words(answer: str) -> None:
    assert make_verifier("normalised")(a_turn("go north"), answer).accepted is False


@needs_edit
@given(st.text(string.ascii_lowercase, min_size=10, max_size=30), st.data())
def test_edit_accepts_as_many_changes_as_the_threshold_allows(text: str, data: Any) -> None:
    changes = data.draw(st.integers(0, len(text)))
    other = "0" * changes + text[changes:]
    found = make_verifier({"edit": {"threshold": 0.8}})(a_turn(text), other)
    assert found.share == pytest.approx(1 - changes / len(text))
    assert found.accepted == (found.share >= 0.8)


@needs_edit
def test_edit_of_very_long_texts_wants_the_same() -> None:
    verify, text = make_verifier("edit"), "word " * 10_000
    assert verify(a_turn(text), text).accepted
    assert not verify(a_turn(text), text + "x").accepted


# Tool calls.


@given(names, arguments, st.integers(0, 3))
def test_the_order_of_keys_and_the_words_beside_a_call_do_not_count(
    name: str, given_arguments: dict[str, Any], turn: int
) -> None:
    demonstrated = a_turn(write_call(name, given_arguments))
    told = json.dumps({"arguments": shuffled(given_arguments, turn), "name": name}, indent=2)
    told = told.replace("<", "\\u003c")
    answer = f"<think>I will.</think>Here:\n<tool_call>{told}</tool_call>"
    assert make_verifier("tool_call")(demonstrated, answer).reason == "same_calls"
    assert make_verifier("tool_name")(demonstrated, answer).reason == "same_tools"


@given(names, arguments, arguments)
def test_other_arguments_are_refused_by_the_call_and_not_by_the_name(
    name: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = make_verifier("tool_call")(a_turn(write_call(name, one)), write_call(name, other))
    assert same.accepted == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))
    assert make_verifier("tool_name")(
        a_turn(write_call(name, one)), write_call(name, other)
    ).accepted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("No.", "no_call"),
        ("<tool_call>{</tool_call>", "no_call"),
        ("<tool_call>" + call("search", query="x"), "no_call"),
        (call("search", query="x") + '<tool_call>{"name": "rm"', "no_call"),
        (call("search", query="x") + "<TOOL_CALL >", "no_call"),
        ("<think><tool_call></think>" + call("search", query="x"), "same_calls"),
        ('<tool_call>\n{"name": "search"', "no_call"),
        (call("find", query="x"), "other_tools"),
        (call("search", query="x") * 2, "other_tools"),
        (call("search", query="y"), "other_arguments"),
        ('{"name": "search", "arguments": {"query": "x"}}', "same_calls"),
        ('{"name": "search", "parameters": {"query": "x"}}', "same_calls"),
        ('{"name": "search", "parameters": {"query": "y"}}', "other_arguments"),
        ('{"name": "search"}', "other_arguments"),
        ('{"name": "search", "query": "x"}', "no_call"),
        (
            '{"name": "search", "arguments": {"query": "x"}, "parameters": {}}',
            "no_call",
        ),
        ('{"function": {"name": "search"}, "arguments": {"query": "x"}}', "no_call"),
        (
            json.dumps(
                {"tool_calls": [{"function": {"name": "search", "arguments": '{"query":"x"}'}}]}
            ),
            "same_calls",
        ),
        (
            '<tool_call>{"name": "search", "arguments": {"query": "x", "query": "x"}}</tool_call>',
            "no_call",
        ),
    ],
)
def test_each_way_to_call_otherwise_has_its_reason(answer: str, why: str) -> None:
    assert make_verifier("tool_call")(a_turn(call("search", query="x")), answer).reason == why


@pytest.mark.parametrize("told", ['{"name": "look"}', '{"type": "function", "name": "look"}'])
def test_a_call_of_a_name_alone_has_no_arguments(told: str) -> None:
    assert calls_in(f"<tool_call>{told}</tool_call>") == calls_in(told) == (Call("look", "{}"),)
    assert make_verifier("tool_call")(a_turn(write_call("look", {})), told).accepted


def test_json_that_calls_nothing_is_no_call() -> None:
    alice = '{"name": "Alice", "age": %d}'
    assert calls_in(alice % 3) == ()
    assert calls_in(f"<tool_call>{alice % 3}</tool_call>") is None
    assert make_verifier("tool_call")(a_turn(alice % 3), alice % 99).accepted is None


def test_numbers_are_numbers() -> None:
    turn = a_turn(call("get", count=2))
    assert make_verifier("tool_call")(turn, call("get", count=2.0)).accepted
    assert not make_verifier("tool_call")(turn, call("get", count="2")).accepted
    assert not make_verifier("tool_call")(a_turn(call("get", on=True)), call("get", on=1)).accepted


@pytest.mark.parametrize("name", ["tool_name", "tool_call"])
def test_turns_without_a_call_are_not_for_them(name: str) -> None:
    found = make_verifier(name)(a_turn("In Portugal."), call("search", query="x"))
    assert (found.accepted, found.reason) == (None, "not_applicable")


def test_calls_are_read_as_they_are_written() -> None:
    answer = write_call("a", {"text": "</tool_call><tool_call>"}) + write_call("b", {})
    assert calls_in(answer) == (
        Call("a", '{"text":"</tool_call><tool_call>"}'),
        Call("b", "{}"),
    )
    assert calls_in("just words") == ()
    assert calls_in("<think>" + call("a") + "</think>no") == ()
    assert act("<think>x</think> look ") == "look"


# Deep and large answers.


@pytest.mark.parametrize("depth", [200, 500, 600, 900, 100_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
@pytest.mark.parametrize("name", PLAIN)
def test_deep_answers_are_refused(name: str, brackets: str, depth: int) -> None:
    left, right = ("[", "]") if brackets == "[]" else ('{"a":', "}")
    deep = '{"a":' + left * depth + brackets + right * depth + "}"
    turn = a_turn(call("search", query="x"), tools=(SEARCH,))
    for value in (deep, json.dumps(deep)):
        told = f'{{"name": "search", "arguments": {value}}}'
        for answer in (told, f"<tool_call>{told}</tool_call>"):
            assert make_verifier(name)(turn, answer).accepted is False


def test_json_has_a_depth_and_finite_numbers() -> None:
    assert loads("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)
    assert loads("[1e308, -1e308, 1e-400, %s]" % ("9" * 400))
    for text in ("[" * MAX_DEPTH + "[1]" + "]" * MAX_DEPTH, "1e400", "[-1e400]", '{"a": 1E+999}'):
        with pytest.raises(ValueError, match=r"too (deeply|large)"):
            loads(text)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("ascribe_lab.pivots.verifiers.text.import_module", nothing)
    with pytest.raises(MissingExtraError, match=r"\[pivots\]"):
        make_verifier("edit")


# Put together.

YES, NO, NOTHING = (
    Verdict(True, "same_text"),
    Verdict(False, "other_text"),
    Verdict(None, "not_applicable"),
)
verdicts = st.sampled_from([YES, NO, NOTHING])


def says(verdict: Verdict) -> Verifier:
    return lambda _candidate, _answer: verdict


@given(st.lists(verdicts, min_size=1, max_size=5))
def test_parts_that_do_not_apply_take_no_part(found: list[Verdict]) -> None:
    parts = [says(one) for one in found]
    said = [one.accepted for one in found if one.accepted is not None]
    turn: Candidate = a_turn("x")

    def accepted(form: str) -> bool | None:
        return combine(parts, COMPOSERS[form])(turn, "y").accepted

    assert accepted("any") == (any(said) if said else None)
    assert accepted("all") == (all(said) if said else None)
    assert accepted("first") == (said[0] if said else None)


def test_parts_after_the_answer_is_known_are_not_asked() -> None:
    def costly(_candidate: Candidate, _answer: str) -> Verdict:
        raise AssertionError("asked")

    for form, verdict in (("any", YES), ("all", NO), ("first", NO)):
        assert combine([says(verdict), costly], COMPOSERS[form])(a_turn("x"), "y") == verdict


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("exactly", "no verifier 'exactly'; there are: exact, normalised"),
        ({}, "a name, or an object with one key"),
        ({"exact": {}, "shell": {}}, "one key"),
        ({"exact": {"threshold": 1}}, "does not take these options"),
        ({"any": "exact"}, "takes a list"),
        ({"any": []}, "at least one"),
        ({"exact": []}, "are an object"),
    ],
)
def test_specs_that_describe_nothing_are_refused(spec: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_verifier(spec)


def test_specs_of_the_command_line() -> None:
    assert read_spec(" exact ") == "exact"
    assert read_spec('{"any": ["exact"]}') == {"any": ["exact"]}
    with pytest.raises(ValueError, match="not JSON"):
        read_spec('{"any": ')


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_compositions_stand_hostile_answers(text: str) -> None:
    spec = {"first": ["tool_call", {"any": ["exact", "shell", "normalised"]}]}
    make_verifier(spec)(a_turn("go"), text)
