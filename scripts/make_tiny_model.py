"""Write a model of two layers that plays two goals of TextCraft, sometimes well.

    python scripts/make_tiny_model.py models/tiny

It is always the same model. Needs the extras ``actor`` and ``textcraft``.
"""

import argparse
from pathlib import Path
from typing import Any

from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy
from ascribe_lab.models.loading import save_model
from ascribe_lab.rollout import Plan, Setup, rollout
from ascribe_lab.train.tiny import random_llama, train_tokenizer
from ascribe_lab.train.warmup import NoisyExpert, Schedule, TrainingExample, finetune

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
    finetune(model, examples, Schedule(steps=40, batch=16, learning_rate=3e-3, most_tokens=8192))
    return save_model(model, tokenizer, folder)


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
