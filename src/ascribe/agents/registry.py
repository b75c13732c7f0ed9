"""The default agent of each environment."""

from dataclasses import replace
from typing import Any, Literal, get_args

from ascribe.agents.agent import Agent, Memory, OnInvalid, Parser, Prompt
from ascribe.agents.chat_prompt import ChatPrompt
from ascribe.agents.invalid import SendText, Substitute
from ascribe.agents.memory import FullHistory, LastTurns
from ascribe.agents.parsers import SearchAnswer, ThinkAction, WholeText
from ascribe.agents.prompts import NOTHING, TextPrompt
from ascribe.agents.wording import OTHER, PAPER, PLAIN

Style = Literal["paper", "plain"]
"""``paper``: think, then act. ``plain``: short and without a thought, for small models."""


def _agent(name: str, prompt: TextPrompt) -> Agent:
    memories: dict[str, Memory] = {
        "search_qa": FullHistory(),
        # Its answers are one line each, and what was gathered is told nowhere else.
        "textcraft": LastTurns(10),
        # Whoever decides sees what the environment shows, and nothing that others said.
        "team": LastTurns(0),
    }
    parsers: dict[str, Parser] = {
        "search_qa": SearchAnswer(),
        "maths": WholeText(),
        "team": WholeText(),
    }
    return Agent(
        prompt,
        memories.get(name, LastTurns(2)),
        parsers.get(name, ThinkAction()),
        # An agent of a team that says nothing must not be asked again in the place of the next.
        Substitute(NOTHING) if name == "team" else SendText(),
    )


_SHOWN_A_CHAT = Agent(ChatPrompt(), LastTurns(0), WholeText(), SendText())

AGENTS: dict[str, dict[str, Agent]] = {
    **{
        name: {"paper": _agent(name, PAPER[name]), "plain": _agent(name, PLAIN[name])}
        for name in sorted(PAPER)
    },
    # Turns of traces are chats already, whatever the style.
    "pivots": {"paper": _SHOWN_A_CHAT, "plain": _SHOWN_A_CHAT},
}
"""The default agents by environment and style; ``other`` suits environments without their own."""


def agent_for(
    environment: str,
    style: str = "paper",
    *,
    prompt: Prompt | None = None,
    memory: Memory | None = None,
    parser: Parser | None = None,
    on_invalid: OnInvalid | None = None,
) -> Agent:
    """The default agent of an environment, with parts exchanged.

    Args:
        environment: a key of ``AGENTS``, or a user's own as ``package.module:factory``, which gets
            the agent ``other``.
        style: ``paper`` or ``plain``.
        prompt: in place of the default prompt.
        memory: in place of the default memory.
        parser: in place of the default parser.
        on_invalid: in place of the default policy for answers without an action.

    Raises:
        ValueError: if there is no such environment or style.
    """
    name = OTHER if ":" in environment else environment
    if name not in AGENTS:
        raise ValueError(
            f"there is no agent for {environment!r}; there are: {', '.join(AGENTS)}; "
            f"agent_for({OTHER!r}) suits any environment"
        )
    if style not in AGENTS[name]:
        raise ValueError(f"there is no style {style!r}; there are: {', '.join(get_args(Style))}")
    parts = {"prompt": prompt, "memory": memory, "parser": parser, "on_invalid": on_invalid}
    given: dict[str, Any] = {part: value for part, value in parts.items() if value is not None}
    return replace(AGENTS[name][style], **given)
