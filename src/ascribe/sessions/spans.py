"""Where the tokens of steps are, and credit onto them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Brief, Floats, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe.steps.table import StepTable

Loss: TypeAlias = Literal["token-mean", "row-mean", "row-sum"]
"""How a trainer aggregates the loss of tokens."""


@dataclass(frozen=True, eq=False, repr=False)
class Spans(Brief):
    """Where the tokens of each step are.

    All but the last three have one entry per row of the table.

    Attributes:
        sequence: the sequence that holds the step.
        start: column of the step's first token.
        end: column after its last token; equal to ``start`` for a step without tokens.
        prompt: how many tokens of the sequence come before the model's turn, padding not counted.
            The last of them is where the state's fingerprint is taken.
        turn: which of the sequence's runs the step is, from 0; -1 for a step without tokens.
        lengths: columns of each sequence.
        turns: runs of each sequence, with those that another sequence holds too.
        width: columns of the array that holds the sequences; None if each has an array of its own.

    Example:
        >>> from ascribe.sessions import from_sequences
        >>> tokens, mask = [[7, 1, 2, 8, 3]], [[0, 1, 1, 0, 1]]
        >>> _, spans = from_sequences(tokens, mask, group=["g"], reward=[1.0])
        >>> spans.start.tolist(), spans.end.tolist()
        ([1, 4], [3, 5])
    """

    sequence: Ints
    start: Ints
    end: Ints
    prompt: Ints
    turn: Ints
    lengths: Ints
    turns: Ints
    width: int | None = None

    def __len__(self) -> int:
        return int(self.sequence.size)

    def take(self, sequences: Ints) -> tuple[Ints, "Spans"]:
        """A minibatch: the rows of the table that these sequences hold, and their spans."""
        place = np.full(self.lengths.size, -1, dtype=np.int64)
        place[sequences] = np.arange(len(sequences))
        rows = np.flatnonzero(place[self.sequence] >= 0)
        rows = rows[np.argsort(place[self.sequence[rows]], kind="stable")]
        names = ("start", "end", "prompt", "turn")
        columns = {name: getattr(self, name)[rows] for name in names}
        sequence = place[self.sequence[rows]]
        lengths, turns = self.lengths[sequences], self.turns[sequences]
        return rows, Spans(sequence, **columns, lengths=lengths, turns=turns, width=self.width)

    def pad(self, width: int, shift: Any = 0, *, cut: bool = False) -> "Spans":
        """The spans in an array of ``width`` columns, where sequences begin at another column.

        Args:
            width: columns of the array.
            shift: the column of each sequence's first token: one number, or one per sequence. It is
                the padding on the left, or minus the prompt's length if the array lacks the prompt.
            cut: drop tokens outside of the array instead of refusing them.

        Raises:
            ValueError: if a step's tokens are outside of the array.
        """
        moved = np.broadcast_to(np.asarray(shift), self.lengths.shape)[self.sequence]
        start, end = self.start + moved, self.end + moved
        outside = np.flatnonzero(((start < 0) | (end > width)) & (start < end))
        if outside.size and not cut:
            row = outside[0]
            raise InputError(
                f"{outside.size:,} steps have tokens outside of the {width:,} columns; the first "
                f"is in sequence {self.sequence[row]}, columns {start[row]:,} to {end[row]:,}. "
                "Make the array wider, or pass cut=True to lose these tokens"
            )
        start, end = start.clip(0, width), end.clip(0, width)
        lengths = np.full_like(self.lengths, width)
        return replace(self, start=start, end=end, lengths=lengths, width=width)


@dataclass(frozen=True, eq=False)
class Ragged(Sequence[Any]):
    """Rows of different lengths that are parts of one array."""

    values: npt.NDArray[Any]
    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[Any]]) -> "Ragged":
        """Arrays end to end."""
        sizes = np.array([row.size for row in rows], dtype=np.int64)
        values = np.concatenate(rows) if len(rows) else np.zeros(0)
        return cls(values, np.cumsum(sizes) - sizes, sizes)

    def __len__(self) -> int:
        return int(self.sizes.size)

    def __getitem__(self, row: Any) -> Any:
        return self.values[self.starts[row] : self.starts[row] + self.sizes[row]]

    def any_of(self, flat: Any) -> Any:
        """For each row whether any of its numbers is not 0, given those of all end to end."""
        found = np.zeros(len(self), dtype=np.bool_)
        full = np.flatnonzero(self.sizes)
        if full.size:
            before = (np.cumsum(self.sizes) - self.sizes)[full]
            found[full] = np.logical_or.reduceat(flat, before)
        return found

    def flat(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The rows end to end."""
        before = np.append(0, np.cumsum(self.sizes))
        flat, shift = np.empty(before[-1], dtype), self.starts - before[:-1]
        for low in range(0, flat.size, 1 << 20):  # bounds the memory of the places
            high = min(low + (1 << 20), flat.size)
            first, last = np.searchsorted(before, (low, high - 1), side="right") - 1
            count = np.diff(before[first : last + 2].clip(low, high))
            places = np.repeat(shift[first : last + 1], count) + np.arange(low, high)
            flat[low:high] = self.values[places]
        return flat


def turn_starts(mask: Any, bounds: Any = 0) -> Ints:
    """The first token of each run of the model's tokens; a run ends where a row begins."""
    written = np.asarray(mask) != 0
    begins = written.copy()
    begins[1:] &= ~written[:-1]
    edges = np.unique(bounds)
    edges = edges[edges < written.size]
    begins[edges] = written[edges]
    return np.flatnonzero(begins)


def spread(credit: Any, spans: Spans, *, divide: bool = False, like: Any = None) -> Any:
    """Advantages on tokens: those of a step have the step's advantage, all others have 0.

    Args:
        credit: a ``Credit``, or one number for each row of the table.
        spans: where the tokens of each row are.
        divide: whether to divide a step's advantage by its number of tokens, so that they sum to
            it.
        like: an array or tensor; the result is of its library, device and type (of single precision
            if it holds no fractions), and must have its shape if both are of two dimensions.

    Returns:
        (sequences, columns) for padded sequences, otherwise a list with one array for each.

    Example:
        >>> from ascribe.sessions import from_sequences, spread
        >>> tokens, mask = [[7, 1, 2, 8, 3], [7, 4]], [[0, 1, 1, 0, 1], [0, 1]]
        >>> steps, spans = from_sequences(tokens, mask, group=["g", "g"], reward=[1.0, 0.0])
        >>> [row.tolist() for row in spread(recipe("dr_grpo")(steps), spans)]
        [[0.0, 0.5, 0.5, 0.0, 0.5], [0.0, -0.5]]
    """
    advantage = _advantages(credit, spans)
    size = spans.end - spans.start
    rows = np.flatnonzero(size)
    if divide:
        advantage = advantage / np.maximum(size, 1)
    bounds = np.append(0, np.cumsum(spans.lengths))
    first = bounds[spans.sequence] + spans.start
    rows = rows[np.argsort(first[rows], kind="stable")]
    # Gaps and steps alternate, and the last is a gap.
    value, count = np.zeros(2 * rows.size + 1), np.zeros(2 * rows.size + 1, dtype=np.int64)
    value[1::2], count[1::2] = advantage[rows], size[rows]
    count[::2] = np.append(first[rows], bounds[-1]) - np.append(0, (first + size)[rows])
    if count.min() < 0:
        number = spans.sequence[rows[np.flatnonzero(count[::2] < 0)[0] - 1]]
        raise InputError(f"two steps share tokens of sequence {number}")
    if like is not None:
        value = value.astype(_precision(like))
    flat = np.repeat(value, count)
    if like is not None and hasattr(like, "new_tensor"):
        template = like if like.is_floating_point() else like.new_empty(0).float()
        flat = template.new_tensor(flat)
    if spans.width is None:
        return [flat[i:j] for i, j in pairwise(bounds)]
    shape = (spans.lengths.size, spans.width)
    if getattr(like, "ndim", 0) == 2 and tuple(like.shape) != shape:
        raise InputError(
            f"the spans are of an array of shape {shape}, like has {tuple(like.shape)}",
            hint="Spans.pad moves them to another width",
        )
    return flat.reshape(shape)


def loss_weights(
    table: StepTable,
    spans: Spans,
    loss: Loss = "token-mean",
    *,
    mask: Any = None,
) -> Floats:
    """A weight for each sequence, so that a session counts once whatever the number of its rows.

    Multiply the loss, or the advantages, of a sequence by its weight. The loss of a batch is then
    the mean over sessions of the mean over a session's tokens (``row-sum``: of the sum over them),
    although the trainer computes another mean:

    - ``token-mean``: over all tokens of the batch (``N`` tokens): the weight is ``N / (S N_s)``;
    - ``row-mean``: over the tokens of each sequence, then over sequences (``R`` of them):
      ``R N_r / (S N_s)``;
    - ``row-sum``: the sum over the tokens of each sequence, the mean over sequences: ``R / S``,

    with ``S`` sessions, ``N_s`` tokens of the session's steps and ``N_r`` tokens of the sequence.

    Args:
        table: the steps.
        spans: where their tokens are.
        loss: how the trainer aggregates.
        mask: the trainer's loss mask, if it holds more than the tokens of the steps: the tokens of
            responses that another sequence holds too are counted by the trainer, not by the weight.

    Example:
        >>> from ascribe.sessions import from_sequences, loss_weights
        >>> tokens, mask = [[7, 1, 2, 8, 3], [7, 4]], [[0, 1, 1, 0, 1], [0, 1]]
        >>> steps, spans = from_sequences(tokens, mask, group=["g", "g"], reward=[1.0, 0.0])
        >>> loss_weights(steps, spans, "token-mean").round(2).tolist()
        [0.67, 2.0]
    """
    if loss not in get_args(Loss):
        raise unknown("loss", loss, get_args(Loss))
    rows = spans.lengths.size
    size = spans.end - spans.start
    session = np.full(rows, -1, dtype=np.int64)
    session[spans.sequence] = table.trajectory.codes
    tokens = np.bincount(spans.sequence, size, minlength=rows)
    of_session = np.bincount(table.trajectory.codes, size, minlength=table.trajectory.values.size)
    sessions = max(np.count_nonzero(of_session), 1)
    counted = tokens
    if mask is not None:
        counted = np.array([np.count_nonzero(as_numpy(each)) for each in mask], dtype=np.float64)
        if counted.size != rows:
            raise InputError(f"the mask has {counted.size} rows for {rows} sequences")
    weights = np.zeros(rows)
    held = np.flatnonzero(tokens)
    share = {"token-mean": counted.sum(), "row-mean": rows * counted[held], "row-sum": rows}[loss]
    weights[held] = share / sessions
    if loss != "row-sum":
        weights[held] /= of_session[session[held]]
    return weights


def per_turn(credit: Any, spans: Spans) -> list[Floats]:
    """For each sequence, the advantage of each of its runs; 0 for one that another holds too.

    Example:
        >>> from ascribe.sessions import from_sequences, per_turn
        >>> tokens, mask = [[7, 1, 2, 8, 3], [7, 4]], [[0, 1, 1, 0, 1], [0, 1]]
        >>> steps, spans = from_sequences(tokens, mask, group=["g", "g"], reward=[1.0, 0.0])
        >>> [row.tolist() for row in per_turn(recipe("dr_grpo")(steps), spans)]
        [[0.5, 0.5], [-0.5]]
    """
    advantage = _advantages(credit, spans)
    bounds = np.append(0, np.cumsum(spans.turns))
    rows = np.flatnonzero(spans.turn >= 0)
    flat = np.zeros(bounds[-1])
    flat[bounds[spans.sequence[rows]] + spans.turn[rows]] = advantage[rows]
    return [flat[i:j] for i, j in pairwise(bounds)]


def _advantages(credit: Any, spans: Spans) -> Floats:
    advantage = np.asarray(as_numpy(getattr(credit, "advantage", credit)), dtype=np.float64)
    if advantage.shape != (len(spans),):
        raise InputError(
            f"advantages of shape {advantage.shape} for the spans of {len(spans)} rows"
        )
    return advantage


def _precision(like: Any) -> npt.DTypeLike:
    """The type in which to compute for ``like``; torch rounds to half precision itself."""
    if hasattr(like, "new_tensor"):
        return np.float64 if like.element_size() == 8 and like.is_floating_point() else np.float32
    return like.dtype if like.dtype.kind == "f" else np.float32


def as_numpy(values: Any) -> Any:
    """A tensor as a numpy array; anything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    # numpy has no bfloat16.
    return (values.double() if values.is_floating_point() else values).numpy()
