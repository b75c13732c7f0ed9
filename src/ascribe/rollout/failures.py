"""What to do about episodes that fail, and what is told of them afterwards."""

from dataclasses import dataclass
from enum import StrEnum

from ascribe.rollout.pools.pool import FailureKind


class EpisodeFailure(StrEnum):
    """Why an episode fails though its environment answers; for the rest see ``FailureKind``."""

    NOT_REPRODUCIBLE = "not_reproducible"
    """Played again, the environment answered differently."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The very first prompt leaves no room for an answer."""
    TOO_LONG = "too_long"
    """It spent more time in its environment than ``Plan.episode_limit``."""


@dataclass(frozen=True)
class FailurePolicy:
    """When an episode is tried again, and when a group still counts.

    A failed episode is taken up again in a new environment: its actions are played again, the
    observations compared with those on record, and the episode goes on from where it was. No step
    is lost or doubled. If the environment answers differently, the episode begins anew.
    """

    retries: int = 2
    """How often one episode may fail before it is given up. A neighbour's crash does not count."""
    smallest_group: int | None = None
    """A group with fewer trajectories is dropped, with its reason. None: it needs all of them."""
    stop: bool = False
    """Raise ``RolloutFailed`` when an episode is given up, instead of dropping its group."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be at least 0, not {self.retries}")
        if self.smallest_group is not None and self.smallest_group < 1:
            raise ValueError(f"smallest_group must be at least 1, not {self.smallest_group}")

    def needs(self, size: int) -> int:
        """How many trajectories a group of ``size`` must have to count."""
        return size if self.smallest_group is None else min(self.smallest_group, size)


@dataclass(frozen=True)
class GivenUp:
    """An episode that failed for good."""

    group: str
    trajectory: str
    kind: FailureKind | EpisodeFailure
    detail: str
    steps: int
    """How many steps it had taken; none of them is in the result."""
    corrects: str | None = None
    """The trajectory that it was to correct."""


@dataclass(frozen=True)
class DroppedGroup:
    """A group with too few trajectories left; nothing of it is in the result."""

    group: str
    left: int
    needed: int
    because: tuple[GivenUp, ...]

    def __str__(self) -> str:
        reasons = ", ".join(f"{lost.trajectory} {lost.kind}" for lost in self.because)
        return f"{self.group}: {self.left} of {self.needed} trajectories left ({reasons})"


class RolloutFailed(RuntimeError):  # noqa: N818 (named for what happened)
    """An episode was given up, and the policy is to stop."""

    def __init__(self, lost: GivenUp) -> None:
        super().__init__(f"{lost.trajectory}: {lost.kind}: {lost.detail}")
        self.lost = lost
