"""TRL's own loop with and without Ascribe's credit: two curves in a picture, on a laptop.

    python examples/trl_quickstart.py curves.png

A model of two layers plays four rooms of Sokoban with one tool. A model with random weights never
calls a tool, so it is first taught: it imitates 160 games in these four rooms, in which every second
move is random. Both trainers begin with that model. Only the lines marked "credit" differ.
"""

import copy
import re
import sys
import tempfile

import numpy as np
import torch
from datasets import Dataset
from matplotlib.figure import Figure
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    qwen2_5_chat_template,
)

from ascribe.engines.trl import AscribeTrainer  # credit
from ascribe_lab.envs.sokoban import MOVES, Sokoban
from ascribe_lab.train.tiny import random_llama, train_tokenizer

ROOMS = 4
QUESTION = {"role": "user", "content": "Push the box X onto the target O.\n"}


class Warehouse:
    """An environment as TRL takes it: its public methods are the model's tools."""

    def reset(self, room: int, **_: object) -> str:
        self.game, self.over, self.won = Sokoban(size=5, boxes=[1], horizon=10, expert=True), False, False
        text, self.info = self.game.reset(options={"task": room})
        return text

    def go(self, to: str) -> str:
        """Go one step.

        Args:
            to: up, down, left or right.
        """
        if not self.over:
            text, _, self.won, cut, self.info = self.game.step(to)
            self.over = self.won or cut
        return "The game is over." if self.over else text

    def get_reward(self) -> float:
        return float(self.won)


def demonstrations(games: int) -> list[list[dict[str, object]]]:
    """Chats of a player who makes the best move or a random one, with equal chances."""
    random, chats = np.random.default_rng(0), []
    for number in range(games):
        room = Warehouse()
        first = room.reset(number % ROOMS)
        chat = [{"role": "user", "content": QUESTION["content"] + first}]
        while not room.over:
            best = room.info["expert_action"] if random.random() < 0.5 else None
            arguments = {"to": best or str(random.choice(MOVES))}
            call = {"type": "function", "function": {"name": "go", "arguments": arguments}}
            chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
            chat.append({"role": "tool", "name": "go", "content": room.go(**arguments)})
        chats.append([*chat, {"role": "assistant", "content": "Done."}])
    return chats


def taught(games: int = 160, epochs: int = 8):
    """The model that both trainers begin with, and its tokenizer."""
    chats, tokenizer = demonstrations(games), train_tokenizer([], 300)
    tokenizer.chat_template = qwen2_5_chat_template
    add_response_schema(tokenizer)  # how TRL reads calls
    options = {"tools": [Warehouse().go], "chat_template": get_training_chat_template(tokenizer)}
    texts = tokenizer.apply_chat_template(chats, tokenize=False, **options)
    # One token for each line of a chat, so that a turn is short.
    tokenizer.add_tokens(sorted({p for t in texts for p in re.split(r"(?<=\n)|(?<=\|>)|(?=<\|)", t)} - {""}))
    data = tokenizer.apply_chat_template(
        chats, return_dict=True, return_assistant_tokens_mask=True, padding=True, return_tensors="pt", **options
    )
    model = random_llama(len(tokenizer), 1024).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    labels = torch.where(data["assistant_masks"].bool(), data["input_ids"], -100)
    torch.manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(games).split(16):
            loss = model(data["input_ids"][rows], data["attention_mask"][rows], labels=labels[rows]).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model, tokenizer


def run(trainer, start, seed: int, iterations: int, lr=1e-3, **credit: str) -> list[float]:
    """The share of won games in each iteration: eight attempts at each room."""
    model, tokenizer = start
    rows = [{"prompt": [QUESTION], "room": room} for room in range(ROOMS)]
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder,
            max_steps=iterations,
            num_generations=8,
            per_device_train_batch_size=8 * ROOMS,
            max_completion_length=256,
            learning_rate=lr,
            lr_scheduler_type="constant",
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        made = trainer(
            copy.deepcopy(model),
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            environment_factory=Warehouse,
            **credit,
        )
        made.remove_callback(PrinterCallback)
        made.train()
    return [entry["reward"] for entry in made.state.log_history if "reward" in entry], made
