"""Which versions of the policy sampled a batch, and what is done about groups that mix them.

An asynchronous trainer updates the weights while episodes are played, so that one episode may hold
responses of several versions, and a group episodes of several. A version is the number of the
update that made it. Recipes compare the members of a group as if one policy had played them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ascribe.steps.arrays import Ints
from ascribe.steps.errors import AscribeError, InputError

Stale = Literal["drop", "refuse", "credit"]
"""What to do about a group that spans too many versions."""

REASON = "stale"
"""Why such a group is dropped."""


class StaleGroupError(AscribeError, RuntimeError):
    """A group spans more versions of the policy than the run allows."""


@dataclass(frozen=True)
class Staleness:
    """How many versions a group may span, and what is done about one that spans more.

    Attributes:
        versions: None for any number.
        action: leave the group out, stop the run, or credit it all the same.
    """

    versions: int | None = None
    action: Stale = "drop"

    def __post_init__(self) -> None:
        if self.versions is not None and (type(self.versions) is not int or self.versions < 1):
            raise InputError(f"versions must be a whole number above 0, not {self.versions!r}")
        if self.action not in get_args(Stale):
            actions = ", ".join(get_args(Stale))
            raise InputError(f"stale must be one of {actions}, not {self.action!r}")

    def dropped(self, sampled: "SampledVersions", metrics: dict[str, Any]) -> dict[str, str]:
        """The groups to leave out, with the reason; the metrics of staleness are added.

        Raises:
            StaleGroupError: if there is such a group, and the run is to stop then.
        """
        metrics.update(sampled.metrics())
        spans = sampled.spans(sampled.groups)
        stale = [name for name, span in spans.items() if span > (self.versions or span)]
        metrics["ascribe/stale_groups"] = len(stale)
        if stale and self.action == "refuse":
            raise StaleGroupError(
                f"group {stale[0]} was sampled by {spans[stale[0]]} versions of the policy, and "
                f"{self.versions} are allowed: allow more, or set stale to drop or credit"
            )
        return dict.fromkeys(stale, REASON) if self.action == "drop" else {}


@dataclass(frozen=True, eq=False)
class SampledVersions:
    """For each step its group, its trajectory, and the versions that sampled the trajectory."""

    groups: Sequence[Any]
    trajectories: Sequence[Any]
    first: Ints
    last: Ints
    current: int
    """The version that is trained."""

    @classmethod
    def of(
        cls,
        groups: Sequence[Any],
        trajectories: Sequence[Any],
        versions: Sequence[tuple[int | None, int | None]],
        current: int,
        at: Any = slice(None),
    ) -> "SampledVersions":
        """From the first and the last version of each step; None where a loop does not say.

        ``at`` is where those of each step are; by default they are in the order of the steps.
        """
        known = [[current if one is None else one for one in pair] for pair in versions]
        first, last = np.array(known, dtype=np.int64).reshape(-1, 2)[at].T
        return cls(groups, trajectories, first, last, current)

    def spans(self, names: Sequence[Any]) -> dict[Any, int]:
        """How many versions lie between the first and the last of each name, both counted."""
        place = {name: number for number, name in enumerate(dict.fromkeys(names))}
        places = np.fromiter(map(place.__getitem__, names), np.int64, count=len(names))
        low = np.full(len(place), np.iinfo(np.int64).max)
        high = np.full(len(place), np.iinfo(np.int64).min)
        np.minimum.at(low, places, self.first)
        np.maximum.at(high, places, self.last)
        return dict(zip(place, (high - low + 1).tolist(), strict=True))

    def metrics(self) -> dict[str, float]:
        """Versions inside a trajectory and inside a group, and how old the oldest is."""
        if not self.groups:
            return {}
        lag = dict(zip(self.trajectories, (self.current - self.first).tolist(), strict=True))
        found = {
            "versions/trajectory": list(self.spans(self.trajectories).values()),
            "versions/group": list(self.spans(self.groups).values()),
            "versions/lag": list(lag.values()),
        }
        return {
            f"ascribe/{name}_{kind}": float(reduce(values))
            for name, values in found.items()
            for kind, reduce in (("mean", np.mean), ("max", np.max))
        }

    @property
    def columns(self) -> dict[str, Ints]:
        """For the file of rollouts."""
        return {"first_version": self.first, "last_version": self.last}
