"""``ChatPrompt``: the observation is a whole chat, and is shown as the chat that it is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.agents.agent import Message, Turn, View
from ascribe.agents.clean import CHAT_TOKENS, mend, neutralise


@dataclass(frozen=True)
class ChatPrompt:
    """Shows the messages of an observation that is JSON of a list of ``role`` and ``content``.

    Any other observation is shown as one message of the user.

    Attributes:
        tokens: names of chat tokens, which the messages will not hold.
    """

    tokens: tuple[str, ...] = CHAT_TOKENS

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:  # noqa: ARG002
        """The chat for this decision."""
        messages = _chat(view.observation) or [{"role": "user", "content": view.observation}]
        return [
            {"role": said["role"], "content": neutralise(mend(said["content"]), self.tokens)}
            for said in messages
        ]


def _chat(observation: str) -> list[Message] | None:
    """The messages, or None if the text is something else."""
    try:
        value = json.loads(observation)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and value and all(map(_is_message, value)) else None


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"role", "content"}
        and value["role"] in ("system", "user", "assistant")
        and isinstance(value["content"], str)
    )
