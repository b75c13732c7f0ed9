"""Checking a response against a schema has a limit, whatever schema a trace brings.

Issue 16, point 12.
"""

import json
import time
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs the extra pivots")

from ascribe.pivots import make_verifier
from ascribe.pivots.verifiers import tools
from tests.pivots.made import a_turn, call


def chained(make: Any, levels: int = 18) -> dict[str, Any]:
    """A schema in which every level refers to the next, so that a doubled one doubles the work."""
    references = [{"$ref": f"#/$defs/a{level + 1}"} for level in range(levels)]
    schemas = {f"a{level}": make(next_one) for level, next_one in enumerate(references)}
    return {"$defs": schemas | {f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


DOUBLED = {
    "allOf": lambda one: {"allOf": [one, one]},
    "anyOf": lambda one: {"anyOf": [{"not": one}, one]},
    "oneOf": lambda one: {"oneOf": [one, {"not": one}]},
    "not": lambda one: {"not": {"not": {"allOf": [one, one]}}},
    "if": lambda one: {"if": one, "then": one},
    "two references": lambda one: {**one, "$dynamicRef": one["$ref"]},
    "unevaluated": lambda one: {"allOf": [one, one], "unevaluatedProperties": True},
}


@pytest.fixture(autouse=True)
def less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the limit, so that the tests are fast."""
    monkeypatch.setattr(tools, "MOST_WORK", 50_000, raising=False)


def verdict(schema: Any, value: Any) -> Any:
    return make_verifier({"schema": {"schema": schema}})(a_turn("x"), json.dumps(value))


@pytest.mark.parametrize("name", DOUBLED)
def test_a_schema_that_doubles_the_work_at_every_level_is_refused(name: str) -> None:
    began = time.monotonic()
    found = verdict(chained(DOUBLED[name]), {})
    assert found.accepted is None
    assert "it takes too long or has no end" in found.detail
    assert time.monotonic() - began < 5


def test_the_same_schemas_with_few_levels_are_used() -> None:
    for make in DOUBLED.values():
        assert verdict(chained(make, 3), {}).reason in ("fits", "misfit")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"additionalProperties": {}}] * 200}, {str(n): n for n in range(9_000)}),
        ({"allOf": [{"propertyNames": {}}] * 200}, {str(n): n for n in range(9_000)}),
        ({"allOf": [{"uniqueItems": True}] * 200}, [[n] for n in range(4_000)]),
        ({"anyOf": [{"type": "string"}] * 400}, {"x": "y" * 3_000_000}),
        ({"items": {"enum": list(range(1_900))}}, [1_899] * 9_000),
    ],
    ids=["entries", "names", "unique", "long messages", "enum"],
)
def test_a_response_that_takes_too_long_fits_nothing(schema: Any, value: Any) -> None:
    began = time.monotonic()
    found = verdict(schema, value)
    assert (found.accepted, found.reason) == (False, "misfit")
    assert "takes too long to check" in found.detail
    assert time.monotonic() - began < 5


def test_large_schemas_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 2,000 values"):
        verdict({"enum": list(range(3_000))}, 1)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(a+)+$"},
        {"pattern": "a{99999999999}"},
        {"properties": {"x": {"pattern": "^(a+)+$"}}},
        {"propertyNames": {"pattern": "(("}},
    ],
)
def test_patterns_cost_nothing(schema: Any) -> None:
    assert verdict(schema, {"x": "a" * 5_000 + "b"}).reason == "fits"


def test_the_schema_of_a_traces_tool_is_limited_too() -> None:
    tool = {"name": "search", "parameters": chained(DOUBLED["allOf"])}
    turn = a_turn(call("search"), tools=(tool,))
    assert make_verifier("schema")(turn, call("search")).accepted is None


def test_an_honest_response_of_many_values_is_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    entry = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 0}},
        "required": ["name", "size"],
        "additionalProperties": False,
    }
    value = [{"name": f"file {number}", "size": number} for number in range(3_000)]
    assert verdict({"type": "array", "items": entry}, value).reason == "fits"
