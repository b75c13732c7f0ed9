"""The steps of Ascribe's own episodes as texts, which travel with verl's rows.

verl's rows hold tokens, masks and rewards. What a step was (state, action, reward, whether it was
valid) travels from the agent loop to the trainer in each row's ``extra_fields``, as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from ascribe.conversations import Merged, Spans
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import EpisodeFailure, FailedEpisode, Step
from ascribe_lab.rollout.pools.pool import FailureKind
from ascribe_lab.rollout.run import Clock, Rollout, Trajectory
from ascribe_lab.train.iterations import without_texts

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
