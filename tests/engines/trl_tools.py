"""A tiny model that calls a tool in several turns, and an environment for TRL's own loop."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.tool_model import ROOMS, chat, train_tool_model

TASK = "Leave the hall."


class Rooms:
    """Three rooms; two visits to the last are a win. TRL calls the method ``move`` as a tool."""

    def reset(self, **_: Any) -> str:
        """Begin in room 0."""
        self.visits: list[int] = []
        return " You are in room 0."

    def move(self, room: int) -> str:
        """Go to a room.

        Args:
            room: its number.
        """
        self.visits.append(int(room))
        return f"You are in room {room}."

    def get_reward(self) -> float:
        """The share of visits to the last room."""
        return float(self.visits.count(ROOMS - 1)) / 4


@cache
def tool_model(name: str = "move", argument: str = "room") -> tuple[Any, Any]:
    """A model and its tokenizer: it calls the tool up to four times, and then stops."""
    import trl

    from ascribe.engines.trl.tools import ToolEnvironment

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    tools = [Rooms().move if name == "move" else ToolEnvironment("ezpoints", {}).act]
    chats = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        first = f"{TASK} You are in room 0."
        if name == "act":  # as the hall of the other tests begins
            first = f"leave hall {random.integers(64)}\n\nYou are in room 0."
        chats.append(chat(random, first, name, argument))
    return train_tool_model(chats, template, tools)
