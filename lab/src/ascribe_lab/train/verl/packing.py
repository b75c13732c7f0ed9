"""The steps of Ascribe's own episodes as texts, which travel with verl's rows.

verl's rows hold tokens, masks and rewards. What a step was (state, action, reward, whether it was
valid) travels from the agent loop to the trainer in each row's ``extra_fields``, as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from ascribe.sessions import Merged, Spans
from ascribe.steps.errors import InputError
from ascribe_lab.rollout.episode import FailedEpisode, Step
from ascribe_lab.rollout.run import Clock, Rollout, Trajectory
from ascribe_lab.train.iterations import without_texts

FIELD = "ascribe"
"""The key in ``extra_fields``."""

_TRAJECTORY, _FAILED = TypeAdapter(Trajectory), TypeAdapter(FailedEpisode)


def pack(trajectory: Trajectory, merged: Merged, *, whole: bool, retries: int = 0) -> list[str]:
    """One text for each row of a trajectory.

    Args:
        trajectory: of an episode.
        merged: its rows, and the steps in each.
        whole: whether texts and tokens travel too; they are needed to write the rollouts.
        retries: how often the episode was played again.
    """
    facts = asdict(trajectory if whole else without_texts(trajectory))
    steps = facts.pop("steps")
    spans, texts = merged.spans, []
    for rows in merged.rows:
        first = int(spans.start[rows[0]])  # where the response begins
        places = {
            int(row): [int(spans.start[row]) - first, int(spans.end[row]) - first] for row in rows
        }
        own = {"retries": retries, "spans": places, "steps": [steps[row] for row in rows]}
        texts.append(json.dumps(facts | own))
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
        if "failed" in document:
            retries += document["retries"]
            failed.append(_FAILED.validate_python(document["failed"]))
            continue
        part = _TRAJECTORY.validate_python(document)
        own = pieces.setdefault(part.name, {})
        turns[row] = len(part.steps)
        for turn, (number, span) in enumerate(document["spans"].items()):
            place = (row, turn, *span)
            own[int(number)] = _Piece(part, part.steps[turn], place, document["retries"])
    trajectories = []
    places: list[tuple[int, ...]] = []
    for name in sorted(pieces):
        numbers = sorted(pieces[name])
        if numbers != list(range(len(numbers))):
            raise InputError(f"{name}: steps {numbers} came, and others did not")
        steps = [pieces[name][number] for number in numbers]
        retries += steps[0].retries
        places += [piece.place for piece in steps]
        whole = replace(steps[0].trajectory, steps=tuple(piece.step for piece in steps))
        trajectories.append(whole)
    failed.sort(key=lambda episode: episode.trajectory)
    sequence, turn_of, start, end = np.array(places, dtype=np.int64).reshape(-1, 4).T
    spans = Spans(sequence, start, end, start, turn_of, np.asarray(lengths, dtype=np.int64), turns)
    tokens = int(sum(lengths[row] for row in texts))
    clock = Clock(0.0, 0.0, 0.0, tokens)
    return Rollout(tuple(trajectories), (), tuple(failed), clock, retries), spans


class _Piece(NamedTuple):
    """A step as it came in a row."""

    trajectory: Trajectory
    """With the steps of the row."""
    step: Step
    place: tuple[int, ...]
    """Row, turn, start and end."""
    retries: int
