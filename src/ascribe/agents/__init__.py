"""What an agent sees and says: prompts, memory, parsers, policies for invalid answers."""

from ascribe.agents.agent import (
    Agent,
    Decision,
    Memory,
    Message,
    OnInvalid,
    Parsed,
    Parser,
    Prompt,
    Turn,
    View,
    Writer,
)
from ascribe.agents.chat_prompt import ChatPrompt
from ascribe.agents.clean import CHAT_TOKENS, mend, neutralise, shorten
from ascribe.agents.correction import Correcting, CorrectionPrompt
from ascribe.agents.invalid import EndEpisode, SendText, Skip, Substitute
from ascribe.agents.memory import FullHistory, LastTurns
from ascribe.agents.parsers import (
    PROBLEMS,
    AnswerParser,
    SearchAnswer,
    ThinkAction,
    ThoughtAction,
    WholeText,
)
from ascribe.agents.prompts import FIELDS, TextPrompt
from ascribe.agents.registry import AGENTS, Style, agent_for
from ascribe.agents.tool_call import ToolCall

__all__ = [
    "AGENTS",
    "CHAT_TOKENS",
    "FIELDS",
    "PROBLEMS",
    "Agent",
    "AnswerParser",
    "ChatPrompt",
    "Correcting",
    "CorrectionPrompt",
    "Decision",
    "EndEpisode",
    "FullHistory",
    "LastTurns",
    "Memory",
    "Message",
    "OnInvalid",
    "Parsed",
    "Parser",
    "Prompt",
    "SearchAnswer",
    "SendText",
    "Skip",
    "Style",
    "Substitute",
    "TextPrompt",
    "ThinkAction",
    "ThoughtAction",
    "ToolCall",
    "Turn",
    "View",
    "WholeText",
    "Writer",
    "agent_for",
    "mend",
    "neutralise",
    "shorten",
]
