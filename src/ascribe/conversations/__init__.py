"""Conversations to steps, and credit back onto tokens: chats, and sequences with a mask."""

from ascribe.conversations.messages import (
    Episode,
    Message,
    State,
    action_of,
    action_of_text,
    from_messages,
    text_of,
)

__all__ = [
    "Episode",
    "Message",
    "State",
    "action_of",
    "action_of_text",
    "from_messages",
    "text_of",
]
