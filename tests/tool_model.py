"""A tiny model that calls a tool in several turns, for both engines."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CALL = '<tool_call>\n{"name": "%s", "arguments": {"%s": %d}}\n</tool_call>'
ROOMS = 3
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'tool' %}<tool_response>\n{{ message['content'] }}\n"
    "</tool_response>{% else %}{{ message['content'] or '' }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML without a line of tools, so that prompts are short."""


def chat(
    random: np.random.Generator, first: str, name: str = "move", argument: str = "room"
) -> tuple[list[dict[str, Any]], str]:
    """A chat with up to four moves, and the next response."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for _ in range(random.integers(5)):
        room = int(random.integers(ROOMS))
        call = {"type": "function", "function": {"name": name, "arguments": {argument: room}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": name, "content": f"You are in room {room}."})
    stops = random.random() < len(messages) / 10
    return messages, "Done." if stops else CALL % (name, argument, random.integers(ROOMS))


def train_tool_model(
    chats: Sequence[tuple[list[dict[str, Any]], str]], template: str, tools: Any = None
) -> tuple[Any, Any]:
    """A model that responds as in these chats, and its tokenizer."""
    from tests.tiny_model import fit, random_llama, train_tokenizer

    plain = train_tokenizer([], 300)
    plain.chat_template = template
    texts = [
        plain.apply_chat_template(each, tools=tools, add_generation_prompt=True, tokenize=False)
        for each, _ in chats
    ]
    tokenizer = train_tokenizer([*texts[:4], *(response for _, response in chats[:8])], 400)
    tokenizer.chat_template = template
    examples = [
        (tokenizer(text)["input_ids"], [*tokenizer(response)["input_ids"], tokenizer.eos_token_id])
        for text, (_, response) in zip(texts, chats, strict=True)
    ]
    model = random_llama(len(tokenizer))
    fit(model, examples)
    return model, tokenizer


def write_tool_model(folder: Path, task: str) -> Path:
    """A model for the tool ``move`` of the rooms."""
    chats = [
        chat(np.random.default_rng(seed), f"{task} You are in room {seed % 2}.")
        for seed in range(200)
    ]
    for part in train_tool_model(chats, TEMPLATE):
        part.save_pretrained(folder)
    return folder


if __name__ == "__main__":  # examples/verl_rooms/cpu.sh
    print(write_tool_model(Path(sys.argv[1]), "Visit room 2 as often as you can."))
