"""One episode while it runs, and what is kept of each of its steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ascribe.agents.agent import Decision, Message, Turn, View
from ascribe.models.policy import Sample
from ascribe.rollout.pools.pool import FailureKind, Reset, StepResult


@dataclass(frozen=True)
class Step:
    """One decision: what was seen, said and done, and what came of it."""

    state: str
    observation: str
    messages: Sequence[Message]
    sample: Sample
    action: str
    """What was carried out; empty if nothing was."""
    valid: bool
    problem: str | None
    """What is wrong with the answer, if something is."""
    reward: float
    terminated: bool
    truncated: bool
    won: bool
    agent: str | None = None
    """Who took the decision, in a team."""


@dataclass(frozen=True)
class Pending:
    """A decision that the environment has not answered yet."""

    messages: Sequence[Message]
    sample: Sample
    decision: Decision


@dataclass
class Episode:
    """An episode that runs: its steps so far, and how to get back to where it is."""

    group: int
    member: int
    begin: Reset
    steps: list[Step] = field(default_factory=list)
    answers: list[StepResult] = field(default_factory=list)
    """What the environment said: to the reset first, then to each action that was carried out."""
    failures: int = 0
    seconds: float = 0.0
    """Time in the environment."""
    pending: Pending | None = None
    attempts: tuple[str, ...] = ()
    """What the agent is shown to correct; nothing in an episode that answers."""

    @property
    def now(self) -> StepResult:
        """The latest answer of the environment."""
        return self.answers[-1]

    @property
    def actions(self) -> list[str]:
        """The actions that were carried out."""
        return [step.action for step in self.steps if step.action]

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)

    def view(self) -> View:
        """What the agent may look at now."""
        turns = [Turn(step.observation, step.sample.text, step.action) for step in self.steps]
        info = self.now.info
        listed = info["admissible_actions"]
        return View(info["task"], self.now.observation, turns, listed, self.attempts)

    def forget(self) -> None:
        """Begin anew."""
        self.steps, self.answers, self.seconds = [], [], 0.0
        self.pending = None

    def carried_out(self, told: StepResult, *, last: bool) -> None:
        """Keep the step that the environment has answered."""
        assert self.pending is not None
        before, decision = self.now, self.pending.decision
        valid = decision.valid and bool(told.info["valid"])
        self._keep(before, told, valid=valid, cut=last or decision.end)
        self.answers.append(told)
        self.seconds += told.seconds

    def passed(self, *, last: bool) -> None:
        """Keep a step at which nothing was carried out."""
        assert self.pending is not None
        before = self.now
        still = StepResult(before.observation, 0.0, False, False, before.info, 0.0)
        self._keep(before, still, valid=False, cut=last or self.pending.decision.end)

    def cut(self) -> None:
        """End the episode with the step that was last."""
        self.steps[-1] = replace(self.steps[-1], truncated=True)

    def _keep(self, before: StepResult, after: StepResult, *, valid: bool, cut: bool) -> None:
        assert self.pending is not None
        self.steps.append(
            Step(
                # Attempts are part of what the agent sees, so they are part of the situation.
                state="\n\n".join([before.info["state"], *self.attempts]),
                observation=before.observation,
                messages=self.pending.messages,
                sample=self.pending.sample,
                action=self.pending.decision.action or "",
                valid=valid,
                problem=self.pending.decision.problem,
                reward=after.reward,
                terminated=after.terminated,
                truncated=not after.terminated and (after.truncated or cut),
                won=bool(after.info["won"]),
                agent=before.info.get("agent"),
            )
        )
        self.pending = None


# Episodes that fail.


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
    """Raise ``RolloutFailedError`` when an episode is given up, instead of dropping its group."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be at least 0, not {self.retries}")
        if self.smallest_group is not None and self.smallest_group < 1:
            raise ValueError(f"smallest_group must be at least 1, not {self.smallest_group}")

    def needs(self, size: int) -> int:
        """How many trajectories a group of ``size`` must have to count."""
        return size if self.smallest_group is None else min(self.smallest_group, size)


@dataclass(frozen=True)
class FailedEpisode:
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
    because: tuple[FailedEpisode, ...]

    def __str__(self) -> str:
        reasons = ", ".join(f"{lost.trajectory} {lost.kind}" for lost in self.because)
        return f"{self.group}: {self.left} of {self.needed} trajectories left ({reasons})"


class RolloutFailedError(RuntimeError):
    """An episode was given up, and the policy is to stop."""

    def __init__(self, lost: FailedEpisode) -> None:
        super().__init__(f"{lost.trajectory}: {lost.kind}: {lost.detail}")
        self.lost = lost
