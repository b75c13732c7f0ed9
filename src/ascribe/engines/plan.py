"""Which episodes an iteration plays: groups with seeds that follow from the run's seed alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ascribe.models.seeds import mixed
from ascribe.rollout.episode import Episode
from ascribe.rollout.pools.pool import Reset
from ascribe.rollout.run import Plan


def task_rows(
    count: int, seed: int, name: str, tasks: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """One row for each group that a run plays; row i is the same however many rows there are.

    Args:
        count: how many groups.
        seed: of the run.
        name: groups are called ``name/0``, ``name/1``, ...
        tasks: numbers of tasks; all are played, in an order drawn anew, before one is played again.
            None: the group's seed draws the task.
    """
    return [task_row(number, seed, name, tasks) for number in range(count)]


def task_row(number: int, seed: int, name: str, tasks: Sequence[int] | None) -> dict[str, Any]:
    """Row ``number`` of ``task_rows``."""
    return {
        "prompt": "",  # engines ask for it; prompts come from the environment
        "group": f"{name}/{number}",
        "seed": mixed(seed, number),
        "task": None if tasks is None else _task(tasks, seed, number),
    }


def _task(tasks: Sequence[int], seed: int, number: int) -> int:
    turn, place = divmod(number, len(tasks))
    order = np.random.default_rng([seed, turn]).permutation(len(tasks))
    return int(tasks[order[place]])


@dataclass(frozen=True)
class Seat:
    """One episode: a member of a group."""

    group: str
    member: int
    seed: int
    """Of the group: it says where the episode begins."""
    task: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """What ``reset`` is told besides the task."""
    attempts: tuple[str, ...] = ()
    """What the agent is shown to correct."""


def seats(rows: Iterable[Mapping[str, Any]], before: Iterable[str] = ()) -> list[Seat]:
    """The episodes of rows that are repeated once for each member of their group.

    Args:
        rows: from ``task_rows``, those of one process.
        before: groups of the rows that lie with other processes before these.
    """
    counted = Counter(before)
    found = []
    for row in rows:
        found.append(Seat(row["group"], counted[row["group"]], row["seed"], row["task"]))
        counted[row["group"]] += 1
    return found


@dataclass(frozen=True)
class SeatPlan(Plan):
    """A plan that plays chosen members of groups; the others may be played elsewhere.

    ``size`` is that of a whole group: members that are played elsewhere are not missing.
    """

    seats: tuple[Seat, ...] = ()

    def episodes(self) -> list[Episode]:
        """The episodes of the seats."""
        return [
            Episode(self._numbers[seat.group], seat.member, _begin(seat), attempts=seat.attempts)
            for seat in self.seats
        ]

    def group_name(self, group: int) -> str:
        """The name of a group."""
        return self._names[group]

    def trajectory_name(self, group: int, member: int) -> str:
        """The name of a trajectory."""
        return f"{self._names[group]}/{member}"

    def sample_seed(self, episode: Episode) -> int:
        """The seed of an episode's next sample, whichever process plays it."""
        return mixed(episode.begin.seed, episode.member, len(episode.steps), 1)

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(seat.group for seat in self.seats))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names)}


def _begin(seat: Seat) -> Reset:
    task = {} if seat.task is None else {"task": seat.task}
    return Reset(seat.seed, {**task, **seat.options} or None)
