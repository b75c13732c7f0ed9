"""Rewards in records of model calls: which score is the reward, and whose it is."""

from collections.abc import Collection, Hashable, Iterable
from typing import Any, NamedTuple

from ascribe.steps.errors import InputError
from ascribe.steps.hints import option

SCORES = ("reward", "success", "score")
"""Of several scores, the one with the first of these names is the reward."""


class Score(NamedTuple):
    """A number that a record gives.

    Attributes:
        name: what it is called; empty for the usual field of a reward.
        value: the number, as a record or read.
        target: the call that it is about, by the id of its conversation; None: that of the record,
            or the whole trace.
        time: when it was given.
    """

    name: str
    value: Any
    target: Hashable = None
    time: float | None = None


def choose_name(names: Collection[str]) -> str:
    """The name of the score that is the reward.

    Raises:
        ValueError: if there are several, and none has a usual name.
    """
    if len(names) < 2:
        return next(iter(names), "")
    for usual in ("", *SCORES):
        if usual in names:
            return usual
    raise InputError(
        f"there are several scores: {', '.join(sorted(names)[:12])}",
        hint=f"name the one that is the reward with {option('reward', 'NAME')}",
    )


def latest(scores: Iterable[Score]) -> dict[Hashable, Score]:
    """The latest score of each target; in the order given, where one has no time."""
    found: dict[Hashable, Score] = {}
    for each in scores:
        old = found.get(each.target)
        timed = old is not None and old.time is not None and each.time is not None
        if old is None or not timed or each.time >= old.time:  # type: ignore[operator]
            found[each.target] = each
    return found
