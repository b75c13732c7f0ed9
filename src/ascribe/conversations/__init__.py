"""Conversations to steps, and credit back onto tokens: chats, and sequences with a mask."""

from ascribe.conversations.merge import Merged, merge
from ascribe.conversations.messages import (
    Episode,
    Message,
    State,
    action_of,
    action_of_text,
    from_messages,
    text_of,
)
from ascribe.conversations.sequences import Decoder, check_sequences, from_sequences
from ascribe.conversations.spans import Spans, per_turn, spread

__all__ = [
    "Decoder",
    "Episode",
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
