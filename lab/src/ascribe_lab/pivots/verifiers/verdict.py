"""``Verdict``: whether a response does what was demonstrated, and why.

    r_func(s, a) = 1[a ∈ M(s)]                                                     (PivotRL, Eq. 6)

A verifier decides which actions M(s) holds. It is a deterministic function of the candidate and a
response, and never raises because of what the response holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ascribe.groups.responses import Call, all_calls, split_thoughts
from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents.parsers import ThinkAction
from ascribe_lab.pivots.candidates import Candidate


@dataclass(frozen=True)
class Verdict:
    """The result of verifying a response."""

    accepted: bool | None
    """None: the verifier does not apply to this turn, whatever the response."""
    reason: str
    """A word, such as ``same_tools`` or ``other_arguments``."""
    detail: str = ""
    share: float | None = None
    """A score from 0 to 1, if the verifier has more than yes or no."""

    @property
    def reward(self) -> float:
        """1 if the response is accepted, else 0."""
        return 1.0 if self.accepted else 0.0


Verifier = Callable[[Candidate, str], Verdict]
"""From a candidate and a response to a verdict."""


def not_applicable(detail: str) -> Verdict:
    """The verdict of a verifier that does not apply to the turn."""
    return Verdict(None, "not_applicable", detail)


# What verifiers look at.


@lru_cache(maxsize=4_096)
def calls_in(response: str) -> tuple[Call, ...] | None:
    """The tool calls of a response; empty if there are none; None if one cannot be read."""
    return all_calls(replace_surrogates(response))


@lru_cache(maxsize=4_096)
def act(response: str) -> str:
    """The body of the response's ``<action>`` tag, else everything but its thought."""
    action = _ACTION(response).action
    if action is not None:
        return action
    _, parts = split_thoughts(replace_surrogates(response))
    return "\n".join(parts).strip()


_ACTION = ThinkAction(longest=1_000_000)
