"""Verifiers of tool calls: the same tools, the same calls, calls that fit their schema."""

import json
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from ascribe.envs.protocol import MissingExtraError
from ascribe.groups.responses import Call, equal_numbers
from ascribe.pivots.calls import act, calls_in
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, not_applicable, verdict
from ascribe.steps.strict_json import canonical, levels, loads

NO_CALL = "the demonstrated turn calls no tool"

MOST_VALUES = 10_000
"""Values in what is held against a schema; some rules take time that grows with their square."""


def tool_name() -> Verifier:
    """The same tools in the same order, whatever the arguments (PivotRL's choice for SWE-Bench)."""

    def verify(candidate: Candidate, answer: str) -> Verdict:
        wanted, made = calls_in(candidate.action), calls_in(answer)
        if not wanted:
            return not_applicable(NO_CALL)
        if not made:
            return Verdict(False, Why.NO_CALL)
        same = [call.name for call in made] == [call.name for call in wanted]
        return verdict(same, Why.SAME_TOOLS, Why.OTHER_TOOLS)

    return verify


def tool_call() -> Verifier:
    """The same tools in the same order with the same arguments.

    Arguments are compared as JSON values: the order of keys and the white space do not count, and
    neither does what is said beside the calls.
    """

    def verify(candidate: Candidate, answer: str) -> Verdict:
        wanted, made = calls_in(candidate.action), calls_in(answer)
        if not wanted:
            return not_applicable(NO_CALL)
        if not made:
            return Verdict(False, Why.NO_CALL)
        if made == wanted:
            return Verdict(True, Why.SAME_CALLS)
        same = [call.name for call in made] == [call.name for call in wanted]
        return Verdict(False, Why.OTHER_ARGUMENTS if same else Why.OTHER_TOOLS)

    return verify


def schema(schema: dict[str, Any] | None = None) -> Verifier:
    """A well-formed answer: calls whose arguments fit the tool's schema, or JSON that fits one.

    It says nothing about doing the same; put it beside another verifier with ``all``. Patterns of a
    schema are not checked: some take for ever on some texts. No schema is fetched from anywhere. An
    answer of more than ``MOST_VALUES`` values fits none.

    Args:
        schema: the answer as a whole must be JSON that fits this. None: its calls must fit the
            tools of the trace.
    """
    _jsonschema()
    given = None if schema is None else canonical(schema)
    if given is not None:
        _validator(given)

    def verify(candidate: Candidate, answer: str) -> Verdict:
        if given is not None:
            return _fits_text(given, answer)
        if not candidate.tools:
            return not_applicable("the trace describes no tools")
        if not calls_in(candidate.action):
            return not_applicable(NO_CALL)
        return _fits_tools(candidate.tools, answer)

    return verify


def _fits_text(given: str, answer: str) -> Verdict:
    try:
        value = loads(act(answer))
    except ValueError as error:
        return Verdict(False, Why.MISFIT, f"the answer is not strict JSON: {str(error)[:100]}")
    return _fits(given, value)


def _fits_tools(tools: tuple[str, ...], answer: str) -> Verdict:
    try:
        known = _parameters(tools)
    except ValueError as broken:
        return not_applicable(f"the tools will not do: {str(broken)[:200]}")
    made = calls_in(answer)
    if not made:
        return Verdict(False, Why.NO_CALL)
    for call in made:
        if call.name not in known:
            return Verdict(False, Why.MISFIT, f"there is no tool {call.name[:60]}")
        found = _fits_call(known[call.name], call)
        if not found.accepted:
            return found
    return Verdict(True, Why.FITS)


def _fits_call(given: str, call: Call) -> Verdict:
    return _fits(given, call.values)


def _fits(given: str, value: Any) -> Verdict:
    if sum(map(len, levels(value))) > MOST_VALUES:
        return Verdict(False, Why.MISFIT, f"it holds more than {MOST_VALUES:,} values")
    try:
        error = next(iter(_validator(given).iter_errors(value)), None)
        wrong = None if error is None else str(error.message)
    except OverflowError:
        wrong = "a number is too large"
    except RecursionError:
        # The answer is to blame, unless an empty one is too much as well.
        if value == {} or _fits(given, {}).accepted is None:
            return not_applicable("the schema will not do: it leads back to itself")
        wrong = "it is nested too deeply"
    except ValueError as broken:
        return not_applicable(f"the schema will not do: {str(broken)[:200]}")
    # A reference that leads nowhere shows only when it is followed.
    except Exception as broken:
        if type(broken).__module__.partition(".")[0] not in ("referencing", "jsonschema"):
            raise
        return not_applicable(f"the schema will not do: {type(broken).__name__}")
    return Verdict(True, Why.FITS) if wrong is None else Verdict(False, Why.MISFIT, wrong[:200])


@lru_cache(maxsize=1024)
def _parameters(tools: tuple[str, ...]) -> dict[str, str]:
    functions = [loads(tool) for tool in tools]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in functions):
        raise ValueError("one has no name")
    return {one["name"]: canonical(one.get("parameters", {})) for one in functions}


@lru_cache(maxsize=1024)
def _validator(given: str) -> Any:
    """A validator that checks no patterns, fetches nothing, and compares no two items by hand.

    Raises:
        ValueError: for what is no schema, or one that cannot do without patterns.
    """
    jsonschema = _jsonschema()
    if '"patternProperties"' in given:
        raise ValueError("it names properties by patterns, which are not checked")
    value = json.loads(given)
    own = {"pattern": None, "uniqueItems": _unique_items}
    plain = jsonschema.validators.extend(jsonschema.Draft202012Validator, own)
    try:
        plain.check_schema(value)
    except jsonschema.SchemaError as error:
        raise ValueError(str(error.message)[:200]) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return plain(value, registry=import_module("referencing").Registry())


def _unique_items(validator: Any, wanted: bool, value: Any, _schema: Any) -> Iterator[Any]:
    """The rule of this name in linear time; the package compares every two items."""
    if wanted and validator.is_type(value, "array"):
        texts = {canonical(equal_numbers(item)) for item in value}
        if len(texts) < len(value):
            yield _jsonschema().ValidationError("an item is there twice")


def _jsonschema() -> Any:
    try:
        return import_module("jsonschema")
    except ImportError as error:
        raise MissingExtraError("jsonschema", "pivots") from error
