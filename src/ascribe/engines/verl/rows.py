"""verl's rows: the steps that travel with them, and the order of the rows in an update.

verl's rows hold tokens, masks and rewards. What a step was (state, action, reward, whether it was
valid) travels from the agent loop to the trainer in each row's ``extra_fields``, as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from ascribe.conversations import Merged, Spans
from ascribe.engines.iterations import without_texts
from ascribe.models.policy import Sample
from ascribe.rollout.episode import EpisodeFailure, FailedEpisode, Step
from ascribe.rollout.pools.pool import FailureKind
from ascribe.rollout.run import Clock, Rollout, Trajectory

FIELD = "ascribe"
"""The key in ``extra_fields``."""


def pack(trajectory: Trajectory, merged: Merged, *, whole: bool, retries: int = 0) -> list[str]:
    """One text for each row of a trajectory.

    Args:
        trajectory: of an episode.
        merged: its rows, and the steps in each.
        whole: whether texts and tokens travel too; they are needed to write the rollouts.
        retries: how often the episode was played again.
    """
    kept = trajectory if whole else without_texts(trajectory)
    names = ("group", "name", "task", "family", "without", "corrects")
    facts = {name: getattr(kept, name) for name in names}
    spans, texts = merged.spans, []
    for rows in merged.rows:
        first = int(spans.start[rows[0]])  # where the response begins
        steps = {
            int(row): [int(spans.start[row]) - first, int(spans.end[row]) - first] for row in rows
        }
        document = {"spans": steps, "steps": [asdict(kept.steps[row]) for row in rows]}
        texts.append(json.dumps({**facts, "retries": retries, **document}))
    return texts


def pack_failed(failed: FailedEpisode, retries: int = 0) -> str:
    """The text of a row that stands for an episode that failed."""
    return json.dumps({"failed": asdict(failed), "retries": retries})


def unpack(texts: Mapping[int, str], lengths: Sequence[int]) -> tuple[Rollout, Spans]:
    """Rebuild the trajectories, in the order of their names.

    Args:
        texts: by number of the row, without padding rows.
        lengths: tokens of the response of every row.

    Returns:
        The rollout, and for each step, in the order of its trajectories, where its tokens are in
        the responses.

    Raises:
        ValueError: if steps of a trajectory are missing.
    """
    failed: list[FailedEpisode] = []
    retries = 0
    pieces: dict[str, dict[int, _Piece]] = {}
    turns = np.zeros(len(lengths), dtype=np.int64)
    for row, text in texts.items():
        document = json.loads(text)
        if fields := document.get("failed"):
            retries += document["retries"]
            failed.append(FailedEpisode(**{**fields, "kind": _kind(fields["kind"])}))
            continue
        own = pieces.setdefault(document["name"], {})
        turns[row] = len(document["steps"])
        for turn, (step, span) in enumerate(document["spans"].items()):
            own[int(step)] = _Piece(document, document["steps"][turn], row, turn, *span)
    trajectories = []
    places: list[tuple[int, ...]] = []
    for name in sorted(pieces):
        steps = [piece for _, piece in sorted(pieces[name].items())]
        numbers = sorted(pieces[name])
        if numbers != list(range(len(steps))):
            raise ValueError(f"{name}: steps {numbers} came, and others did not")
        retries += steps[0].facts["retries"]
        places += [piece.place for piece in steps]
        trajectories.append(_trajectory(steps))
    failed.sort(key=lambda episode: episode.trajectory)
    sequence, turn_of, start, end = np.array(places, dtype=np.int64).reshape(-1, 4).T
    spans = Spans(sequence, start, end, start, turn_of, np.asarray(lengths, dtype=np.int64), turns)
    tokens = int(sum(lengths[row] for row in texts))
    clock = Clock(0.0, 0.0, 0.0, tokens)
    return Rollout(tuple(trajectories), (), tuple(failed), clock, retries), spans


class _Piece(NamedTuple):
    """A step as it came in a row."""

    facts: dict[str, Any]
    step: dict[str, Any]
    row: int
    turn: int
    start: int
    end: int

    @property
    def place(self) -> tuple[int, ...]:
        return self.row, self.turn, self.start, self.end


def _trajectory(pieces: Sequence[_Piece]) -> Trajectory:
    first = pieces[0].facts
    steps = tuple(_step(piece.step) for piece in pieces)
    names = (first["group"], first["name"], first["task"], first["family"])
    without = first["without"] and tuple(first["without"])
    return Trajectory(*names, steps, without, first["corrects"])


def _step(kept: dict[str, Any]) -> Step:
    sample: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in kept["sample"].items()
    }
    return replace(Step(**kept), sample=Sample(**sample))


def _kind(value: str) -> FailureKind | EpisodeFailure:
    if value in set(EpisodeFailure):
        return EpisodeFailure(value)
    return FailureKind(value)


def batch_multiple(unit: int, minibatches: int, rows: int | None) -> int:
    """What the size of a batch is to be a multiple of.

    Args:
        unit: what the size of a minibatch is to be a multiple of.
        minibatches: how many there are, if ``rows`` is None.
        rows: of a minibatch; it has room for so many, or for a few more. A batch then has as many
            minibatches as its rows fill.
    """
    return unit * minibatches if rows is None else -(-rows // unit) * unit


def minibatch_count(learned: int, wanted: int) -> int:
    """How many minibatches these rows fill: as many as are wanted, if none is left empty.

    Otherwise a divisor of the wanted number, so that the minibatches are still of equal size.
    """
    return max(n for n in range(1, wanted + 1) if wanted % n == 0 and n <= max(learned, 1))


def minibatch_order(learned: Sequence[int], size: int, ranks: int, count: int) -> list[int]:
    """An order of all rows in which each minibatch has its share of the rows to learn from.

    Each rank gets one part of the batch, and verl cuts that part into minibatches by place. Rows
    without a token to learn from lie at the end of each part, so the last minibatches would have
    nothing to learn from. Here rows stay with their rank, whose load verl has balanced, and are
    dealt to its minibatches in turn. The deal continues from rank to rank: over all ranks two
    minibatches differ by at most one row.

    Args:
        learned: rows to learn from, in the order in which they are dealt.
        size: rows of the batch, a multiple of ``ranks * count``.
        ranks: processes that train.
        count: minibatches.
    """
    per_rank, room = size // ranks, size // ranks // count
    first = set(learned)
    others = [row for row in range(size) if row not in first]
    order: list[int] = []
    begin = 0
    for rank in range(ranks):
        mine = [row for row in learned if row // per_rank == rank]
        fill = iter([row for row in others if row // per_rank == rank])
        for number in range(count):
            taken = mine[(number - begin) % count :: count]
            order += [*taken, *(next(fill) for _ in range(room - len(taken)))]
        begin = (begin + len(mine)) % count
    return order
