"""Rewards from a CSV file, joined with sessions by their names."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from ascribe.sessions.copies import said
from ascribe.sessions.messages import Conversation, changed
from ascribe.steps.balance import Balance
from ascribe.steps.errors import InputError
from ascribe.steps.problems import Problem, ProblemKind, TableError, one_line

SESSION = ("session", "trajectory", "session_id", "run_id", "id")
GROUP = ("group", "task")
"""What these columns are called; the first name that the file has counts."""
LONGEST_FIELD = 131_072
"""Characters of a field in a file of rewards."""
MAX_SIZE = 2**28
"""Bytes of a file; the rewards of four million sessions have fewer."""
WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Row:
    """The reward of a session and, if the file has the column, its group."""

    line: int
    session: str
    group: str | None
    reward: float


@dataclass(frozen=True)
class SessionRewards:
    """The rows of a file, and which of them belong to a session that was read.

    Attributes:
        path: the file.
        rows: the row of each name: ``SESSION``, or ``GROUP/SESSION`` where it has a group.
        alone: the row of each session without its group; None if several groups have the name.
        owners: the session of each row, by the row's line.
        missing: the sessions that have no row.
        words: what the session of each row says.
    """

    path: Path
    rows: dict[str, Row] = field(default_factory=dict)
    alone: dict[str, Row | None] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    words: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def read(cls, path: str | Path) -> "SessionRewards":
        """The rewards of a file.

        Raises:
            TableError: if it is no table of sessions and rewards, with the line.
            OSError: if it cannot be opened.
        """
        rewards = cls(Path(path))
        try:
            for row in _rows(rewards.path):
                name = row.session if row.group is None else f"{row.group}/{row.session}"
                if name in rewards.rows:
                    lines = f"lines {rewards.rows[name].line} and {row.line}"
                    raise InputError(
                        f"{lines} name {one_line(name, 80)!r}", hint="keep one of them"
                    )
                rewards.rows[name] = row
                rewards.alone[row.session] = None if row.session in rewards.alone else row
        except InputError as error:
            raise rewards.error(one_line(error.what, 300), error.hint) from error
        except (ValueError, csv.Error) as error:  # also for what is not UTF-8
            raise rewards.error(one_line(error, 300)) from error
        return rewards

    def join(self, conversation: Conversation, called: str) -> Conversation:
        """The conversation with the reward of its session and, if the file has it, its group.

        ``called`` is its name in its own file. If another session has it, too, one of them was
        rewarded, unless both say the same.
        """
        name = f"{conversation.group}/{conversation.trajectory}"
        row = self.rows.get(name) or self.alone.get(conversation.trajectory)
        shared = self.rows.get(f"{conversation.group}/{called}") or self.alone.get(called)
        words = hash(tuple(map(said, conversation.messages)))
        if row is None and (shared is None or (shared.line, words) in self.words):
            self.missing[name] = None
            return changed(conversation, reward=None, rewards=None)
        row = row or shared
        assert row is not None
        self.words.add((row.line, words))
        owner = self.owners.setdefault(row.line, name)
        if owner != name:
            names = f"{one_line(owner, 80)!r} and {one_line(name, 80)!r}"
            raise self.error(f"line {row.line} names {names}", hint="write GROUP/SESSION there")
        group = conversation.group if row.group is None else row.group
        return changed(conversation, group=group, reward=row.reward, rewards=None)

    def check(self, balance: Balance) -> None:
        """Count the rewards without a session; ``TableError`` if no session has a reward."""
        unused = [name for name, row in self.rows.items() if row.line not in self.owners]
        balance.see("reward", len(unused))
        for name in unused:
            balance.leave_out("reward", "no session has its name", name)
        if not self.owners:
            sides = []
            for names, what in ((self.rows, "the file names"), (self.missing, "sessions are")):
                first = ", ".join(repr(one_line(name, 80)) for name in [*names][:3]) or "nothing"
                sides.append(f"{what} {first}{', ...' if len(names) > 3 else ''}")
            raise self.error(
                f"no session has a row: {', and '.join(sides)}", hint="use these names"
            )

    def error(self, detail: str, hint: str = "") -> TableError:
        """The error that names the file."""
        detail = f"{one_line(self.path.name)}: {detail}"
        return TableError([Problem(ProblemKind.BAD_REWARDS, detail, hint=hint)])


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file; ``ValueError`` or ``csv.Error`` for what is wrong with one."""
    if path.stat().st_size > MAX_SIZE:
        raise InputError(
            f"it has more than {MAX_SIZE:,} bytes", hint="import fewer sessions at once"
        )
    csv.field_size_limit(LONGEST_FIELD)  # of the whole process; logs in CSV may set it higher
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        columns = [name.strip() for name in next(reader, [])]
        lines = [(reader.line_num, cells) for cells in reader if cells]
    there = ", ".join(one_line(name, 40) for name in columns[:12]) or "none"
    if len(set(columns)) < len(columns):
        raise InputError(f"a column is there twice: {there}")
    session = next((columns.index(name) for name in SESSION if name in columns), None)
    group = next((columns.index(name) for name in GROUP if name in columns), None)
    if session is None:
        raise InputError("no column session", hint=f"there are: {there}")
    for line, cells in lines:
        if len(cells) != len(columns):
            raise InputError(f"line {line} has {len(cells)} values for {len(columns)} columns")
    others = [place for place in range(len(columns)) if place not in (session, group)]
    numeric = [n for n in others if all(_number(cells[n]) is not None for _, cells in lines)]
    reward = columns.index("reward") if "reward" in columns else None
    if reward is None:
        if len(numeric) != 1:
            raise InputError(
                "no column reward, nor one other column of numbers", hint=f"there are: {there}"
            )
        (reward,) = numeric
    for line, cells in lines:
        number = _number(cells[reward])
        if number is None:
            text = one_line(cells[reward], 40)
            raise InputError(f"line {line}: the reward {text!r} is not a finite number")
        yield Row(line, cells[session], None if group is None else cells[group], number)


def _number(text: str) -> float | None:
    """The finite number, true or false in a text, if it is one."""
    text = text.strip().lower()
    try:
        number = float(text) if "_" not in text else None
    except ValueError:
        number = WORDS.get(text)
    return number if number is not None and isfinite(number) else None
