"""From trajectories to the tensors of TRL's loss, in one of two layouts.

``step``: one row for each decision, its prompt and its response. ``trajectory``: one row for each
trajectory, its first prompt and then responses and observations as one text; that is the same
computation only where every prompt continues the text so far.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from ascribe.engines.config import Layout
from ascribe.fingerprints.capture import Places
from ascribe.rollout.episode import Step
from ascribe.rollout.run import Trajectory
from ascribe.steps.arrays import Floats, Ints

Tensor: TypeAlias = Any
"""A torch tensor."""

Tensors: TypeAlias = dict[str, Any]


class TrajectoryLayoutError(ValueError):
    """A prompt does not continue the text before it, so a trajectory is not one row."""


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence of tokens to learn from."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    step: Ints
    """For each token of the completion the number of the step that wrote it; -1 for the
    environment's. Steps are numbered over all trajectories that were given."""
    decides: Ints
    """For each step the position of the last token that it saw, counted from the row's first."""

    @cached_property
    def steps(self) -> Ints:
        """The steps of the row, in order."""
        return np.unique(self.step[self.step >= 0])

    @cached_property
    def tokens(self) -> int:
        """How many tokens the policy wrote."""
        return int(np.count_nonzero(self.step >= 0))


def rows_of(trajectories: Sequence[Trajectory], layout: Layout) -> list[Row]:
    """The rows of trajectories, in their order.

    Raises:
        TrajectoryLayoutError: if a prompt does not continue the text before it.
        ValueError: if the policy gave no token ids.
    """
    rows, first = [], 0
    for trajectory in trajectories:
        steps = trajectory.steps
        if any(not step.sample.response_ids for step in steps):
            raise ValueError(f"{trajectory.name}: the policy gave no token ids to learn from")
        if layout == "step":
            rows += [_row([step], first + number) for number, step in enumerate(steps)]
        else:
            rows.append(_row(steps, first, trajectory.name))
        first += len(steps)
    return rows


def _row(steps: Sequence[Step], first: int, name: str = "") -> Row:
    """Steps one after another, as one row; ``first`` is the number of the first of them."""
    prompt = steps[0].sample.prompt_ids
    whole: list[int] = list(prompt)
    owner: list[int] = []
    decides = []
    for number, step in enumerate(steps, start=first):
        prompt_ids = step.sample.prompt_ids
        if list(prompt_ids[: len(whole)]) != whole:
            raise TrajectoryLayoutError(
                f"{name}: the prompt of step {number - first} does not continue the text before "
                "it. The layout 'trajectory' needs a prompt that shows the whole chat, with the "
                "sampled tokens; use layout='step' for other agents"
            )
        observed = prompt_ids[len(whole) :]
        decides.append(len(prompt_ids) - 1)
        owner += [-1] * len(observed) + [number] * len(step.sample.response_ids)
        whole += observed + step.sample.response_ids
    return Row(prompt, tuple(whole[len(prompt) :]), np.array(owner), np.array(decides))


def tensors(rows: Sequence[Row], blank: int, size: int, multiple: int | None = None) -> Tensors:
    """The rows, padded with empty rows that do not contribute to the loss.

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


def can_keep_logits(model: Any) -> bool:
    """Whether a model, perhaps with adapters, can compute the last logits alone."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(type(inner).forward).parameters


def score_completions(
    model: Any, ids: Tensor, mask: Tensor, length: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """Of the last ``length`` tokens of each row: log p(token | all before it), and entropies.

    Without Triton, TRL multiplies every position of the prompt with the whole vocabulary too. With
    prompts twenty times as long as responses that is a large part of an update on a CPU.

    Args:
        model: gives logits z; p = softmax(z / temperature).
        ids: (rows, all tokens).
        mask: 0 where a token is padding; there both results are 0.
        length: tokens of a completion.
        temperature: that of sampling.

    Returns:
        (rows, length) each, in float32.
    """
    logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
    every = (logits.float() / temperature).log_softmax(-1)
    logprobs = every.gather(-1, ids[:, -length:, None])[..., 0]
    padding = mask[:, -length:] == 0
    entropy = -(every.exp() * every).sum(-1)
    return logprobs.masked_fill(padding, 0), entropy.masked_fill(padding, 0)
