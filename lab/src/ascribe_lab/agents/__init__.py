"""What an agent sees and says: prompts, memory, parsers, policies for invalid responses."""

from ascribe_lab.agents.agent import (
    Agent,
    AgentDecision,
    FullHistory,
    LastTurns,
    Message,
    Parsed,
    Prompt,
    SendText,
    Substitute,
    Turn,
    View,
)
from ascribe_lab.agents.clean import CHAT_TOKENS, neutralise, shorten
from ascribe_lab.agents.parsers import (
    PROBLEMS,
    ChosenLetter,
    SearchAnswer,
    ThinkAction,
    WholeText,
)
from ascribe_lab.agents.prompts import (
    FIELDS,
    ChatPrompt,
    CorrectingPrompt,
    CorrectionPrompt,
    TextPrompt,
)
from ascribe_lab.agents.registry import AGENTS, agent_for

__all__ = [
    "AGENTS",
    "CHAT_TOKENS",
    "FIELDS",
    "PROBLEMS",
    "Agent",
    "AgentDecision",
    "ChatPrompt",
    "ChosenLetter",
    "CorrectingPrompt",
    "CorrectionPrompt",
    "FullHistory",
    "LastTurns",
    "Message",
    "Parsed",
    "Prompt",
    "SearchAnswer",
    "SendText",
    "Substitute",
    "TextPrompt",
    "ThinkAction",
    "Turn",
    "View",
    "WholeText",
    "agent_for",
    "neutralise",
    "shorten",
]
