"""Policies for answers without an action: what is carried out in its place.

All of them count the turn and mark it invalid. The penalty is not theirs: rollouts write the mark
into the table's ``valid`` column, and recipes take off their ``invalid_penalty``.
"""

from dataclasses import dataclass

from ascribe.agents.agent import Decision, Parsed, View
from ascribe.agents.clean import mend


@dataclass(frozen=True)
class SendText:
    """Send the end of the answer to the environment, which will say what it thinks of it.

    verl-agent sends the last 30 characters.
    """

    longest: int = 30

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ValueError(f"longest must be at least 1, not {self.longest}")

    def __call__(self, response: str, parsed: Parsed, _view: View, /) -> Decision:
        """The end of the answer as the action."""
        return Decision(mend(response[-self.longest :]), valid=False, problem=parsed.problem)


@dataclass(frozen=True)
class Skip:
    """Carry out nothing: the environment is not stepped and the observation stays."""

    def __call__(self, _response: str, parsed: Parsed, _view: View, /) -> Decision:
        """Nothing, this turn."""
        return Decision(None, valid=False, problem=parsed.problem)


@dataclass(frozen=True)
class Substitute:
    """Carry out another action, always the same: for instance ``look``."""

    action: str

    def __call__(self, _response: str, parsed: Parsed, _view: View, /) -> Decision:
        """The other action."""
        return Decision(self.action, valid=False, problem=parsed.problem)


@dataclass(frozen=True)
class EndEpisode:
    """Carry out nothing and cut the episode here."""

    def __call__(self, _response: str, parsed: Parsed, _view: View, /) -> Decision:
        """The end."""
        return Decision(None, valid=False, problem=parsed.problem, end=True)
