"""A tiny random model, its tokenizer, and a few updates on examples, for tests."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


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


def random_llama(vocabulary: int, positions: int = 512) -> Any:
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
        max_position_embeddings=positions,
        initializer_range=0.2,  # far from zero, so that attention is far from even
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def fit(model: Any, examples: Sequence[tuple[list[int], list[int]]], steps: int = 60) -> None:
    """Train a model on pairs of a prompt and a response, in place, in batches of 16."""
    import torch

    random = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    model.train()
    for _ in range(steps):
        batch = [examples[n] for n in random.permutation(len(examples))[:16]]
        width = max(len(prompt) + len(response) for prompt, response in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for row, (prompt, response) in enumerate(batch):
            end = len(prompt) + len(response)
            ids[row, :end] = torch.tensor(prompt + response)
            labels[row, len(prompt) : end] = torch.tensor(response)
        # Padding on the right comes after all that counts, so it needs no attention mask.
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        optimizer.zero_grad()
    model.eval()
