"""What can be wrong with a table of steps: an enumeration, and what to do about each.

A ``Problem`` names its kind, the rows it touches and how bad it is. Readers raise ``TableError``
with the problems that stop them from building a table at all; ``ascribe.check`` finds the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, unique

import numpy as np

from ascribe.steps.arrays import Ints


class Severity(IntEnum):
    """How bad a problem is."""

    NOTE = 0
    """Worth knowing; nothing is lost."""
    WARNING = 1
    """Credit can be computed, but some signal is lost or diluted."""
    ERROR = 2
    """Credit can be computed, but not the one that was asked for."""
    FATAL = 3
    """These rows leave no right answer: recipes refuse them."""


class Advised(Enum):
    """Something that can be wrong: how bad it is, and what to do about it."""

    def __init__(self, severity: Severity, advice: str) -> None:
        self.severity = severity
        self.advice = advice

    @property
    def label(self) -> str:
        """The name in files and on the screen."""
        return self.name.lower()


@unique
class ProblemKind(Advised):
    """Every problem that Ascribe reports, with its severity and what to do about it."""

    # The file or the columns.
    UNREADABLE_FILE = (
        Severity.FATAL,
        "the file is damaged, cut short or not of the format its name says; write it again",
    )
    BAD_LINE = (
        Severity.FATAL,
        "every line of a JSONL file must be one JSON object; mend or remove these lines",
    )
    DUPLICATE_KEY = (
        Severity.FATAL,
        "a column or key is given twice, so one value would be lost; keep one",
    )
    UNKNOWN_FORMAT = (
        Severity.FATAL,
        "the file was written for another version of the step table format; upgrade ascribe",
    )
    MISSING_COLUMN = (
        Severity.FATAL,
        "add the column; docs/format.md lists what each one means",
    )
    WRONG_TYPE = (
        Severity.FATAL,
        "write the column with the type that docs/format.md gives for it",
    )
    MIXED_TYPES = (
        Severity.FATAL,
        "the column holds text in some rows and integers in others; write one type throughout",
    )
    MALFORMED_TEXT = (
        Severity.FATAL,
        "the text is not Unicode (half a surrogate pair, broken UTF-8); clean it at the source",
    )
    PARTIAL_FLAG = (
        Severity.FATAL,
        "a yes/no column must be filled in every row or left out of the file",
    )
    BAD_FINGERPRINT = (
        Severity.FATAL,
        "write as many finite numbers for every row, or nothing where there is no fingerprint",
    )
    UNKNOWN_COLUMN = (
        Severity.NOTE,
        "the column is carried along and not read; check its spelling if it was meant to be",
    )
    EMPTY_TABLE = (
        Severity.FATAL,
        "there are no rows besides padding; check that the rollouts were written",
    )

    # Which decision a row is.
    MISSING_GROUP = (
        Severity.FATAL,
        "give every row the task instance it belongs to",
    )
    MISSING_TRAJECTORY = (
        Severity.FATAL,
        "give every row the trajectory it belongs to",
    )
    MISSING_STEP = (
        Severity.FATAL,
        "give every row its number in the trajectory: 0, 1, 2, ...",
    )
    NEGATIVE_STEP = (
        Severity.FATAL,
        "number the steps of every trajectory 0, 1, 2, ...",
    )
    DUPLICATE_ROW = (
        Severity.FATAL,
        "these rows repeat another row exactly; set padding to true for copies that fill a batch",
    )
    DUPLICATE_STEP = (
        Severity.FATAL,
        "one trajectory has the same step twice, and they differ; make trajectory names unique",
    )
    GAP_IN_STEPS = (
        Severity.FATAL,
        "a step is missing, and its reward with it; write every step, or drop the group",
    )
    LATE_START = (
        Severity.FATAL,
        "the trajectory does not start at step 0; write its first steps or number from 0",
    )
    STEPS_AFTER_END = (
        Severity.FATAL,
        "a finished environment kept being stepped; remove the rows after the end",
    )
    TRAJECTORY_IN_TWO_GROUPS = (
        Severity.FATAL,
        "make trajectory names unique over the file, for instance group name and index",
    )

    # What a row holds.
    NON_FINITE_REWARD = (
        Severity.FATAL,
        "the reward is missing, NaN or infinite; mend the reward function or drop the group",
    )
    REWARD_TOO_LARGE = (
        Severity.FATAL,
        "rewards beyond 1e100 overflow in a variance; scale the reward",
    )
    MISSING_STATE = (
        Severity.WARNING,
        "rows without a state get no step-level credit; write the observation before the action",
    )
    EMPTY_STATE = (
        Severity.WARNING,
        "empty states count as one state of their task; write what the agent saw",
    )
    MISSING_ACTION = (
        Severity.WARNING,
        "rows without an action have no same-action peers; write what the agent did",
    )
    EMPTY_ACTION = (
        Severity.WARNING,
        "the agent said nothing, or parsing lost it; check the parser, or set valid to false",
    )
    MISSING_AGENT = (
        Severity.WARNING,
        "name the agent in every row, or leave the column out",
    )
    TERMINATED_AND_TRUNCATED = (
        Severity.WARNING,
        "a step cannot end by itself and by the limit; set one of the two",
    )
    UNFINISHED_TRAJECTORY = (
        Severity.WARNING,
        "the file marks ends, but not for these; set truncated where the limit cut the trajectory",
    )
    ALL_ACTIONS_INVALID = (
        Severity.WARNING,
        "the agent does not speak the environment's language; check the prompt, or warm up first",
    )

    # What a group can teach.
    GROUP_OF_ONE = (
        Severity.WARNING,
        "one trajectory has nothing to be compared with; sample more, or check the group names",
    )
    PARTIAL_GROUP = (
        Severity.ERROR,
        "trajectories of the group were lost; find the failed rollouts, or drop the group",
    )
    OVERFULL_GROUP = (
        Severity.ERROR,
        "more trajectories than declared: two tasks may share a name",
    )
    PADDING_IN_GROUP = (
        Severity.NOTE,
        "padding rows share a group with real ones; they enter no statistic and get no credit",
    )
    EQUAL_RETURNS = (
        Severity.WARNING,
        "every trajectory of the group earned the same: no episode-level signal is to be had",
    )
    ONLY_PENALTIES_DIFFER = (
        Severity.WARNING,
        "only invalid-action penalties tell these trajectories apart; do not divide by their std",
    )
    DIFFERENT_STARTS = (
        Severity.WARNING,
        "the trajectories of a group should start in one state; seed the environments alike",
    )
    ALL_STATES_DISTINCT = (
        Severity.WARNING,
        "no state is visited twice in the group, so exact grouping gives no step-level signal",
    )
    ONE_STATE_ONLY = (
        Severity.WARNING,
        "every row of the group has the same state; check that the observation is what is written",
    )
    STATE_ACROSS_TASKS = (
        Severity.NOTE,
        "the same state text occurs in several tasks; keep grouping inside a task",
    )


def _no_rows() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Problem:
    """One kind of problem, where it was found, and a sentence about it.

    ``rows`` are row numbers of the table from 0 (for a file that could not be read as a table,
    lines from 0), rising; empty where the problem is not about rows. ``count`` is how many things
    (rows, trajectories, groups, columns) show it.
    """

    kind: ProblemKind
    detail: str
    rows: Ints = field(default_factory=_no_rows)
    count: int = 1

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    def __str__(self) -> str:
        said = f"{self.kind.label}: {self.detail}{_where(self.rows)}"
        return f"{self.severity.name.lower()} {printable(said)}. {_sentence(self.kind.advice)}"

    def as_dict(self) -> dict[str, object]:
        """Plain values, with at most the first 20 rows, for JSON."""
        return {
            "kind": self.kind.label,
            "severity": self.severity.name.lower(),
            "count": self.count,
            "detail": self.detail,
            "rows": [int(row) for row in self.rows[:20]],
            "row_count": int(self.rows.size),
            "advice": self.kind.advice,
        }


class TableError(ValueError):
    """A table that cannot be built or credited, with the problems that say why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def printable(text: str) -> str:
    """The text on one line, with whatever does not print shown by its number instead.

    Names of files and columns, states and actions are written by others, and terminals obey escape
    sequences.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _where(rows: Ints) -> str:
    if rows.size == 0:
        return ""
    shown = ", ".join(str(int(row)) for row in rows[:5])
    return f" (rows {shown}{', ...' if rows.size > 5 else ''})"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
