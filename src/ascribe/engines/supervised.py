"""``teach``: supervised learning from lessons, in plain PyTorch.

The loss of a batch is the mean over its response tokens of -log p(token | all before it). Prompts
are read and not learned.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ascribe.engines.lessons import Lesson
from ascribe.models.loading import packages

Tensor = Any
"""A torch tensor. Torch is not imported here but where it is used."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn.

    Attributes:
        steps: updates.
        batch: lessons of an update. All are seen, in an order drawn anew, before one is again.
        learning_rate: the highest; it rises over the first tenth of the steps, then falls to 0,
            both evenly.
        max_grad_norm: a longer gradient is cut to this length.
        most_tokens: tokens, padding included, that go through the model at once; it bounds memory
            and does not change the update.
        seed: of the order.
    """

    steps: int = 20
    batch: int = 8
    learning_rate: float = 5e-5
    max_grad_norm: float = 1.0
    most_tokens: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "most_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0: min((t+1)/r, (T-t)/(T-r+1)) of the highest.

        T is the number of steps and r a tenth of it, at least 1.
        """
        ramp = max(1, self.steps // 10)
        share = min((step + 1) / ramp, (self.steps - step) / (self.steps - ramp + 1))
        return self.learning_rate * share


def teach(
    model: Any,
    lessons: Sequence[Lesson],
    schedule: Schedule,
    progress: Callable[[float], None] = lambda _: None,
) -> list[float]:
    """Train a model on lessons, in place, with AdamW; returns the loss of each step before it.

    Args:
        model: a causal language model, on the device and in the type it is to be trained in.
        lessons: at least one.
        schedule: how long and how fast.
        progress: called with the share of steps that are done.
    """
    torch, _ = packages("actor")
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, weight_decay=0.0)
    losses = []
    with _training(model, schedule.seed):
        for step, batch in zip(range(schedule.steps), _batches(lessons, schedule), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step)
            losses.append(_accumulate(model, batch, schedule.most_tokens))
            torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            progress((step + 1) / schedule.steps)
    return losses


@contextmanager
def _training(model: Any, seed: int) -> Iterator[None]:
    """Training mode, repeatable; on a CPU with eager attention, twice as fast there as sdpa."""
    torch, _ = packages("actor")
    devices = [model.device] if model.device.type == "cuda" else []
    attention = model.config._attn_implementation
    if model.device.type == "cpu":
        model.set_attn_implementation("eager")
    model.train()
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield
    finally:
        model.eval()
        model.set_attn_implementation(attention)


def _batches(lessons: Sequence[Lesson], schedule: Schedule) -> Iterator[list[Lesson]]:
    """Batches without end."""
    waiting: list[int] = []
    for turn in count():
        order = np.random.default_rng([schedule.seed, turn]).permutation(len(lessons))
        waiting += order.tolist()
        while len(waiting) >= schedule.batch:
            batch, waiting = waiting[: schedule.batch], waiting[schedule.batch :]
            yield [lessons[number] for number in batch]


def _accumulate(model: Any, batch: Sequence[Lesson], most_tokens: int) -> float:
    """Add up the gradient of a batch, part by part; returns its loss."""
    total = sum(len(lesson.response) for lesson in batch)
    loss = 0.0
    for part in _parts(batch, most_tokens):
        share = _surprise(model, part) / total
        share.backward()
        loss += float(share.detach())
    return loss


def _parts(batch: Sequence[Lesson], most_tokens: int) -> Iterator[list[Lesson]]:
    """Lessons of like length together, so that little is padding; at least one in each part."""
    part: list[Lesson] = []
    for lesson in sorted(batch, key=_length):
        if part and (len(part) + 1) * _length(lesson) > most_tokens:
            yield part
            part = []
        part.append(lesson)
    yield part


def _length(lesson: Lesson) -> int:
    return len(lesson.prompt) + len(lesson.response)


def _surprise(model: Any, part: Sequence[Lesson]) -> Tensor:
    """Sum over all response tokens of -log p(token | all before it).

    Rows are padded on the left: so responses end together, and only the logits of the last columns
    are computed.
    """
    torch, _ = packages("actor")
    width = max(map(_length, part))
    longest = max(len(lesson.response) for lesson in part)
    ids = torch.zeros((len(part), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(part), longest), -100)
    for row, lesson in enumerate(part):
        ids[row, width - _length(lesson) :] = torch.tensor(lesson.prompt + lesson.response)
        mask[row, width - _length(lesson) :] = 1
        labels[row, longest - len(lesson.response) :] = torch.tensor(lesson.response)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    device = model.device
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.to(device),
        use_cache=False,
        logits_to_keep=longest + 1,
    ).logits[:, :-1]
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten().to(device),
        ignore_index=-100,
        reduction="sum",
    )
