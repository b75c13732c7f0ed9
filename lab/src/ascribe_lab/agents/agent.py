"""``Agent``: from the past of an episode to a prompt, and from a response to an action.

An agent has four parts, each replaceable: the prompt (template), the memory (which turns the prompt
shows), the parser (which part of the response is the action) and the policy for invalid responses.
It holds no state, so one agent serves any number of episodes at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates

Message = dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One past decision, as the agent may remember it."""

    observation: str
    """What the agent saw before it acted."""
    response: str
    """The whole response."""
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
    """Earlier responses to be corrected, if that is the task (``CorrectionPrompt``)."""


@dataclass(frozen=True)
class Parsed:
    """The result of parsing a response."""

    action: str | None
    """The body of the action, or None if there is no well-formed one."""
    thought: str | None = None
    problem: str | None = None
    """What is wrong with the response, a key of ``ascribe_lab.agents.PROBLEMS``, or None.

    There may be an action all the same: it is carried out, and the turn counts as invalid.
    """
    choice: int | None = None
    """The place of the action in the list of admissible ones, if the response names it so."""


@dataclass(frozen=True)
class AgentDecision:
    """What to do with a response."""

    action: str | None
    """To be carried out; None to carry out nothing this turn (the observation stays)."""
    valid: bool
    problem: str | None = None


Memory = Callable[[Sequence[Turn]], Sequence[Turn]]
"""From all turns, oldest first, to those that the prompt shows. It may also rewrite turns, for
instance put a summary in place of an observation."""

Parser = Callable[[str], Parsed]
"""Parses a response. Never raises, whatever the text."""


Prompt = Callable[[View, Sequence[Turn]], list[Message]]
"""Writes what the model reads: the chat for this decision, given the turns that the memory kept."""

OnInvalid = Callable[[str, Parsed, View], AgentDecision]
"""What to do with a response without a well-formed action."""


@dataclass(frozen=True)
class Agent:
    """Prompt, memory, parser and the policy for invalid responses."""

    prompt: Prompt
    memory: Memory
    parser: Parser
    on_invalid: OnInvalid

    @property
    def render(self) -> Callable[[str], str]:
        """From an action to a response that gives it, for scripted policies.

        The parser's own ``render``; for a parser without one the action is the response.
        """
        render: Callable[[str], str] = getattr(self.parser, "render", str)
        return render

    def messages(self, view: View) -> list[Message]:
        """The chat that the model responds to."""
        return self.prompt(view, self.memory(view.turns))

    def decide(self, response: str, view: View) -> AgentDecision:
        """What to carry out, given the response.

        An action outside ``view.admissible`` is carried out all the same: the environment judges it
        (``info["valid"]``). Only a response that the parser finds fault with is invalid here.
        """
        parsed = self.parser(response)
        if parsed.choice is not None:
            listed = view.admissible or ()
            if parsed.choice < len(listed):
                return AgentDecision(listed[parsed.choice], valid=True)
            parsed = Parsed(None, parsed.thought, "no_such_choice")
        if parsed.action is None:
            return self.on_invalid(response, parsed, view)
        return AgentDecision(parsed.action, valid=parsed.problem is None, problem=parsed.problem)


# Memories.


@dataclass(frozen=True)
class LastTurns:
    """The last ``count`` turns (GiGPO: 2 for ALFWorld and WebShop)."""

    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 0:
            raise InputError(f"count must be at least 0, not {self.count}")

    def __call__(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The last of the turns."""
        return turns[max(0, len(turns) - self.count) :]


@dataclass(frozen=True)
class FullHistory:
    """Every turn (GiGPO: for search)."""

    def __call__(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """All turns."""
        return turns


# Policies for responses without an action. All of them count the turn and mark it invalid. The
# penalty is not theirs: rollouts write the mark into the column ``valid``, and recipes subtract
# their ``invalid_penalty``.


@dataclass(frozen=True)
class SendText:
    """Send the end of the response to the environment (verl-agent: its last 30 characters)."""

    longest: int = 30

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise InputError(f"longest must be at least 1, not {self.longest}")

    def __call__(self, response: str, parsed: Parsed, _view: View, /) -> AgentDecision:
        """The end of the response as the action."""
        action = replace_surrogates(response[-self.longest :])
        return AgentDecision(action, valid=False, problem=parsed.problem)


@dataclass(frozen=True)
class Substitute:
    """Carry out a fixed action instead, for instance ``look``."""

    action: str

    def __call__(self, _response: str, parsed: Parsed, _view: View, /) -> AgentDecision:
        """The fixed action."""
        return AgentDecision(self.action, valid=False, problem=parsed.problem)
