"""Strict JSON: what is refused in short texts is refused in long ones, which are read faster."""

import json
from typing import Any

import pytest

from ascribe.steps.strict_json import MAX_DEPTH, DuplicateKeyError, loads

LONG = [{"role": "user", "content": "x" * 50, "n": n / 2} for n in range(200)]


def text_with(part: str) -> str:
    """A long text with a part somewhere inside."""
    return json.dumps(LONG)[:-1] + f", {part}]"


@pytest.mark.parametrize(
    "part",
    [
        '{"a": 1, "a": 2}',
        '{"a" : 1, "a" :2}',
        '{"a"\n: 1, "a": 2}',
        '{"a\\\\": 1, "b": {"c": 1, "c": 2}}',
        '{"a\\"": 1, "a\\"": 2}',
        '{"a": ": b", "c": {"d": 1, "d": 1}}',
        '{"a": "{\\"b\\": 1}", "a": 2}',
    ],
)
def test_a_key_that_is_given_twice(part: str) -> None:
    with pytest.raises(DuplicateKeyError, match="is given twice"):
        loads(text_with(part))
    with pytest.raises(DuplicateKeyError, match="is given twice"):
        loads(part)


@pytest.mark.parametrize(
    "value",
    [
        {"": {"": ":"}},
        {":": ':"', "b": '":'},
        {"a\\": '\\":', "b": "\\"},
        {"a": json.dumps({"b": json.dumps({"c": ": d"})})},
        {"a": [[[]]], "b": {}, "c": [{}]},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("colon", [":", ": ", " : "])
def test_long_texts_are_read_as_they_are(value: Any, indent: int | None, colon: str) -> None:
    text = json.dumps([*LONG, value], indent=indent, separators=(",", colon))
    assert loads(text) == loads(text.encode()) == [*LONG, value]


@pytest.mark.parametrize(
    "part", ["NaN", "-Infinity", "1e999", "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH]
)
def test_what_is_no_strict_json(part: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|too large|too deeply"):
        loads(text_with(part))


def test_the_deepest_value_that_is_read() -> None:
    depth = MAX_DEPTH - 1
    assert loads(text_with("[" * depth + "1" + "]" * depth))
