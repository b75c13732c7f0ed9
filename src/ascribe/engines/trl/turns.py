"""Turns of TRL's sessions: what they were shown and did, from TRL's messages.

Tokens say where credit lands, and nothing else: a chat template may write a call with other spaces
than the model did, and a turn whose tokens were masked is still a turn.
"""

import logging
from collections.abc import Sequence
from typing import Any

from ascribe.sessions import Conversation, State, from_messages
from ascribe.sessions.messages import calls_of
from ascribe.steps.table import StepTable


def conversation(prompt: Sequence[Any], completion: Sequence[Any], **facts: Any) -> Conversation:
    """A session that TRL played; one in which the model wrote nothing has a turn without text."""
    said = [*map(_readable, completion)]
    if not any(message.get("role") == "assistant" for message in said):
        said.append({"role": "assistant", "content": ""})
    facts = {"group": "", "trajectory": "", **facts}
    return Conversation(messages=[*prompt, *said], context=len(prompt), **facts)


def _readable(message: Any) -> Any:
    """The message; its calls as text if they are none, as a call without a name is."""
    try:
        calls_of(message)
    except ValueError:
        return {"role": message.get("role"), "content": str(message.get("tool_calls"))}
    return message


def from_chats(
    chats: Sequence[Conversation], turns: Sequence[int], state: State
) -> StepTable | None:
    """The steps of sessions by their messages; None if these are not the turns that were played.

    Args:
        chats: the sessions.
        turns: how many turns each has by its tokens; 0 for one whose tokens are lost.
        state: what counts as the state of a turn.
    """
    if any(count not in {0, len(chat.steps)} for chat, count in zip(chats, turns, strict=True)):
        return None
    try:
        return from_messages(chats, state=state)
    except (TypeError, ValueError):  # those of a harness, or with pictures, may have another form
        return None


class Sources:
    """Counts the turns that were read from tokens, and warns of the first."""

    def __init__(self) -> None:
        self.turns = self.from_tokens = 0

    def count(self, turns: int, *, from_tokens: bool) -> int:
        """How many of these turns were read from tokens: all or none."""
        first = from_tokens and turns > 0 and not self.from_tokens
        self.turns += turns
        self.from_tokens += turns * from_tokens
        if first:
            logging.getLogger(__name__).warning(
                "the messages of TRL's sessions are not the turns that were played, so states and "
                "actions were read from tokens: %d of %d turns so far (%.0f %%), where a call that "
                "is written in two ways is two actions; ascribe/from_tokens_share counts them",
                *(self.from_tokens, self.turns, 100 * self.from_tokens / self.turns),
            )
        return turns * from_tokens
