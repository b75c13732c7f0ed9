"""Steps on their way from agent loops to the trainer, as text beside verl's rows.

verl's rows hold tokens, masks and rewards. What a step was (state, action, reward, whether it was
valid) travels in each row's ``extra_fields``, as JSON: it is data and nothing else.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ascribe.engines.crediting import light
from ascribe.models.policy import Sample
from ascribe.rollout.episode import Step
from ascribe.rollout.failures import EpisodeFailure, GivenUp
from ascribe.rollout.pools.pool import FailureKind
from ascribe.rollout.run import Trajectory
from ascribe.steps.arrays import Ints

FIELD = "ascribe"
"""Where it stands in ``extra_fields``."""


def pack(trajectory: Trajectory, *, whole: bool, retries: int = 0) -> list[str]:
    """One text for each step of a trajectory.

    Args:
        trajectory: what was played.
        whole: whether texts and tokens travel too; they are needed to write the rollout down.
        retries: how often the episode was taken up again.
    """
    kept = trajectory if whole else light([trajectory])[0]
    names = ("group", "name", "task", "family", "without", "corrects")
    facts = {name: getattr(kept, name) for name in names}
    return [
        json.dumps({**facts, "retries": retries, "number": number, "step": asdict(step)})
        for number, step in enumerate(kept.steps)
    ]


def pack_lost(lost: GivenUp, retries: int = 0) -> str:
    """The text of a row that stands for an episode that was given up."""
    return json.dumps({"given_up": asdict(lost), "retries": retries})


@dataclass(frozen=True, eq=False)
class Arrived:
    """What came with the rows of a batch."""

    trajectories: tuple[Trajectory, ...]
    rows: Ints
    """The row of each step, in the order of the trajectories."""
    given_up: tuple[GivenUp, ...]
    retries: int
    """How often an episode was taken up again."""


def unpack(texts: Mapping[int, str]) -> Arrived:
    """Put trajectories together again, in the order of their names.

    Args:
        texts: by number of the row; rows that are padding are left out.

    Raises:
        ValueError: if steps of a trajectory are missing.
    """
    given_up: list[GivenUp] = []
    retries = 0
    pieces: dict[str, dict[int, tuple[int, dict[str, Any]]]] = {}
    for row, text in texts.items():
        piece = json.loads(text)
        if not piece.get("number"):  # once for each episode
            retries += piece["retries"]
        if lost := piece.get("given_up"):
            given_up.append(GivenUp(**{**lost, "kind": _kind(lost["kind"])}))
        else:
            pieces.setdefault(piece["name"], {})[piece["number"]] = (row, piece)
    trajectories, rows = [], []
    for name in sorted(pieces):
        found = pieces[name]
        if sorted(found) != list(range(len(found))):
            raise ValueError(f"{name}: steps {sorted(found)} came, and others did not")
        whole = [found[number] for number in range(len(found))]
        rows += [row for row, _ in whole]
        trajectories.append(_trajectory([piece for _, piece in whole]))
    given_up.sort(key=lambda lost: lost.trajectory)
    return Arrived(tuple(trajectories), np.array(rows, dtype=np.int64), tuple(given_up), retries)


def _trajectory(pieces: Sequence[dict[str, Any]]) -> Trajectory:
    first = pieces[0]
    steps = tuple(_step(piece["step"]) for piece in pieces)
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
