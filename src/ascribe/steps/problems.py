"""What can be wrong with a table of steps, and what to do about it.

Readers raise ``TableError`` with the problems that keep them from building a table;
``ascribe.check`` finds the others.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, unique
from typing import Any

import numpy as np

from ascribe.steps.arrays import Brief, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.hints import option, page


class Severity(IntEnum):
    """How bad a problem is.

    Example:
        >>> ascribe.check(table).worst is None
        True
        >>> ascribe.Severity.WARNING < ascribe.Severity.ERROR
        True
    """

    NOTE = 0
    """Worth knowing; no signal is lost."""
    WARNING = 1
    """Credit can be computed, but some signal is lost or diluted."""
    ERROR = 2
    """Credit can be computed, but not the one that was asked for."""
    FATAL = 3
    """No correct credit exists for these rows: recipes refuse them."""


def _with(severity: Severity) -> Callable[[str], tuple[Severity, str]]:
    return lambda advice: (severity, advice)


_note, _warning, _error, _fatal = map(_with, Severity)


class Advised(Enum):
    """A kind of problem with its severity and advice on what to do about it."""

    def __init__(self, severity: Severity, advice: str) -> None:
        self.severity = severity
        self._advice = advice

    @property
    def advice(self) -> str:
        """What to do about it."""
        advice = self._advice.replace("COLUMNS", option("columns", {"reward": "score"}))
        for name in ("same_task", "skip_bad"):
            advice = advice.replace(name.upper(), option(name, True))
        return advice

    @property
    def label(self) -> str:
        """The name in files and on the screen."""
        return self.name.lower()


@unique
class ProblemKind(Advised):
    """Every problem that Ascribe reports, with its severity and what to do about it.

    Example:
        >>> ascribe.ProblemKind.GROUP_OF_ONE.severity
        <Severity.WARNING: 1>
    """

    # The file or its columns.
    UNREADABLE_FILE = _fatal("the file is damaged, cut short or of another format; write it again")
    BAD_LINE = _fatal(
        "every line of a JSONL file must be one JSON object; fix or remove these lines"
    )
    BAD_RECORD = _fatal(
        "the value is not what the format has there; write the file again, or name the format"
    )
    CUT_OFF = _fatal(
        "the file ends in the middle of a record, as after a crash; write it again, or read past "
        "it with SKIP_BAD"
    )
    NO_CONVERSATIONS = _fatal(
        f"the formats, and options for what a format leaves open: {page('import')}"
    )
    BAD_REWARDS = _fatal(
        "a file of rewards has a row for each session: its name in the column session, and reward"
    )
    DUPLICATE_KEY = _fatal("a column or key is given twice, so one value would be lost; keep one")
    UNKNOWN_FORMAT = _fatal(
        "the file was written for another version of the step table format; upgrade ascribe"
    )
    MISSING_COLUMN = _fatal(f"add it, or name yours with COLUMNS: {page('format')}")
    WRONG_TYPE = _fatal(f"write the column with its type: {page('format')}")
    MIXED_TYPES = _fatal("the column mixes text and integers; write one type in every row")
    MALFORMED_TEXT = _fatal(
        "the text is not valid Unicode (a lone surrogate, broken UTF-8); clean it at the source"
    )
    PARTIAL_FLAG = _fatal("fill a yes/no column in every row, or leave it out of the file")
    BAD_FINGERPRINT = _fatal(
        "write the same number of finite numbers for every row, or nothing where there is none"
    )
    UNKNOWN_COLUMN = _note("the column is kept but not read; check its spelling if it should be")
    EMPTY_TABLE = _fatal("there are no rows besides padding; check that the rollouts were written")

    # Which decision a row is.
    MISSING_GROUP = _fatal("give every row the task instance it belongs to")
    MISSING_TRAJECTORY = _fatal("give every row the trajectory it belongs to")
    MISSING_STEP = _fatal("give every row its number in the trajectory: 0, 1, 2, ...")
    NEGATIVE_STEP = _fatal("number the steps of every trajectory 0, 1, 2, ...")
    DUPLICATE_ROW = _fatal(
        "these rows repeat another row; set padding to true for copies that fill a batch"
    )
    DUPLICATE_STEP = _fatal(
        "a trajectory has one step number on two different rows; make trajectory names unique"
    )
    GAP_IN_STEPS = _fatal(
        "a step is missing, and its reward with it; write every step, or drop the group"
    )
    LATE_START = _fatal(
        "the trajectory does not start at step 0; write its first steps, or number from 0"
    )
    STEPS_AFTER_END = _fatal(
        "an environment was stepped after its end; remove the rows after the end"
    )
    TRAJECTORY_IN_TWO_GROUPS = _fatal(
        "make trajectory names unique over the file, for instance group name and index"
    )

    PARENT_NOT_BEFORE = _error(
        "a parent is an earlier step of the trajectory; steps that name each other form a circle"
    )
    ORPHAN_STEP = _error(
        "the parent is no step of the trajectory: write the step that spawned or forked it, too"
    )
    LOST_RESPONSE = _warning(
        "a call was not recorded, and gets no credit: record all calls of a session; examples in a "
        "prompt are fine"
    )
    REPEATED_CONVERSATION = _note("its decisions are counted once")
    UNLINKED_CONVERSATION = _warning(
        "its place in the session is unknown, so it counts as a sub-agent of its own; record the "
        "calls between, or name the parent"
    )

    # What a row holds.
    NO_RESPONSE = _note(
        "the policy wrote nothing: the reward counts for the task, and there is no step to credit"
    )
    NON_FINITE_REWARD = _fatal(
        "the reward is missing in every trajectory, or infinite; fix the reward function, or drop "
        "the group"
    )
    MISSING_REWARD = _warning(
        "these trajectories are left out, and the others of their groups are used; give them a "
        "reward if they have earned one"
    )
    REWARD_TOO_LARGE = _fatal("rewards beyond 1e100 overflow in a variance; scale the reward")
    REWARD_PER_STEP = _warning(
        "the reward of a whole trajectory seems to stand on each of its steps, and would count "
        "once for each; write it on the last step alone"
    )
    MISSING_STATE = _warning(
        "rows without a state get no step-level credit; write the observation before the action"
    )
    EMPTY_STATE = _warning("empty states of a task count as one state; write what the agent saw")
    MISSING_ACTION = _warning(
        "rows without an action have no same-action peers; write what the agent did"
    )
    EMPTY_ACTION = _warning(
        "the response was empty, or parsing lost it; check the parser, or set valid to false"
    )
    MISSING_AGENT = _warning("name the agent in every row, or leave the column out")
    TERMINATED_AND_TRUNCATED = _warning(
        "a step cannot both end the episode and be cut by the limit; set one of the two"
    )
    UNFINISHED_TRAJECTORY = _warning(
        "the file marks ends, but not for these; set truncated where a limit cut the trajectory"
    )
    ALL_ACTIONS_INVALID = _warning(
        "the environment understood no action; check the prompt, or warm the model up first"
    )

    CUT_RESPONSE = _warning(
        "the response ended at a limit on tokens, so its action may be incomplete; raise the limit"
    )
    OBSERVATION_IN_MASK = _error(
        "tokens that the model did not write would be trained on; set their mask to 0"
    )
    REWARD_OFF_MASK = _warning(
        "a trainer that multiplies rewards by the mask loses it; put it on the turn's last token"
    )

    # What a group can teach.
    GROUP_OF_ONE = _warning(
        "one trajectory has nothing to be compared with; sample more, or check the group names"
    )
    PARTIAL_GROUP = _error("rollouts of the group failed; find out why, or drop the group")
    OVERFULL_GROUP = _error("there are more trajectories than declared: two tasks may share a name")
    UNEVEN_GROUPS = _warning(
        "rollouts may be missing, or two tasks share a name; declare the group size to be sure"
    )
    TWIN_TRAJECTORIES = _warning(
        "a policy that samples hardly repeats itself for so long: if these rollouts were written "
        "twice, remove the copies, since each moves the baseline"
    )
    EQUAL_TRAJECTORIES = _note(
        "normal for short tasks or a greedy policy; if rollouts were written twice, remove the "
        "copies, since each moves the baseline"
    )
    PADDING_IN_GROUP = _note(
        "padding rows share a group with real ones; they enter no statistic and get no credit"
    )
    EQUAL_RETURNS = _warning(
        "every trajectory of the group earned the same, so there is no episode-level signal"
    )
    ONLY_PENALTIES_DIFFER = _warning(
        "only invalid-action penalties tell these trajectories apart; do not divide by their std"
    )
    SEVERAL_VERSIONS = _warning(
        "trajectories of several policies are compared as if of one; sample a group with one "
        "version, or correct for it in the loss"
    )
    MIXED_TASKS = _warning(
        "trajectories of different tasks are compared with each other; group them by the task"
    )
    UNSTABLE_START = _warning(
        "a path, an id or a date makes equal states look different; give all runs of a task the "
        "same one, or leave it out of the state and of the name of the group"
    )
    DIFFERENT_STARTS = _warning(
        "the trajectories of a group should start in one state, so nothing in them is called "
        "certain; give the environments one seed, or say SAME_TASK if these are attempts at one "
        "task in other words"
    )
    REWORDED_START = _note(
        "normal where a simulated user words the task anew; check that these are attempts at one "
        "task"
    )
    ALL_STATES_DISTINCT = _warning(
        "no state is visited twice in the group, so exact grouping gives no step-level signal"
    )
    ONE_STATE_ONLY = _warning(
        "every row of the group has the same state; check that the file has the observations"
    )
    STATE_ACROSS_TASKS = _note(
        "the same state occurs in several tasks; keep grouping inside a task"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Brief):
    """One kind of problem, where it is, and a sentence about it.

    ``rows`` are row numbers from 0 in rising order (line numbers, for a line that is not JSON);
    empty if the problem is not about rows. ``count`` is how many rows, trajectories, groups or
    columns have it. ``unlisted`` counts rows with the problem that are not in ``rows``.

    Example:
        >>> problem = ascribe.check(table, group_size=4).problems[0]
        >>> problem.rows.tolist()
        [0, 1, 2, 3, 4]
        >>> problem.advice
        'rollouts of the group failed; find out why, or drop the group'
    """

    kind: ProblemKind
    detail: str
    rows: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    count: int = 1
    unlisted: int = 0
    hint: str = ""
    """What to do about this one, in place of the advice on its kind."""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return self.hint or self.kind.advice

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    @property
    def row_count(self) -> int:
        """How many rows have it."""
        return int(self.rows.size) + self.unlisted

    def __str__(self) -> str:
        rows = ", ".join(str(int(row)) for row in self.rows[:5])
        more = ", ..." if self.row_count > 5 else ""
        where = f" (rows {rows}{more})" if rows else ""
        message = printable(f"{self.kind.label}: {self.detail}{where}")
        advice = self.advice[:1].upper() + self.advice[1:]
        return f"{self.severity.name.lower()} {message}. {advice}."

    def as_dict(self) -> dict[str, object]:
        """Plain values, with at most the first 20 rows, for JSON."""
        return {
            "kind": self.kind.label,
            "severity": self.severity.name.lower(),
            "count": self.count,
            "detail": self.detail,
            "rows": [int(row) for row in self.rows[:20]],
            "row_count": self.row_count,
            "advice": self.advice,
        }


class TableError(InputError):
    """A table that cannot be built or credited, with the problems that say why.

    Attributes:
        problems: what is wrong.
        fields: of a file that is not known, the path, type and beginning of each field.

    Example:
        >>> try:
        ...     ascribe.select(table, "raise", group_size=4)
        ... except ascribe.TableError as error:
        ...     print([problem.kind.label for problem in error.problems])
        ['partial_group']
    """

    fields: Sequence[tuple[str, str, str]] = ()

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        what = "\n".join(f"{problem.detail} ({problem.kind.label})" for problem in self.problems)
        super().__init__(what, hint=self.problems[0].advice if self.problems else "")

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Characters that ``str.isprintable`` accepts although they show nothing: fillers, blanks, and the
variation selectors, in which any text can be hidden."""

_HALF = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of every half of a surrogate pair."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """The text on one line, with an escape for every character that does not print.

    Names, states and actions are untrusted text: terminals obey escape sequences, and what cannot
    be seen makes two texts look the same.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() and not _INVISIBLE.match(c) else c.encode("unicode_escape").decode()
        for c in text
    )


def counted(count: int, thing: str) -> str:
    """``1 group``, ``2 groups``, ``1,000 trajectories``."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("y") else f"{count:,} {thing}s"


_CREDENTIALS = re.compile(r"(?<=://)(?:[^/@\s]{1,999}|[^/@\s:]{1,999}:[^@\s]{1,999})(?=@)")


def without_credentials(location: object) -> str:
    """A path or URI to show: of ``s3://KEY:SECRET@bucket``, without key and secret."""
    return _CREDENTIALS.sub("***", str(location))


def one_line(text: object, most: int = 80) -> str:
    """Untrusted text on one line: printable, and at most ``most`` characters."""
    line = printable(str(text)[: 2 * most])
    return line if len(line) <= most else line[: most - 1] + "…"
