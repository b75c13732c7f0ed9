"""``Verdict``: whether an answer does what was demonstrated, and why.

    r_func(s, a) = 1[a ∈ M(s)]                                                     (PivotRL, Eq. 6)

A verifier says which actions M(s) holds. It is a function of the candidate and of an answer, it
never raises because of what an answer says, and it gives the same verdict every time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ascribe.pivots.candidates import Candidate


class Why(StrEnum):
    """Every reason that a verifier gives."""

    SAME_TEXT = "same_text"
    """The texts are the same, as far as the verifier looks."""
    OTHER_TEXT = "other_text"
    """The texts differ."""
    CLOSE = "close"
    """The texts are at least as similar as demanded."""
    FAR = "far"
    """The texts are less similar than demanded."""
    SAME_TOOLS = "same_tools"
    """The same tools are called, in the same order."""
    OTHER_TOOLS = "other_tools"
    """Other tools are called, or in another order."""
    SAME_CALLS = "same_calls"
    """The same tools are called with the same arguments."""
    OTHER_ARGUMENTS = "other_arguments"
    """The same tools are called with other arguments."""
    NO_CALL = "no_call"
    """The answer makes no call that can be read."""
    FITS = "fits"
    """The answer fits the schema."""
    MISFIT = "misfit"
    """The answer breaks the schema, or calls a tool that is not there."""
    SAME_COMMAND = "same_command"
    """The commands mean the same."""
    OTHER_COMMAND = "other_command"
    """The commands differ, as far as can be told without running them."""
    SAME_EFFECT = "same_effect"
    """The environment is in the same state afterwards, with the same outcome."""
    OTHER_EFFECT = "other_effect"
    """The environment is in another state, pays otherwise, or did not understand the action."""
    PROGRESS = "progress"
    """The expert has fewer steps to the goal than before."""
    NO_PROGRESS = "no_progress"
    """The expert has as many steps to the goal, or more, or no way any longer."""
    JUDGED_SAME = "judged_same"
    """The judge says that the answer does the same."""
    JUDGED_OTHER = "judged_other"
    """The judge says that it does not, or says neither."""
    ENOUGH = "enough"
    """The weighted shares reach the threshold."""
    TOO_LITTLE = "too_little"
    """The weighted shares do not reach the threshold."""
    NOT_APPLICABLE = "not_applicable"
    """The verifier cannot judge this turn at all: there is no call, no schema or no scene in it."""


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of an answer."""

    accepted: bool | None
    """None: it has nothing to say of this turn, whatever the answer."""
    why: Why
    detail: str = ""
    share: float | None = None
    """How well the answer does, from 0 to 1, where that is more than yes or no."""

    @property
    def reward(self) -> float:
        """1 if the answer is accepted, else 0."""
        return 1.0 if self.accepted else 0.0


Verifier = Callable[[Candidate, str], Verdict]
"""From a candidate and an answer to a verdict."""


def verdict(accepted: bool, yes: Why, no: Why, detail: str = "") -> Verdict:
    """One of two reasons."""
    return Verdict(accepted, yes if accepted else no, detail)


def not_applicable(detail: str) -> Verdict:
    """Nothing to say of this turn."""
    return Verdict(None, Why.NOT_APPLICABLE, detail)
