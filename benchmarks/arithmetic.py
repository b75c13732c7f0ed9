"""What the runs on sums share: questions, and a tiny policy that answers some of them rightly.

Not a benchmark by itself. The policy has two layers of width 64, one token for each number, and is
taught answers of which so many are wrong; so there is something to learn and something to lose.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ascribe.engines.lessons import Lesson
from ascribe.engines.supervised import Schedule, teach
from ascribe.models import Chat
from ascribe.models.loading import save_model

LARGEST, BATCH = 9, 64
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}="


def write_questions(path: Path, largest: int = LARGEST, words: str = "{} + {}") -> Path:
    """All sums of two numbers up to ``largest``, in JSON lines of GSM8K's form."""
    rows = [
        {"question": words.format(one, other), "answer": str(one + other)}
        for one in range(largest + 1)
        for other in range(largest + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_policy(folder: Path, seed: int, wrong: float = 0.5, steps: int = 500) -> Path:
    """A policy that was taught the sums, with a wrong answer in so many of the lessons."""
    tokenizer = make_tokenizer()
    chat, random = Chat(tokenizer), np.random.default_rng(seed)
    lessons = []
    for _ in range(BATCH * steps):
        one, other = (int(number) for number in random.integers(LARGEST + 1, size=2))
        answer = one + other
        if random.random() < wrong:
            answer = int(random.integers(2 * LARGEST + 1))
        asked = [{"role": "user", "content": f"{one} + {other}"}]
        said = tokenizer(str(answer))["input_ids"]
        lessons.append(Lesson(chat.prompt(asked), (*said, tokenizer.eos_token_id)))
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=176,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=True,
        )
    )
    teach(model, lessons, Schedule(steps=steps, batch=BATCH, learning_rate=3e-3, most_tokens=4096))
    return save_model(model, tokenizer, folder)


def make_tokenizer() -> Any:
    """One token for each number up to the largest sum, and for each sign."""
    words = ["<pad>", "<end>", "<unknown>", "+", "=", *map(str, range(2 * LARGEST + 1))]
    made = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unknown>")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unknown>",
        chat_template=TEMPLATE,
    )


def train(document: dict[str, Any], engine: str = "trl") -> list[dict[str, Any]]:
    """``ascribe train`` by a config; the lines of its ``metrics.jsonl``."""
    folder = Path(document["output"]["folder"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_suffix(".yaml")
    path.write_text(json.dumps(document))  # which is YAML too
    ascribe = Path(sys.executable).parent / "ascribe"
    words = [str(ascribe), "train", "--engine", engine, str(path)]
    log = folder.with_suffix(".log")
    with log.open("wb") as said:
        done = subprocess.run(words, stdout=said, stderr=said, check=False)
    if done.returncode:
        raise SystemExit(log.read_text(errors="replace")[-4000:])
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
