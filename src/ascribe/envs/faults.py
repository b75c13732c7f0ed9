"""What can be wrong with an environment: an enumeration, what to do about each, and the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import unique

from ascribe.steps.problems import Advised, Severity, printable


@unique
class Fault(Advised):
    """Every breach of the contract that ``ascribe env check`` knows, and what to do about it."""

    # What it is.
    CANNOT_BE_MADE = (
        Severity.FATAL,
        "making the environment raises; mend the factory, or give it the options it needs",
    )
    NOT_AN_ENVIRONMENT = (
        Severity.FATAL,
        "give it reset, step and close, and the attribute tasks",
    )
    RESET_FAILS = (
        Severity.FATAL,
        "reset(seed=...) must begin an episode for every seed",
    )
    RESET_WITHOUT_SEED_FAILS = (
        Severity.ERROR,
        "reset() must also begin an episode without a seed; draw one",
    )
    STEP_FAILS = (
        Severity.ERROR,
        "step must answer every text; say in the observation what was wrong, and set valid False",
    )
    WRONG_SHAPE = (
        Severity.FATAL,
        "reset returns (observation, info); step observation, reward, terminated, truncated, info",
    )

    # One seed, one episode.
    UNEQUAL_STARTS = (
        Severity.ERROR,
        "draw everything from a generator made in reset(seed=...); sort what has no fixed order",
    )
    NOT_DETERMINISTIC = (
        Severity.ERROR,
        "the same actions must lead to the same answers; look for clocks, sets, hash() and what "
        "earlier episodes leave behind",
    )
    INSTANCES_DISTURB = (
        Severity.ERROR,
        "instances share something that changes, perhaps a global generator or a class attribute",
    )
    PROCESSES_DIFFER = (
        Severity.ERROR,
        "a new process must give the same episode; look for sets, hash() and process numbers",
    )
    GLOBAL_RANDOM = (
        Severity.WARNING,
        "the environment moves the global generators of random or numpy, which others use too; "
        "give it a generator of its own",
    )
    SEEDS_ALL_ALIKE = (
        Severity.NOTE,
        "every seed begins the same episode; if that is meant, all groups are one task",
    )

    # What it says.
    NOT_TEXT = (
        Severity.ERROR,
        "an observation is a str",
    )
    MALFORMED_TEXT = (
        Severity.ERROR,
        "the text holds half a surrogate pair and cannot be written to a file; replace such "
        "characters",
    )
    MISSING_INFO = (
        Severity.ERROR,
        "info carries every key of INFO_KEYS after reset and after every step",
    )
    WRONG_INFO = (
        Severity.ERROR,
        "give the value the type that docs/environments/contract.md names; numpy's bool is no bool",
    )
    INFO_CHANGES_LATER = (
        Severity.ERROR,
        "an info that was handed out is changed by later steps; hand out a new one every time",
    )
    BAD_REWARD = (
        Severity.ERROR,
        "a reward is a finite float",
    )
    BAD_FLAG = (
        Severity.ERROR,
        "terminated and truncated are bool",
    )
    TERMINATED_AND_TRUNCATED = (
        Severity.WARNING,
        "an episode ends by itself or by the limit, not both; terminated goes first",
    )

    # How an episode begins and ends.
    STEP_BEFORE_RESET = (
        Severity.ERROR,
        "step must raise EpisodeOverError before the first reset",
    )
    STEP_AFTER_END = (
        Severity.ERROR,
        "step must raise EpisodeOverError once the episode has ended, every time",
    )
    REWARD_AFTER_END = (
        Severity.ERROR,
        "a finished episode pays on; trainers that miss the end would count this reward",
    )
    NEVER_ENDS = (
        Severity.WARNING,
        "no episode of random play ended, so ends were not examined; give a horizon, or more steps",
    )
    CLOSE_FAILS = (
        Severity.ERROR,
        "close must not raise, nor when it is called a second time",
    )

    # What can be done.
    ADMISSIBLE_REFUSED = (
        Severity.ERROR,
        "an action is listed as admissible but comes back with valid False; list what is possible",
    )
    DEAD_END = (
        Severity.WARNING,
        "the episode goes on, but no action is admissible; end it, or list None for any text",
    )
    NO_EXAMPLES = (
        Severity.NOTE,
        "any text is allowed and no example_actions are given, so random play only says nonsense",
    )
    HOSTILE_TEXT_CRASHES = (
        Severity.ERROR,
        "a model may say anything; answer in the observation and set valid to False",
    )
    HOSTILE_TEXT_COMES_BACK = (
        Severity.ERROR,
        "the answer to a strange action is not clean; replace half surrogate pairs before echoing",
    )
    HOSTILE_TEXT_SLOW = (
        Severity.WARNING,
        "a long or strange action takes too long; cut actions to a length, avoid backtracking",
    )

    # Tasks.
    BAD_TASK_COUNT = (
        Severity.ERROR,
        "tasks is the number of tasks, at least 1, or None",
    )
    TASK_REFUSED = (
        Severity.ERROR,
        'reset(options={"task": i}) must begin every task from 0 to tasks - 1',
    )
    TASK_OUT_OF_RANGE = (
        Severity.ERROR,
        "a task number that does not exist must raise ValueError",
    )
    TASK_NUMBERS_CHANGE = (
        Severity.ERROR,
        "one number and one seed must begin the same episode in every instance; sort the tasks",
    )
    TASKS_ALL_ALIKE = (
        Severity.WARNING,
        'different task numbers begin the same episode; is options["task"] read?',
    )

    # Going back.
    BY_REPLAY = (
        Severity.NOTE,
        "there are no snapshots; going back plays the episode again, which costs its steps",
    )
    SNAPSHOT_DIFFERS = (
        Severity.ERROR,
        "a restored moment is another one; copy everything that changes, generators too",
    )
    SNAPSHOT_TIED = (
        Severity.ERROR,
        "a snapshot must be restorable in any instance made with the same options",
    )
    SNAPSHOT_NOT_PICKLED = (
        Severity.ERROR,
        "a snapshot must survive pickle, to travel between processes",
    )


@dataclass(frozen=True)
class Finding:
    """One fault, the first place where it showed, and how often it did."""

    fault: Fault
    detail: str
    count: int = 1

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.fault.severity

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        said = f"{self.severity.name.lower()} {self.fault.label}: {self.detail}{times}"
        return f"{printable(said)}. {self.fault.advice[:1].upper()}{self.fault.advice[1:]}."

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
class Report:
    """What was found, worst first, and what was played to find it."""

    findings: Sequence[Finding]
    episodes: int
    """Episodes of random play from start to end or to the limit."""
    steps: int
    steps_per_second: float
    """Of random play, in one process; time in ``reset`` is left out. 0 if nothing was played."""
    goes_back: str | None
    """How the environment goes back: ``snapshot``, ``replay``, or None if that was not examined."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity found, or None if nothing was."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def kept(self) -> bool:
        """Whether the contract is kept: nothing of severity error or worse."""
        return self.worst is None or self.worst < Severity.ERROR

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "kept": self.kept,
            "worst": self.worst.name.lower() if self.worst is not None else None,
            "findings": [finding.as_dict() for finding in self.findings],
            "episodes": self.episodes,
            "steps": self.steps,
            "steps_per_second": self.steps_per_second,
            "goes_back": self.goes_back,
        }
