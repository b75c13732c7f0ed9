"""The verifier of shell commands. It reads them and never runs them."""

import re
from functools import lru_cache

from ascribe.pivots.calls import act, calls_in
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.verifiers.shell_words import NotUnderstood, Script, script
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, verdict

ARGUMENTS = ("command", "cmd", "keystrokes", "script")
"""Names under which tools take a command."""

_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)


def shell() -> Verifier:
    """A command that means the same: flags in any order, quoting and white space aside.

    The command is the argument ``command``, ``cmd``, ``keystrokes`` or ``script`` of the only tool
    call, whose other arguments must be the same; else the answer's code block; else the action.
    """

    def verify(candidate: Candidate, answer: str) -> Verdict:
        same = _reading(answer) == _reading(candidate.action)
        return verdict(same, Why.SAME_COMMAND, Why.OTHER_COMMAND)

    return verify


Reading = tuple[object, Script | str]
"""What stands beside the command, and the command: read, or as it is where it cannot be."""


@lru_cache(maxsize=4_096)
def _reading(answer: str) -> Reading:
    beside, text = _command(answer)
    try:
        return beside, script(text)
    except NotUnderstood:
        return beside, text.strip()


def _command(answer: str) -> tuple[object, str]:
    calls = calls_in(answer)
    if calls is not None and len(calls) == 1:
        values = calls[0].values
        for name in ARGUMENTS:
            if isinstance(values.get(name), str):
                others = {key: value for key, value in values.items() if key != name}
                return (calls[0].name, name, repr(sorted(others.items()))), values[name]
    said = act(answer)
    block = _FENCE.search(said)
    return None, block[1] if block else said
