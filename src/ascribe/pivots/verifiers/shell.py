"""The verifier of shell commands. It reads them and never runs them."""

import re
from functools import lru_cache

from ascribe.pivots.calls import act, calls_in
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.shell_words import NotUnderstood, Script, script
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, verdict

ARGUMENTS = ("command", "cmd", "keystrokes", "script")
"""Names under which tools take a command."""

_LINE = re.compile(r"[^\t\n]*\n")
"""Keystrokes that are one line. What is typed after it may go to the program that it started."""

_BLOCK = re.compile(r"```(?:sh|bash|shell)?\n(.*?)\n?```", re.DOTALL)


def shell() -> Verifier:
    """A command that means the same: flags in any order, quoting and white space aside.

    The command is the argument ``command``, ``cmd``, ``keystrokes`` or ``script`` of the only tool
    call, whose other arguments must be the same; else the answer's code block; else the action.
    Other calls, other blocks and more than one of them are compared as they are.
    """

    def verify(candidate: Candidate, answer: str) -> Verdict:
        same = _reading(answer) == _reading(candidate.action)
        return verdict(same, Why.SAME_COMMAND, Why.OTHER_COMMAND)

    return verify


Reading = tuple[object, Script | str]
"""What stands beside the command, and the command: read, or as it is where it cannot be."""


@lru_cache(maxsize=4_096)
def _reading(answer: str) -> Reading:
    calls = calls_in(answer)
    if calls == ():
        return None, _in_words(act(answer))
    if calls is not None and len(calls) == 1:
        values = calls[0].values
        for name in ARGUMENTS:
            text = values.get(name)
            if isinstance(text, str):
                others = {key: value for key, value in values.items() if key != name}
                is_line = name != "keystrokes" or _LINE.fullmatch(text)
                beside = (calls[0].name, name, repr(sorted(others.items())))
                return beside, _read(text) if is_line else text
    return None, act(answer)


def _in_words(said: str) -> Script | str:
    if "```" not in said:
        return _read(said)
    block = _BLOCK.search(said) if said.count("```") == 2 else None
    return _read(block[1]) if block else said


def _read(text: str) -> Script | str:
    try:
        return script(text)
    except NotUnderstood:
        return text
