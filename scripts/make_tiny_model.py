"""Write a model of two layers that plays two goals of TextCraft, sometimes well.

    python scripts/make_tiny_model.py models/tiny

It is always the same model. Needs the extras ``actor`` and ``textcraft``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy
from ascribe_lab.models.loading import save_model
from ascribe_lab.rollout import Plan, Setup, rollout
from ascribe_lab.train.tiny import random_llama, train_tokenizer
from ascribe_lab.train.warmup import NoisyExpert, TrainingExample

TASKS = (0, 1)
OPTIONS = {"split": "train", "depth": 1, "inventory": True}


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write")
    write_tiny(parser.parse_args().folder)


def write_tiny(folder: Path) -> Path:
    """Train the model on noisy demonstrations, and write it."""
    demonstrations = demonstrated()
    texts = (message["content"] for messages, _ in demonstrations for message in messages)
    tokenizer = train_tokenizer(texts, 800)  # enough tokens to make prompts short
    chat = Chat(tokenizer)
    examples = [
        TrainingExample(
            chat.prompt(messages), (*tokenizer(response)["input_ids"], tokenizer.eos_token_id)
        )
        for messages, response in demonstrations
    ]
    model = random_llama(len(tokenizer))
    train(model, examples, steps=40, batch=16, learning_rate=3e-3)
    return save_model(model, tokenizer, folder)


def train(  # noqa: PLR0917 (the benchmarks pass them in this order)
    model: Any,
    examples: Sequence[TrainingExample],
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int = 0,
) -> None:
    """Train a tiny model on responses with plain PyTorch, so that no engine needs to be there.

    The learning rate rises over the first tenth of the steps, and then falls to 0.
    """
    ramp = max(1, steps // 10)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    model.train()
    for step in range(steps):
        while len(waiting) < batch:
            waiting += rng.permutation(len(examples)).tolist()
        chosen, waiting = [examples[number] for number in waiting[:batch]], waiting[batch:]
        width = max(len(prompt) + len(response) for prompt, response in chosen)
        ids = torch.zeros((batch, width), dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for row, (prompt, response) in enumerate(chosen):
            end = len(prompt) + len(response)
            ids[row, :end] = torch.tensor(prompt + response)
            labels[row, len(prompt) : end] = torch.tensor(response)
        share = min((step + 1) / ramp, (steps - step) / (steps - ramp + 1))
        optimizer.param_groups[0]["lr"] = learning_rate * share
        # Padding is on the right: no token of an example can see it.
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def demonstrated() -> list[tuple[Any, str]]:
    """Prompts, and an expert's response to each."""
    setup = Setup("textcraft", OPTIONS, "plain", "serial", 1).with_expert()
    render = setup.agent.parser.render  # type: ignore[attr-defined]
    policy = NoisyExpert(ExpertPolicy(render), RandomPolicy(render), noise=0.1)
    plan = Plan(60, 1, 4, tasks=TASKS * 30)
    with setup.open_pool(8) as pool:
        rollout(plan, pool, setup.agent, policy)
    return policy.recorded


if __name__ == "__main__":
    main()
