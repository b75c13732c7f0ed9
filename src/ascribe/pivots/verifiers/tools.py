"""Verifiers of tool calls: the same tools, the same calls, calls that fit their schema."""

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from ascribe.envs.protocol import MissingExtraError
from ascribe.groups.responses import equal_numbers
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, act, calls_in, not_applicable
from ascribe.steps.strict_json import canonical, levels, loads

NO_CALL = "the demonstrated turn calls no tool"

MOST_VALUES = 10_000
"""Values of a response that is checked against a schema."""

MOST_IN_SCHEMA = 2_000
"""Values of a schema, which takes about a millisecond for each."""

MOST_WORK = 500_000
"""Work that one response may take, in units of about two microseconds. References in a schema can
double the work at every level."""

REFERENCES = frozenset({"$ref", "$dynamicRef"})
OF_ENTRIES = frozenset(
    {"items", "prefixItems", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Rules that apply a schema to every entry of a list or object."""
OF_WHOLE_VALUES = frozenset({"const", "enum", "uniqueItems"})
"""Rules that compare whole values."""


def tool_name() -> Verifier:
    """The same tools in the same order, whatever the arguments (PivotRL's choice for SWE-Bench)."""
    return lambda candidate, response: _compare(candidate, response, arguments=False)


def tool_call() -> Verifier:
    """The same tools in the same order with the same arguments.

    Arguments are compared as JSON values: the order of keys and white space do not count, and
    neither does the text beside the calls.
    """
    return lambda candidate, response: _compare(candidate, response, arguments=True)


def _compare(candidate: Candidate, response: str, *, arguments: bool) -> Verdict:
    demonstrated, calls = calls_in(candidate.action), calls_in(response)
    if not demonstrated:
        return not_applicable(NO_CALL)
    if not calls:
        return Verdict(False, "no_call")
    if [call.name for call in calls] != [call.name for call in demonstrated]:
        return Verdict(False, "other_tools")
    if not arguments:
        return Verdict(True, "same_tools")
    if calls == demonstrated:
        return Verdict(True, "same_calls")
    return Verdict(False, "other_arguments")


def schema(schema: dict[str, Any] | None = None) -> Verifier:
    """A well-formed response: calls whose arguments fit the tool's schema, or JSON that fits one.

    It does not compare with the demonstration; combine it with another verifier by ``all``.
    Patterns of a schema are not checked: some take exponential time on some texts. No schema is
    fetched from anywhere. A response of more than ``MOST_VALUES`` values fits none, and neither
    does one that takes more than ``MOST_WORK``.

    Args:
        schema: the response as a whole must be JSON that fits this. None: its calls must fit the
            tools of the trace.
    """
    _jsonschema()
    text = None if schema is None else canonical(schema)
    if text is not None:
        _validator(text)

    def verify(candidate: Candidate, response: str) -> Verdict:
        if text is not None:
            try:
                value = loads(act(response))
            except ValueError as error:
                return _misfit(f"the response is not strict JSON: {str(error)[:100]}")
            return _fits(text, value)
        if not candidate.tools:
            return not_applicable("the trace describes no tools")
        if not calls_in(candidate.action):
            return not_applicable(NO_CALL)
        return _fits_tools(candidate.tools, response)

    return verify


def _fits_tools(tools: tuple[str, ...], response: str) -> Verdict:
    try:
        schemas = _parameters(tools)
    except ValueError as error:
        return not_applicable(f"the tools cannot be used: {str(error)[:200]}")
    calls = calls_in(response)
    if not calls:
        return Verdict(False, "no_call")
    for call in calls:
        if call.name not in schemas:
            return _misfit(f"there is no tool {call.name[:60]}")
        verdict = _fits(schemas[call.name], call.values)
        if not verdict.accepted:
            return verdict
    return Verdict(True, "fits")


def _fits(schema: str, value: Any) -> Verdict:
    if _count(value) > MOST_VALUES:
        return _misfit(f"it holds more than {MOST_VALUES:,} values")
    try:
        validator, work = _validator(schema)
        work.left = MOST_WORK
        error = next(iter(validator.iter_errors(value)), None)
        message = "" if error is None else str(error.message)[:200] or "it does not fit"
    except OverflowError:
        message = "a number is too large"
    except (RecursionError, TooMuchWorkError):
        # The response is to blame, unless an empty one is too much as well.
        if value == {} or _fits(schema, {}).accepted is None:
            return not_applicable("the schema cannot be used: it takes too long or has no end")
        message = "it takes too long to check, or is nested too deeply"
    except ValueError as invalid:
        return not_applicable(f"the schema cannot be used: {str(invalid)[:200]}")
    # A reference that cannot be resolved shows only when it is followed.
    except Exception as invalid:
        if type(invalid).__module__.partition(".")[0] not in ("referencing", "jsonschema"):
            raise
        return not_applicable(f"the schema cannot be used: {type(invalid).__name__}")
    return _misfit(message) if message else Verdict(True, "fits")


def _misfit(detail: str) -> Verdict:
    return Verdict(False, "misfit", detail)


@lru_cache(maxsize=1024)
def _parameters(tools: tuple[str, ...]) -> dict[str, str]:
    functions = [loads(tool) for tool in tools]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in functions):
        raise ValueError("one has no name")
    return {one["name"]: canonical(one.get("parameters", {})) for one in functions}


class TooMuchWorkError(RuntimeError):
    """Checking a value against a schema takes too long."""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> tuple[Any, "_Work"]:
    """A validator that checks no patterns and fetches nothing, and what counts its work.

    Raises:
        ValueError: for an invalid schema, a large one, or one that depends on patterns.
    """
    jsonschema = _jsonschema()
    if '"patternProperties"' in schema:
        raise ValueError("it names properties by patterns, which are not checked")
    value = loads(schema)
    if _count(value) > MOST_IN_SCHEMA:
        raise ValueError(f"it holds more than {MOST_IN_SCHEMA:,} values")
    base = jsonschema.Draft202012Validator
    rules = base.VALIDATORS | {"uniqueItems": _unique_items, "pattern": lambda *_: ()}
    work = _Work()
    kind = jsonschema.validators.extend(
        base, {name: work.counted(name, rule) for name, rule in rules.items()}
    )
    try:
        base.check_schema(value, format_checker=None)
    except jsonschema.SchemaError as error:
        raise ValueError(str(error.message)[:200]) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return kind(value, registry=import_module("referencing").Registry()), work


class _Work:
    """Counts what the rules of a validator do; raises if it is too much."""

    left = MOST_WORK

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise TooMuchWorkError

    def counted(self, name: str, rule: Any) -> Any:
        def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self.spend(_cost(name, value, instance))
            for error in rule(validator, value, instance, schema) or ():
                self.spend(len(error.message) // 100)
                yield error

        return apply


def _cost(name: str, value: Any, instance: Any) -> int:
    """The work of applying one rule."""
    if name in REFERENCES:
        return 20
    if name in OF_WHOLE_VALUES:
        return 5 + 3 * (_count(value) + _count(instance))
    entries = instance if name in OF_ENTRIES else ()
    lengths = [len(one) if isinstance(one, dict | list) else 0 for one in (value, entries)]
    return 5 + lengths[0] + 10 * lengths[1]


def _count(value: Any) -> int:
    """How many values there are in a value, itself included."""
    return sum(map(len, levels(value)))


def _unique_items(validator: Any, unique: bool, value: Any, _schema: Any) -> Iterator[Any]:
    if unique and validator.is_type(value, "array"):
        texts = {canonical(equal_numbers(item)) for item in value}
        if len(texts) < len(value):
            yield _jsonschema().ValidationError("an item is there twice")


def _jsonschema() -> Any:
    try:
        return import_module("jsonschema")
    except ImportError as error:
        raise MissingExtraError("jsonschema", "pivots") from error
