"""Rows of tokens as the tensors that TRL's loss reads."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from ascribe.engines.trl.rows import Row
from ascribe.fingerprints.capture import Places
from ascribe.steps.arrays import Floats

Tensor: TypeAlias = Any
"""A torch tensor."""

Tensors: TypeAlias = dict[str, Any]


def tensors(rows: Sequence[Row], blank: int, size: int, multiple: int | None = None) -> Tensors:
    """The rows, and after them empty ones that fill the batch up and teach nothing.

    Prompts are padded on the left, completions on the right. An empty row has one token to attend
    to, since attention over nothing is not a number, and none to learn from. ``tool_mask`` is there
    if a completion holds tokens that the policy did not write.

    Args:
        rows: the rows.
        blank: id of the padding token.
        size: rows of the batch, empty ones included.
        multiple: widths are padded to a multiple of this.
    """
    width = _wide(max((len(row.prompt) for row in rows), default=1), multiple)
    length = _wide(max((len(row.completion) for row in rows), default=1), multiple)
    prompt_ids = torch.full((size, width), blank)
    prompt_mask = torch.zeros_like(prompt_ids)
    completion_ids = torch.full((size, length), blank)
    completion_mask = torch.zeros_like(completion_ids)
    wrote = torch.zeros_like(completion_ids)
    prompt_mask[:, -1] = 1
    for place, row in enumerate(rows):
        prompt_ids[place, width - len(row.prompt) :] = torch.tensor(row.prompt)
        prompt_mask[place, width - len(row.prompt) :] = 1
        completion_ids[place, : len(row.completion)] = torch.tensor(row.completion)
        completion_mask[place, : len(row.completion)] = 1
        wrote[place, : len(row.completion)] = torch.from_numpy(row.step >= 0)
    batch = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
    }
    if not torch.equal(wrote, completion_mask):
        batch["tool_mask"] = wrote
    return batch


def per_row(rows: Sequence[Row], advantage: Floats, size: int) -> Tensor:
    """One advantage for each row, that of its one step; 0 for empty rows."""
    values = torch.zeros(size)
    for place, row in enumerate(rows):
        values[place] = float(advantage[row.step[0]])
    return values


def per_token(rows: Sequence[Row], advantage: Floats, size: int, length: int) -> Tensor:
    """The advantage of the step that wrote each token; 0 for what the policy did not write."""
    values = torch.zeros(size, length)
    known = np.append(advantage, 0.0)  # step -1 is the environment's
    for place, row in enumerate(rows):
        values[place, : len(row.step)] = torch.from_numpy(known[row.step])
    return values


def decision_places(rows: Mapping[int, Row], batch: Tensors) -> Places:
    """Where each step's prompt ends: steps in the order of the rows, which are named by place."""
    width = batch["prompt_ids"].shape[1]
    shape = (batch["prompt_ids"].shape[0], width + batch["completion_ids"].shape[1])
    numbers = [place for place, row in rows.items() for _ in row.decides]
    positions = [width - len(row.prompt) + at for row in rows.values() for at in row.decides]
    return Places(np.array(numbers, dtype=np.int64), np.array(positions, dtype=np.int64), shape)


def cut(batch: Tensors, rows: Tensor, multiple: int | None = None) -> Tensors:
    """These rows of a batch, without the columns that are padding in all of them.

    Args:
        batch: tensors with one row each, and numbers about the whole.
        rows: by number.
        multiple: widths stay a multiple of this.
    """
    part = {name: value[rows] if value.ndim else value for name, value in batch.items()}
    width = part["prompt_ids"].shape[1]
    shown = width - int(part["prompt_mask"].any(dim=0).int().argmax())
    length = max(1, int(part["completion_mask"].sum(dim=1).max()))
    shown, length = _wide(shown, multiple), _wide(length, multiple)
    for name, value in part.items():
        if name.startswith("prompt"):
            part[name] = value[:, width - shown :]
        elif value.ndim == 2:
            part[name] = value[:, :length]
    return part


def lengths(batch: Tensors) -> Tensor:
    """How many tokens each row has."""
    return batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)


def _wide(width: int, multiple: int | None) -> int:
    return width if multiple is None else -(-width // multiple) * multiple
