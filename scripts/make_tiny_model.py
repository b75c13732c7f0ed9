"""Write a model of two layers that plays two goals of TextCraft, sometimes well.

    python scripts/make_tiny_model.py models/tiny

It is always the same model. Needs the extras ``actor`` and ``textcraft``.
"""

# ruff: noqa: PLC0415 (tests import this file where torch is missing)

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ascribe.engines.warmup import NoisyExpert, Schedule, TrainingExample, finetune
from ascribe.models import Chat, ExpertPolicy, RandomPolicy
from ascribe.models.loading import save_model
from ascribe.rollout import Plan, Setup, rollout

TASKS = (0, 1)
OPTIONS = {"split": "train", "depth": 1, "inventory": True}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


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


def train_tokenizer(texts: Iterable[str], size: int) -> Any:
    """Byte pairs and ChatML; the padding token is the end of a turn, as in SmolLM2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        additional_special_tokens=special,
        chat_template=TEMPLATE,
    )


def random_llama(vocabulary: int) -> Any:
    """Two layers of width 64, in single precision, always with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        # Far from zero, so that attention is far from even.
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


if __name__ == "__main__":
    main()
