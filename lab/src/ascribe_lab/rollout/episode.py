"""One episode: its steps while it runs, and what happens if it fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ascribe.steps.errors import AscribeError, InputError
from ascribe_lab.agents.agent import AgentDecision, Message, Turn, View
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.pools.pool import FailureKind, Reset, StepResult


@dataclass(frozen=True)
class Step:
    """One decision: what the agent saw, what the model responded, and what came of it."""

    state: str
    observation: str
    messages: Sequence[Message]
    sample: Sample
    action: str
    """What was carried out; empty if nothing was."""
    valid: bool
    problem: str | None
    """What is wrong with the response, if something is."""
    reward: float
    terminated: bool
    truncated: bool
    won: bool
    agent: str | None = None
    """Who took the decision, in a team."""


@dataclass(frozen=True)
class PendingDecision:
    """A decision that has not been carried out yet."""

    messages: Sequence[Message]
    sample: Sample
    decision: AgentDecision


@dataclass
class RunningEpisode:
    """A running episode: its steps so far, and what is needed to replay them."""

    group: int
    member: int
    reset: Reset
    steps: list[Step] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    """What the environment returned: the reset's result, then one for each action carried out."""
    failures: int = 0
    losses: int = 0
    """Failures that another episode caused."""
    seconds: float = 0.0
    """Time in the environment."""
    pending: PendingDecision | None = None
    attempts: tuple[str, ...] = ()
    """Responses that the agent is shown to correct."""

    @property
    def latest(self) -> StepResult:
        """The latest result of the environment."""
        return self.results[-1]

    @property
    def actions(self) -> list[str]:
        """The actions that were carried out."""
        return [step.action for step in self.steps if step.action]

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)

    def view(self) -> View:
        """What the agent sees now."""
        turns = [Turn(step.observation, step.sample.text, step.action) for step in self.steps]
        info = self.latest.info
        admissible = info["admissible_actions"]
        return View(info["task"], self.latest.observation, turns, admissible, self.attempts)

    def start_over(self) -> None:
        """Forget all steps."""
        self.steps, self.results, self.seconds, self.pending = [], [], 0.0, None

    def agrees(self, results: Sequence[StepResult]) -> bool:
        """Whether a replay gives what is on record, if anything is."""
        return not self.results or list(map(_compared, results)) == list(
            map(_compared, self.results)
        )

    def advance(self, result: StepResult, *, last: bool) -> None:
        """Record the step whose action gave this result; ``last``: the episode is cut here."""
        self._record(result, valid=bool(result.info["valid"]), last=last)
        self.results.append(result)
        self.seconds += result.seconds

    def skip(self, *, last: bool) -> None:
        """Record a step at which no action was carried out."""
        unchanged = replace(self.latest, reward=0.0, terminated=False, truncated=False)
        self._record(unchanged, valid=False, last=last)

    def truncate(self) -> None:
        """End the episode with its last step."""
        self.steps[-1] = replace(self.steps[-1], truncated=True)

    def _record(self, result: StepResult, *, valid: bool, last: bool) -> None:
        assert self.pending is not None
        previous, decision = self.latest, self.pending.decision
        cut = result.truncated or last
        self.steps.append(
            Step(
                # The agent sees the attempts, so they are part of the state.
                state="\n\n".join([previous.info["state"], *self.attempts]),
                observation=previous.observation,
                messages=self.pending.messages,
                sample=self.pending.sample,
                action=decision.action or "",
                valid=decision.valid and valid,
                problem=decision.problem,
                reward=result.reward,
                terminated=result.terminated,
                truncated=cut and not result.terminated,
                won=bool(result.info["won"]),
                agent=previous.info.get("agent"),
            )
        )
        self.pending = None


def _compared(result: StepResult) -> tuple[object, ...]:
    """What must be the same when an episode is replayed."""
    flags = tuple(result.info[key] for key in ("state", "won", "valid"))
    return (result.observation, result.reward, result.terminated, result.truncated, *flags)


# Episodes that fail.


class EpisodeFailure(StrEnum):
    """Why an episode fails though its environment works; for the rest see ``FailureKind``."""

    NOT_REPRODUCIBLE = "not_reproducible"
    """The same actions gave other results the second time."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The very first prompt leaves no room for a response."""
    TOO_LONG = "too_long"
    """It spent more time in its environment than ``Plan.episode_limit``, or on verl more time in
    all."""
    RAISED = "error"
    """An engine's loop raised, because a server or an environment is gone."""


@dataclass(frozen=True)
class FailurePolicy:
    """When an episode is retried, and how many trajectories a group needs.

    A failed episode resumes in a new environment: its actions are replayed, the results compared
    with those on record, and the episode continues from there. No step is lost or doubled. If the
    results differ, the episode starts over.

    Example:
        >>> from ascribe_lab.rollout import FailurePolicy
        >>> FailurePolicy(smallest_group=3).needs(4)
        3
    """

    retries: int = 2
    """How often a failed episode is retried. Crashes caused by other episodes do not count."""
    smallest_group: int | None = None
    """A group with fewer trajectories is dropped, with its reason. None: it needs all of them."""
    stop: bool = False
    """Raise ``RolloutFailedError`` when an episode fails for good; do not drop its group."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"retries must be at least 0, not {self.retries}")
        if self.smallest_group is not None and self.smallest_group < 1:
            raise InputError(f"smallest_group must be at least 1, not {self.smallest_group}")

    def needs(self, size: int) -> int:
        """How many trajectories a group of ``size`` must have; with fewer it is dropped."""
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
    remaining: int
    needed: int
    failed: tuple[FailedEpisode, ...]

    def __str__(self) -> str:
        reasons = ", ".join(f"{episode.trajectory} {episode.kind}" for episode in self.failed)
        return f"{self.group}: {self.remaining} of {self.needed} trajectories left ({reasons})"


class RolloutFailedError(AscribeError, RuntimeError):
    """An episode failed for good, and the policy is to stop."""

    def __init__(self, failed: FailedEpisode) -> None:
        super().__init__(f"{failed.trajectory}: {failed.kind}: {failed.detail}")
        self.failed = failed
