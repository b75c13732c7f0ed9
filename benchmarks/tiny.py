"""Tiny policies, two layers of a Llama that are taught for a short while.

For ``engine_verl`` and the studies of learning. ``write_sums`` teaches sums with so many wrong
results that there is something to learn and something to lose; ``write_textcraft`` teaches two
goals of TextCraft.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ascribe_lab.models import Chat
from ascribe_lab.models.loading import save_model
from ascribe_lab.train.warmup import TrainingExample

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from make_tiny_model import train, write_tiny

LARGEST, BATCH = 9, 64
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}="


def llama(tokenizer: Any, seed: int, **shape: Any) -> Any:
    """A random Llama of two layers; ``shape`` changes its config."""
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 64,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **(config | shape)))


def wrapped(tokenizer: Tokenizer, template: str, **options: Any) -> Any:
    """A fast tokenizer with the special tokens ``<end>`` and ``<pad>``."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        pad_token="<pad>",
        chat_template=template,
        **options,
    )


def lesson(tokenizer: Any, prompt: tuple[int, ...], response: str) -> TrainingExample:
    """A prompt, and the response with its end token."""
    ids = tokenizer(response, add_special_tokens=False)["input_ids"]
    return TrainingExample(prompt, (*ids, tokenizer.eos_token_id))


def write_questions(path: Path, largest: int = LARGEST, words: str = "{} + {}") -> Path:
    """All sums of two numbers up to ``largest``, in JSON lines of GSM8K's format."""
    rows = [
        {"question": words.format(one, other), "answer": str(one + other)}
        for one in range(largest + 1)
        for other in range(largest + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_sums(folder: Path, seed: int, wrong: float = 0.5, steps: int = 500) -> Path:
    """A policy that was taught sums, with this share of wrong results."""
    words = ["<pad>", "<end>", "<unknown>", "+", "=", *map(str, range(2 * LARGEST + 1))]
    vocabulary = {word: number for number, word in enumerate(words)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = wrapped(plain, TEMPLATE, unk_token="<unknown>")
    chat, random = Chat(tokenizer), np.random.default_rng(seed)
    lessons = []
    for _ in range(BATCH * steps):
        one, other = (int(number) for number in random.integers(LARGEST + 1, size=2))
        result = one + other
        if random.random() < wrong:
            result = int(random.integers(2 * LARGEST + 1))
        prompt = chat.prompt([{"role": "user", "content": f"{one} + {other}"}])
        lessons.append(lesson(tokenizer, prompt, str(result)))
    model = llama(tokenizer, seed, intermediate_size=176, tie_word_embeddings=True)
    train(model, lessons, steps, BATCH, learning_rate=3e-3)
    return save_model(model, tokenizer, folder)


def write_textcraft(folder: Path) -> Path:
    """The policy of the tests, which was taught two goals of TextCraft."""
    return write_tiny(folder)
