"""Log-probabilities on a processor: of the tokens that were written, and of no others.

Where there is no Triton, TRL's head multiplies every position of the prompt with the whole
vocabulary too. With prompts twenty times as long as answers that is a large part of an update.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

KEEP = "logits_to_keep"
"""The argument by which models of transformers are asked for the last logits alone."""


def knows_how(model: Any) -> bool:
    """Whether a model, perhaps with adapters, gives the last logits alone."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return KEEP in inspect.signature(type(inner).forward).parameters


def score_completions(
    model: Any, ids: Tensor, mask: Tensor, length: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """Of the last ``length`` tokens of each row: log p(token | all before it), and entropies.

    Args:
        model: gives logits z; p = softmax(z / temperature).
        ids: (rows, all tokens).
        mask: 0 where a token is padding; there both results are 0.
        length: tokens of a completion.
        temperature: that of sampling.

    Returns:
        (rows, length) each, in float32.
    """
    logits = model(input_ids=ids, attention_mask=mask, **{KEEP: length + 1}).logits[:, :-1]
    every = (logits.float() / temperature).log_softmax(-1)
    found = every.gather(-1, ids[:, -length:, None])[..., 0]
    padding = mask[:, -length:] == 0
    entropy = -(every.exp() * every).sum(-1)
    return found.masked_fill(padding, 0), entropy.masked_fill(padding, 0)


def pieces(ids: Tensor, mask: Tensor, size: int | None) -> list[tuple[Tensor, Tensor]]:
    """Rows for one pass each."""
    size = size or len(ids)
    return list(zip(torch.split(ids, size), torch.split(mask, size), strict=True))
