"""Sessions to steps, and credit back onto tokens: model calls, chats, and masked sequences."""

from ascribe.sessions.calls import Merged, from_calls, merge
from ascribe.sessions.forest import Forest, Link, link
from ascribe.sessions.messages import (
    Conversation,
)
from ascribe.sessions.messages import (
    Message as Message,
)
from ascribe.sessions.messages import (
    State as State,
)
from ascribe.sessions.messages import (
    action_of as action_of,
)
from ascribe.sessions.messages import (
    action_of_text as action_of_text,
)
from ascribe.sessions.messages import (
    text_of as text_of,
)
from ascribe.sessions.sequences import Decoder as Decoder
from ascribe.sessions.sequences import check_sequences, from_sequences
from ascribe.sessions.spans import Loss as Loss
from ascribe.sessions.spans import Spans, loss_weights, per_turn, spread
from ascribe.sessions.tables import from_messages

__all__ = [
    "Conversation",
    "Forest",
    "Link",
    "Merged",
    "Spans",
    "check_sequences",
    "from_calls",
    "from_messages",
    "from_sequences",
    "link",
    "loss_weights",
    "merge",
    "per_turn",
    "spread",
]
