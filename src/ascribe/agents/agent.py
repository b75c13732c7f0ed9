"""``Agent``: from what happened to a prompt, and from an answer to an action.

Four parts, each replaceable: the prompt (template), the memory (which turns the prompt shows), the
parser (which part of the answer is the action) and the policy for invalid answers. An agent holds
no state: everything it needs is passed in, so one agent serves any number of episodes at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Message = dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One past decision, as the agent may remember it."""

    observation: str
    """What the agent saw before it acted."""
    response: str
    """What it said, whole."""
    action: str
    """What was carried out; empty if nothing was."""


@dataclass(frozen=True)
class View:
    """Everything an agent may look at when it decides."""

    task: str
    observation: str
    turns: Sequence[Turn] = ()
    """All earlier turns of the episode, oldest first."""
    admissible: Sequence[str] | None = None
    attempts: Sequence[str] = ()
    """What was answered before, by this agent or others, if the task is to find out what is wrong
    with it and to answer better (``ascribe.agents.correction``)."""


@dataclass(frozen=True)
class Parsed:
    """What a parser found in an answer."""

    action: str | None
    """The body of the action, or None if there is no well-formed one."""
    thought: str | None = None
    problem: str | None = None
    """What is wrong with the answer, a key of ``ascribe.agents.PROBLEMS``; None if nothing is.

    There may be an action all the same: it is carried out, and the turn counts as invalid.
    """


@dataclass(frozen=True)
class Decision:
    """What is to be done with an answer."""

    action: str | None
    """To be carried out; None to carry out nothing this turn (the observation stays)."""
    valid: bool
    problem: str | None = None
    end: bool = False
    """Whether the episode is to be cut here."""


Memory = Callable[[Sequence[Turn]], Sequence[Turn]]
"""Which turns the prompt shows, given all of them, oldest first. Any function will do."""

Parser = Callable[[str], Parsed]
"""Reads an answer. Never raises, whatever the text."""


@runtime_checkable
class Writer(Protocol):
    """A parser that can write what it reads: with it, scripted policies speak like the model."""

    def render(self, action: str, thought: str | None = None) -> str:
        """An answer that gives this action; ``ValueError`` if there is none."""
        ...


class Prompt(Protocol):
    """Writes what the model reads."""

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:
        """The chat for this decision. ``remembered`` is what the memory left of the turns."""
        ...


class OnInvalid(Protocol):
    """What to do with an answer without a well-formed action."""

    def __call__(self, response: str, parsed: Parsed, view: View, /) -> Decision:
        """The decision."""
        ...


@dataclass(frozen=True)
class Agent:
    """What an agent sees and says."""

    prompt: Prompt
    memory: Memory
    parser: Parser
    on_invalid: OnInvalid

    def messages(self, view: View) -> list[Message]:
        """The chat to be answered."""
        return self.prompt(view, self.memory(view.turns))

    def decide(self, response: str, view: View) -> Decision:
        """What to carry out, given the answer.

        An action outside ``view.admissible`` is carried out all the same, for the environment is
        the judge of it (its ``info["valid"]``). Invalid here is only an answer that the parser
        finds something wrong with.
        """
        parsed = self.parser(response)
        if parsed.action is None:
            return self.on_invalid(response, parsed, view)
        return Decision(parsed.action, valid=parsed.problem is None, problem=parsed.problem)
