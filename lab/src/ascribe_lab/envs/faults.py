"""What can be wrong with an environment, what to do about it, and the report of a check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import unique
from typing import Any

from ascribe.steps.hints import page
from ascribe.steps.problems import Advised, Severity, printable

NOTE, WARNING, ERROR, FATAL = Severity


@unique
class Fault(Advised):
    """Every breach of the contract that ``ascribe env check`` finds, and what to do about it."""

    # The methods.
    CANNOT_BE_MADE = FATAL, "the factory raises; fix it, or pass the options it needs"
    NOT_AN_ENVIRONMENT = FATAL, "add reset, step, close and the attribute tasks"
    ENDS_ITS_PROCESS = FATAL, "no method may exit or crash; run native code in another process"
    HANGS = FATAL, "every method must return; give up on what the environment waits for"
    RESET_FAILS = FATAL, "reset(seed=...) must begin an episode for every seed"
    RESET_WITHOUT_SEED_FAILS = ERROR, "reset() must begin an episode without a seed too; draw one"
    STEP_FAILS = ERROR, "step must accept any text; explain in the observation, set valid to False"
    WRONG_SHAPE = FATAL, "return (observation, info) from reset, five values from step"

    # One seed, one episode.
    UNEQUAL_STARTS = ERROR, "draw from a generator made in reset(seed=...); sort unordered values"
    NOT_DETERMINISTIC = ERROR, "look for clocks, sets, hash() and state left by earlier episodes"
    INSTANCES_DISTURB = ERROR, "instances share state: a global generator, or a class attribute"
    PROCESSES_DIFFER = ERROR, "a new process differs; look for sets, hash() and process numbers"
    GLOBAL_RANDOM = WARNING, "others use the generators of random and numpy too; make a new one"
    SEEDS_ALL_ALIKE = NOTE, "every seed begins the same episode, so all groups are one task"

    # Observations, rewards and info.
    NOT_TEXT = ERROR, "an observation is a str"
    MALFORMED_TEXT = ERROR, "half a surrogate pair cannot be written to a file; replace it"
    MISSING_INFO = ERROR, "info carries every key of INFO_KEYS after reset and after every step"
    WRONG_INFO = ERROR, f"numpy.bool is no bool; the types: {page('environments/contract')}"
    INFO_CHANGES_LATER = ERROR, "later steps change an info already returned; return a new dict"
    BAD_REWARD = ERROR, "a reward is a finite float"
    BAD_FLAG = ERROR, "terminated and truncated are bool"
    TERMINATED_AND_TRUNCATED = WARNING, "set one of the two; terminated takes precedence"

    # The beginning and the end of an episode.
    STEP_BEFORE_RESET = ERROR, "step must raise EpisodeOverError before the first reset"
    STEP_AFTER_END = ERROR, "step must raise EpisodeOverError every time after the episode's end"
    REWARD_AFTER_END = ERROR, "a finished episode still pays; a trainer may count this reward"
    NEVER_ENDS = WARNING, "no random episode ended, so ends were not checked; set a horizon"
    CLOSE_FAILS = ERROR, "close must not raise, not even when it is called a second time"

    # Actions.
    ADMISSIBLE_REFUSED = ERROR, "a listed action came back with valid False; list what is possible"
    DEAD_END = WARNING, "no action is admissible; end the episode, or list None for any text"
    NO_EXAMPLES = NOTE, "any text is allowed; give example_actions, or random play is nonsense"
    HOSTILE_TEXT_CRASHES = ERROR, "accept any text; explain in the observation, set valid to False"
    HOSTILE_TEXT_COMES_BACK = ERROR, "replace half surrogate pairs before an action is echoed"
    HOSTILE_TEXT_SLOW = WARNING, "limit the length of actions; avoid backtracking expressions"

    # Tasks.
    BAD_TASK_COUNT = ERROR, "tasks is the number of tasks, at least 1, or None"
    TASK_REFUSED = ERROR, 'reset(options={"task": i}) must begin every task from 0 to tasks - 1'
    TASK_OUT_OF_RANGE = ERROR, "a task number that does not exist must raise ValueError"
    TASK_NUMBERS_CHANGE = ERROR, "one number and seed must begin one episode in every instance"
    TASKS_ALL_ALIKE = WARNING, 'all tasks begin the same episode; does reset read options["task"]?'


@dataclass(frozen=True)
class ContractFinding:
    """A fault, where it was first found, and how often."""

    fault: Fault
    detail: str
    count: int = 1

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.fault.severity

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        line = f"{self.severity.name.lower()} {self.fault.label}: {self.detail}{times}"
        return f"{printable(line)}. {self.fault.advice[:1].upper()}{self.fault.advice[1:]}."

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "fault": self.fault.label,
            "severity": self.severity.name.lower(),
            "detail": self.detail,
            "count": self.count,
            "advice": self.fault.advice,
        }


@dataclass(frozen=True)
class ContractReport:
    """The findings of a check, worst first, and how much was played."""

    findings: Sequence[ContractFinding]
    episodes: int
    """Random episodes, played to their end or to the limit."""
    steps: int
    steps_per_second: float
    """Of random play in one process, without the time of ``reset``; 0 if nothing was played."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity, or None without findings."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def kept(self) -> bool:
        """Whether the contract is kept: no finding is an error or worse."""
        return self.worst is None or self.worst < Severity.ERROR

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ContractReport":
        """The report that ``as_dict`` turned into plain values."""
        return cls(
            findings=tuple(
                ContractFinding(Fault[each["fault"].upper()], each["detail"], each["count"])
                for each in values["findings"]
            ),
            **{name: values[name] for name in ("episodes", "steps", "steps_per_second")},
        )

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        worst = self.worst.name.lower() if self.worst is not None else None
        findings = [finding.as_dict() for finding in self.findings]
        return {"kept": self.kept, "worst": worst, **vars(self), "findings": findings}
