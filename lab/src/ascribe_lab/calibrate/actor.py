"""The policy's hidden state as a fingerprint: states with similar representations are close.

BiPACE, Section 3.4: φ(s) = f(s) / |f(s)|, with f(s) the hidden state at the last token of the
prompt s, in a late decoder block that is chosen once for each model. It changes during training.

This module runs a separate forward pass over the prompts (for calibration, or for a file of
rollouts). A trainer captures the same vectors in the pass that it runs anyway: see ``capture``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import numpy as np

from ascribe.engines.capture import (
    Capture,
    Module,
    Take,
    Tensor,
    block_index,
    capture,
    decoder_blocks,
    padded,
)
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.steps.arrays import Objects
from ascribe.steps.errors import InputError

Pooling = Literal["last", "mean", "attention"]
"""How the hidden states of a prompt's tokens become one vector."""


def actor(
    texts: Objects | Sequence[str],
    model: Module,
    tokenizer: Any,
    layer: int,
    *,
    pooling: Pooling = "last",
    batch_size: int = 16,
) -> FloatMatrix:
    """Fingerprints of prompts by the policy: (texts, dims), unit length, single precision.

    Args:
        texts: prompts as the policy reads them, chat template and special tokens included. Equal
            texts get equal fingerprints, an empty one gets a row of zeros.
        model: a causal language model of Hugging Face's kind; it computes in its own type.
        tokenizer: the model's tokenizer.
        layer: index of the decoder block, as in Python: of 28 blocks, 16 and -12 are the same.
        pooling: ``last`` token (the paper's), ``mean`` over all tokens, or their mean weighted by
            the ``attention`` of the last token to them in that block, averaged over heads.
        batch_size: prompts in one pass.
    """
    layers = actor_layers(texts, model, tokenizer, [layer], [pooling], batch_size=batch_size)
    return layers[layer, pooling]


def actor_layers(
    texts: Objects | Sequence[str],
    model: Module,
    tokenizer: Any,
    layers: Sequence[int],
    poolings: Sequence[Pooling] = ("last",),
    *,
    batch_size: int = 16,
) -> dict[tuple[int, Pooling], FloatMatrix]:
    """Fingerprints by several layers and poolings in one pass: see ``actor``.

    Returns:
        one matrix for each layer and pooling, by ``(layer, pooling)`` as they were given.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    unknown = set(poolings) - set(get_args(Pooling))
    if unknown:
        raise InputError(f"unknown poolings: {sorted(unknown)}")
    distinct, inverse = np.unique(np.asarray(texts, dtype=object), return_inverse=True)
    tokens = []
    if distinct.size:
        tokens = tokenizer(list(distinct), add_special_tokens=False)["input_ids"]
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    # Texts of like length share a batch, so that little of it is padding.
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    owner, _ = decoder_blocks(model)
    device = next(owner.parameters()).device
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_evaluating(owner))
        captures = {
            (layer, pooling): stack.enter_context(_pooled(model, layer, pooling))
            for layer in layers
            for pooling in poolings
        }
        for start in range(0, order.size, batch_size):
            rows = [torch.tensor(tokens[i]) for i in order[start : start + batch_size]]
            ids = pad_sequence(rows, batch_first=True).to(device)
            mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(device)
            for hidden, pool in captures.values():
                hidden.expect(pool(mask))
            # The decoder alone: logits are not needed.
            owner(input_ids=ids, attention_mask=mask, use_cache=False)
    fingerprints = {}
    for key, (hidden, _) in captures.items():
        vectors = np.zeros((distinct.size, owner.config.hidden_size), dtype=np.float32)
        if order.size:
            vectors[order] = hidden.fingerprints().numpy()
        fingerprints[key] = vectors[inverse]
    return fingerprints


@contextmanager
def _pooled(
    model: Module, layer: int, pooling: Pooling
) -> Iterator[tuple[Capture, Callable[[Tensor], Take]]]:
    """A capture from one layer, and how it pools the tokens that a mask marks."""
    attention: list[Tensor] = []

    def pool(mask: Tensor) -> Take:
        last = padded(mask, mask.sum(dim=1))
        if pooling == "last":
            return last

        def weighted(states: Tensor) -> Tensor:
            if pooling == "mean":
                weights = mask / mask.sum(dim=1, keepdim=True)
            else:
                # (batch, heads, query, key): the attention of the last token to each of the others.
                weights = last(attention.pop().mean(dim=1))
            return (weights.unsqueeze(1).float() @ states.float()).squeeze(1)

        return weighted

    with ExitStack() as stack:
        hidden = stack.enter_context(capture(model, layer, device="cpu"))
        if pooling == "attention":
            stack.enter_context(_attention(model, layer, attention))
        yield hidden, pool


@contextmanager
def _attention(model: Module, layer: int, weights: list[Tensor]) -> Iterator[None]:
    """Append the attention weights of a block to a list, pass by pass.

    Only eager attention computes them: the fast kernels never hold the weights in memory.
    """
    owner, blocks = decoder_blocks(model)
    block = blocks[block_index(layer, len(blocks))]
    modules = [module for module in block.children() if type(module).__name__.endswith("Attention")]
    if len(modules) != 1:
        raise InputError(f"layer {layer} ({type(block).__name__}) has no attention to weight by")

    def save_weights(_module: Module, _inputs: Any, output: Any) -> None:
        weights.append(output[1].detach())

    previous = owner.config._attn_implementation
    owner.set_attn_implementation("eager")
    handle = modules[0].register_forward_hook(save_weights)
    try:
        yield
    finally:
        handle.remove()
        owner.set_attn_implementation(previous)


@contextmanager
def _evaluating(module: Module) -> Iterator[None]:
    """Without dropout; each module's mode is restored afterwards."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, training in modes:
            child.training = training
