"""Capture the hidden state of the last prompt token during a forward pass that happens anyway.

A trainer computes the log-probabilities of its responses in one forward pass over prompt and
response. Attention is causal, so in that pass the last prompt token has the hidden state that a
pass over the prompt alone would give, and BiPACE's state fingerprint (Section 3.4) needs no pass of
its own:

    with capture(model, layer=-8) as hidden:
        for batch in batches:
            hidden.expect(padded(batch.attention_mask, batch.prompt_lengths))
            logits = model(batch.input_ids, attention_mask=batch.attention_mask).logits
    fingerprints = hidden.fingerprints()

In a sequence of many turns each turn has a prompt that ends before it, and one pass gives the
fingerprints of all of them: ``padded(attention_mask, spans.prompt, spans.sequence)``, with the
``Spans`` of ``ascribe.sessions``.

A layer is a Python index into the list of decoder blocks: of 28 blocks, 16 and -12 are the same. A
hook on that one block collects the hidden states at the requested positions; nothing else is kept.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ascribe.steps.arrays import Ints
from ascribe.steps.errors import InputError

Tensor: TypeAlias = Any
"""A torch tensor."""

Module: TypeAlias = Any
"""A torch module."""

Take: TypeAlias = Callable[[Tensor], Tensor]
"""Selects vectors from a pass: hidden states (batch, length, dims) to (rows, dims)."""


# Where prompts end.


@dataclass(frozen=True, eq=False)
class Places:
    """Token positions in one batch; calling it selects their hidden states, in the same order.

    Attributes:
        rows: row of the batch, one for each place.
        positions: position in that row, counted from its first column, padding included.
        shape: rows and columns of the batch that the model is called with.

    Raises:
        ValueError: if a place lies outside the batch.
    """

    rows: Ints
    positions: Ints
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        if self.rows.ndim != 1 or self.rows.shape != self.positions.shape:
            raise InputError("rows and positions must be two lists of the same length")
        for name, values, end in zip(
            ("row", "position"), (self.rows, self.positions), self.shape, strict=True
        ):
            outside = values[(values < 0) | (values >= end)]
            if outside.size:
                raise InputError(f"{name} {outside[0]} lies outside a batch of shape {self.shape}")

    def __call__(self, states: Tensor) -> Tensor:
        """The hidden states at these positions: (places, dims)."""
        import torch

        if tuple(states.shape[:-1]) != self.shape:
            raise InputError(
                f"the places are of a batch of shape {self.shape}, but the block's hidden states "
                f"have {tuple(states.shape[:-1])}: is it another batch, or sharded over devices?"
            )
        index = torch.from_numpy(self.rows * self.shape[1] + self.positions)
        return states.flatten(0, 1).index_select(0, index.to(states.device, non_blocking=True))


def padded(attention_mask: Any, prompt_lengths: Any, rows: Any = None) -> Places:
    """The last token of each prompt in a padded batch.

    It is the token that the mask counts as number ``prompt_lengths[i]`` of its row, so padding may
    be on the right, on the left, or on both sides (prompts padded on the left, responses on the
    right).

    Args:
        attention_mask: true where there is a token: (rows, length).
        prompt_lengths: tokens up to where a prompt ends, padding not counted.
        rows: the row of each prompt, if rows hold several: a sequence of many turns has a prompt
            for each, all of which begin where the sequence does. By default one for each row.
    """
    mask, lengths = _ints(attention_mask) != 0, _ints(prompt_lengths)
    tokens = mask.sum(axis=1)
    chosen = _checked_rows(lengths, tokens, rows)
    # Columns of tokens over all rows, of which each row has its part.
    columns = np.flatnonzero(mask)
    first = np.cumsum(tokens) - tokens
    positions = columns[first[chosen] + lengths - 1] - chosen * mask.shape[1]
    return Places(chosen, positions, (mask.shape[0], mask.shape[1]))


def packed(
    cu_seqlens: Any, prompt_lengths: Any, length: int | None = None, rows: Any = None
) -> Places:
    """The last token of each prompt in a packed batch: one row, sequences end to end.

    Args:
        cu_seqlens: where each sequence begins, and after them where the last one ends. Position ids
            that restart in each sequence have a 0 at each beginning.
        prompt_lengths: tokens of a sequence up to where a prompt ends.
        length: columns of the batch, if padding follows the last sequence.
        rows: the sequence of each prompt, if sequences hold several; by default one for each.
    """
    bounds, lengths = _ints(cu_seqlens), _ints(prompt_lengths)
    chosen = _checked_rows(lengths, np.diff(bounds), rows)
    columns = int(bounds[-1]) if length is None else length
    return Places(np.zeros_like(lengths), bounds[chosen] + lengths - 1, (1, columns))


def _ints(values: Any) -> Ints:
    """Integers of any kind of array, on the CPU."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values).astype(np.int64)


def _checked_rows(lengths: Ints, tokens: Ints, rows: Any) -> Ints:
    """The sequence of each prompt, of sequences with so many tokens."""
    chosen = np.arange(tokens.size) if rows is None else _ints(rows)
    if lengths.shape != chosen.shape:
        raise InputError(f"{lengths.size} prompt lengths for {chosen.size} sequences")
    unknown = chosen[(chosen < 0) | (chosen >= tokens.size)]
    if unknown.size:
        raise InputError(f"there is no sequence {unknown[0]} in a batch of {tokens.size}")
    invalid = np.flatnonzero((lengths < 1) | (lengths > tokens[chosen]))
    if invalid.size:
        row = int(chosen[invalid[0]])
        raise InputError(
            f"sequence {row} has {tokens[row]} tokens, its prompt cannot have {lengths[invalid[0]]}"
        )
    return chosen


# The block to capture from.


def decoder_blocks(model: Module) -> tuple[Module, Module]:
    """The module that runs the decoder blocks, and the list of them.

    The list is the outermost ``nn.ModuleList`` that is as long as the configuration says
    (``num_hidden_layers``), so it is found inside wrappers too (PEFT, DDP, FSDP).

    Raises:
        ValueError: if there is no such list, or more than one.
    """
    configs: Any = (getattr(module, "config", None) for module in model.modules())
    config = next((config for config in configs if hasattr(config, "get_text_config")), None)
    if config is None:
        raise InputError(f"{type(model).__name__} has no configuration that counts decoder blocks")
    count = int(config.get_text_config().num_hidden_layers)
    lists = _lists(model, count)
    # A wrapper may hold the same module under two names.
    if len(set(lists.values())) != 1:
        names = ", ".join(lists) or "none"
        raise InputError(
            f"looked for one list of {count} decoder blocks in {type(model).__name__}, found: "
            f"{names}",
            hint="pass the part of the model that is the language model",
        )
    return next(iter(lists.values()))


def _lists(module: Module, count: int, path: str = "") -> dict[str, tuple[Module, Module]]:
    """The outermost lists of ``count`` modules by path, each with its parent module."""
    import torch

    lists = {}
    for name, child in module.named_children():
        if isinstance(child, torch.nn.ModuleList) and len(child) == count:
            lists[path + name] = (module, child)
        else:
            lists |= _lists(child, count, f"{path}{name}.")
    return lists


def block_index(layer: int, count: int) -> int:
    """A layer as an index from 0, of ``count`` blocks."""
    if not -count <= layer < count:
        raise IndexError(f"layer {layer} of a model with {count} decoder blocks")
    return layer % count


# The capture.


class Capture:
    """Collects vectors from forward passes; ``capture`` makes one."""

    def __init__(self, *, normalise: bool, dtype: Any, device: Any) -> None:
        self._normalise, self._dtype, self._device = normalise, dtype, device
        self._expected: deque[Take] = deque()
        self._kept: list[Tensor] = []
        self._taken: Tensor | None = None
        self._passing = False

    def expect(self, take: Take) -> None:
        """Announce a forward pass, and what to select from it.

        Several passes may be announced ahead, in their order.

        Args:
            take: ``Places``, or any function of the block's hidden states.
        """
        self._expected.append(take)

    def fingerprints(self) -> Tensor:
        """All captured vectors, in the order of passes and of places: (rows, dims).

        Raises:
            RuntimeError: if there was no forward pass.
            ValueError: if a number is not finite (overflow in half precision, a broken model).
        """
        import torch

        if not self._kept:
            raise RuntimeError("there was no forward pass to capture from")
        vectors = torch.cat(self._kept)
        finite = vectors.isfinite().all(dim=1)
        if not finite.all():
            rows = (~finite).nonzero()[:5, 0].tolist()
            raise InputError(f"hidden states of rows {rows} hold numbers that are not finite")
        return vectors

    # Hooks: a pass begins, the block runs, the pass ends. Vectors are kept only when the pass ends,
    # so a failed pass can be retried. Gradient checkpointing runs blocks again during the backward
    # pass, outside of any forward pass.

    def _begin(self, *_: Any) -> None:
        if not self._expected:
            raise RuntimeError("a forward pass began that was not announced: call expect() first")
        self._passing, self._taken = True, None

    def _run(self, _module: Module, _inputs: Any, output: Any) -> None:
        if not self._passing:
            return
        if self._taken is not None:
            raise RuntimeError("the block ran twice in one forward pass")
        states = output[0] if isinstance(output, tuple) else output
        # In single precision: the length would not be exact enough in half precision.
        vectors = self._expected[0](states.detach()).float()
        if self._normalise:
            vectors = vectors / vectors.norm(dim=-1, keepdim=True)
        self._taken = vectors.to(device=self._device or vectors.device, dtype=self._dtype)

    def _end(self, *_: Any) -> None:
        if self._taken is None:
            raise RuntimeError("a forward pass ended in which the block, or its hook, did not run")
        self._expected.popleft()
        self._kept.append(self._taken)
        self._passing, self._taken = False, None

    def _close(self) -> None:
        if self._expected:
            raise RuntimeError(
                f"{len(self._expected)} announced passes did not happen, or hooks did not run "
                "(a compiled model needs torch._dynamo.config.skip_nnmodule_hook_guards = False)"
            )


@contextmanager
def capture(
    model: Module,
    layer: int,
    *,
    normalise: bool = True,
    dtype: Any = None,
    device: Any = None,
) -> Iterator[Capture]:
    """Capture from one decoder block during the forward passes inside a ``with`` block.

    Every forward pass must be announced with ``expect``, and every announced pass must happen.

    Args:
        model: a causal language model of Hugging Face's kind, wrapped or not.
        layer: index of the decoder block whose output is wanted, as in Python: -1 is the last.
        normalise: whether to divide each vector by its length, in single precision.
        dtype: torch type to keep the vectors in; float32 by default. In float16 they take half the
            memory and have unit length only to about 1e-4.
        device: where to keep the vectors; by default where the block computes them.

    Raises:
        IndexError: if the model has no such layer.
        RuntimeError: for a pass that was not announced, or an announced one that did not happen.
    """
    import torch

    owner, blocks = decoder_blocks(model)
    block = blocks[block_index(layer, len(blocks))]
    hidden = Capture(normalise=normalise, dtype=dtype or torch.float32, device=device)
    handles = [
        owner.register_forward_pre_hook(hidden._begin),
        block.register_forward_hook(hidden._run),
        owner.register_forward_hook(hidden._end),
    ]
    try:
        yield hidden
    finally:
        for handle in handles:
            handle.remove()
    hidden._close()
