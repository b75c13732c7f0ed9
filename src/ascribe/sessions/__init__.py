"""Sessions to steps, and credit back onto tokens: model calls, chats, and masked sequences."""

from ascribe.sessions.calls import Merged, from_calls, merge
from ascribe.sessions.forest import Forest, Link, link
from ascribe.sessions.messages import (
    Conversation,
    Message,
    State,
    action_of,
    action_of_text,
    text_of,
)
from ascribe.sessions.sequences import Decoder, check_sequences, from_sequences
from ascribe.sessions.spans import Loss, Spans, loss_weights, per_turn, spread
from ascribe.sessions.tables import from_messages

__all__ = [
    "Conversation",
    "Decoder",
    "Forest",
    "Link",
    "Loss",
    "Merged",
    "Message",
    "Spans",
    "State",
    "action_of",
    "action_of_text",
    "check_sequences",
    "from_calls",
    "from_messages",
    "from_sequences",
    "link",
    "loss_weights",
    "merge",
    "per_turn",
    "spread",
    "text_of",
]
