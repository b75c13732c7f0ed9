"""``Verdict``: whether a response does what was demonstrated, and why.

    r_func(s, a) = 1[a ∈ M(s)]                                                     (PivotRL, Eq. 6)

A verifier decides which actions M(s) holds. It is a deterministic function of the candidate and a
response, and never raises because of what the response holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ascribe.agents.clean import replace_surrogates
from ascribe.agents.parsers import ThinkAction
from ascribe.groups.responses import Call, all_calls, split_thoughts
from ascribe.pivots.candidates import Candidate

REASONS = {
    "same_text": "The texts are the same, as far as the verifier compares them.",
    "other_text": "The texts differ.",
    "close": "The texts are at least as similar as required.",
    "far": "The texts are less similar than required.",
    "same_tools": "The same tools are called, in the same order.",
    "other_tools": "Other tools are called, or in another order.",
    "same_calls": "The same tools are called with the same arguments.",
    "other_arguments": "The same tools are called with other arguments.",
    "no_call": "The response makes no call that can be read.",
    "fits": "The response fits the schema.",
    "misfit": "The response breaks the schema, or calls an unknown tool.",
    "same_command": "The commands mean the same.",
    "other_command": "The commands differ, as far as can be told without running them.",
    "same_effect": "The environment is in the same state afterwards, with the same outcome.",
    "other_effect": "The state or the reward differs, or the environment rejected the action.",
    "progress": "The expert has fewer steps to the goal than before.",
    "no_progress": "The expert has no fewer steps to the goal, or cannot reach it any longer.",
    "judged_same": "The judge says that the response does the same.",
    "judged_other": "The judge says that it does not, or gives no clear reply.",
    "too_long": "The response is longer than the judge reads.",
    "enough": "The weighted shares reach the threshold.",
    "too_little": "The weighted shares do not reach the threshold.",
    "not_applicable": "The verifier does not apply: the turn lacks what it needs, or is too long.",
}
"""Every reason that a verifier gives, and what it means."""


@dataclass(frozen=True)
class Verdict:
    """The result of verifying a response."""

    accepted: bool | None
    """None: the verifier does not apply to this turn, whatever the response."""
    reason: str
    """A key of ``REASONS``."""
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
