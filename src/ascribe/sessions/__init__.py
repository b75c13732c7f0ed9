"""Conversations to steps, and credit back onto tokens: chats, and sequences with a mask."""

from ascribe.sessions.merge import Merged, merge
from ascribe.sessions.messages import (
    Conversation,
    Message,
    State,
    action_of,
    action_of_text,
    from_messages,
    text_of,
)
from ascribe.sessions.sequences import Decoder, check_sequences, from_sequences
from ascribe.sessions.spans import Spans, per_turn, spread

__all__ = [
    "Conversation",
    "Decoder",
    "Merged",
    "Message",
    "Spans",
    "State",
    "action_of",
    "action_of_text",
    "check_sequences",
    "from_messages",
    "from_sequences",
    "merge",
    "per_turn",
    "spread",
    "text_of",
]
