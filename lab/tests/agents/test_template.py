"""Fields are filled in one pass, and templates that cannot work are refused when they are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.agents.prompts import check_template, fields, fill
from tests.hostile import hostile_texts


def test_values_are_put_in_as_they_are() -> None:
    values = {"task": "{observation} {{x}} %s $x \\1", "observation": "{task}"}
    assert fill("{task}|{observation}", values) == "{observation} {{x}} %s $x \\1|{task}"


@given(st.lists(hostile_texts("{a}", "{b}", "{c}", "{", "}"), min_size=3, max_size=3))
def test_substitution_is_single_pass(values: list[str]) -> None:
    a, b, c = values
    filled = fill("<{a}>{b}{{a}}{c}{a}", {"a": a, "b": b, "c": c})
    assert filled == f"<{a}>{b}{{a}}{c}{a}"


@given(st.text("ab{}%$\\ ", max_size=20))
def test_doubled_braces_are_braces(text: str) -> None:
    template = text.replace("{", "{{").replace("}", "}}")
    assert fill(template, {}) == text
    assert fields(template) == frozenset()


@pytest.mark.parametrize(
    "template", ["{", "}", "a{b", "{}", "{a b}", "{a!r}", "{a:>3}", "{a.b}", "{{}", "{{{a}}"]
)
def test_a_stray_brace_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="a single"):
        fields(template)


def test_an_unknown_field_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="body has unknown fields: goal; it may use: task, step"):
        check_template("body", "{goal} {task}", ["task", "step"])
