"""A tiny model that calls a tool in several turns, and an environment for TRL's own loop."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CALL = '<tool_call>\n{"name": "%s", "arguments": {"%s": %d}}\n</tool_call>'
TASK = "Leave the hall."
ROOMS = 3


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
    from ascribe.engines.warmup import Schedule, TrainingExample, finetune
    from tests.tiny_model import random_llama, train_tokenizer

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    tokenizer = train_tokenizer([TASK], 300)
    tokenizer.chat_template = template
    chats = [_chat(np.random.default_rng(seed), name, argument) for seed in range(200)]
    tools = [Rooms().move if name == "move" else ToolEnvironment("ezpoints", {}).act]
    texts = [
        tokenizer.apply_chat_template(chat, tools=tools, add_generation_prompt=True, tokenize=False)
        for chat, _ in chats
    ]
    tokenizer = train_tokenizer([*texts[:4], *(response for _, response in chats[:8])], 400)
    tokenizer.chat_template = template
    examples = [
        TrainingExample(
            tuple(tokenizer(text)["input_ids"]),
            (*tokenizer(response)["input_ids"], tokenizer.eos_token_id),
        )
        for text, (_, response) in zip(texts, chats, strict=True)
    ]
    model = random_llama(len(tokenizer))
    finetune(model, examples, Schedule(steps=60, batch=16, learning_rate=5e-3, most_tokens=8192))
    return model, tokenizer


def _chat(
    random: np.random.Generator, name: str, argument: str
) -> tuple[list[dict[str, Any]], str]:
    """A chat with up to four moves, and the next response."""
    first = f"{TASK} You are in room 0."
    if name == "act":  # as the hall of the other tests begins
        first = f"leave hall {random.integers(64)}\n\nYou are in room 0."
    chat: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for _ in range(random.integers(5)):
        room = int(random.integers(ROOMS))
        call = {"type": "function", "function": {"name": name, "arguments": {argument: room}}}
        chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
        chat.append({"role": "tool", "name": name, "content": f"You are in room {room}."})
    stops = random.random() < len(chat) / 10
    return chat, "Done." if stops else CALL % (name, argument, random.integers(ROOMS))
