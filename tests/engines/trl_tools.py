"""A tiny model that calls tools in several turns, for TRL's own loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tool_model import TEMPLATE, chat, train_tool_model

TASK = "Leave the hall."


def tool_model(factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a model, made once for all test processes, and its tokenizer.

    It calls a tool up to four times and then stops: ``move`` in the rooms, and ``act`` in the hall
    of the other tests. Its template shows no tools, so that prompts are short.
    """
    from filelock import FileLock
    from transformers import AutoTokenizer
    from trl.chat_template_utils import add_response_schema, qwen2_5_chat_template

    base = factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen") else base) / "tool_model"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            for part in train_tool_model(_chats(), TEMPLATE):
                part.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # TRL knows how to read calls by the template; these are in Qwen's form.
    tokenizer.chat_template = qwen2_5_chat_template
    add_response_schema(tokenizer)
    tokenizer.chat_template = TEMPLATE
    return folder, tokenizer


def _chats() -> list[tuple[list[dict[str, Any]], str]]:
    chats = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        if seed % 2:
            first = f"leave hall {random.integers(64)}\n\nYou are in room 0."
            chats.append(chat(random, first, "act", "action"))
        else:
            chats.append(chat(random, f"{TASK} You are in room 0."))
    return chats
