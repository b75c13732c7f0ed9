"""Verifiers of tool calls: the same tools, the same calls."""

from ascribe_lab.pivots.candidates import Candidate
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier, calls_in, not_applicable


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
        return not_applicable("the demonstrated turn calls no tool")
    if not calls:
        return Verdict(False, "no_call")
    if [call.name for call in calls] != [call.name for call in demonstrated]:
        return Verdict(False, "other_tools")
    if not arguments:
        return Verdict(True, "same_tools")
    if calls == demonstrated:
        return Verdict(True, "same_calls")
    return Verdict(False, "other_arguments")
