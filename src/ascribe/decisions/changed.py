"""An old and a new version of an agent: which tasks were lost, what goes along with it, a verdict.

The two files are compared over all tasks and state by state (``ascribe.decisions.versions``), and
task by task. Decisions are sought in both files together, so that a finding holds inside versions
or after what each version earns is subtracted. One of them explains a lost task if attempts of the
new version that lost it were on the worse side more often than attempts of the old version; the
finding that explains the largest share of these attempts is told.

Page: docs/decisions.md. Test: tests/decisions/test_changed.py.
"""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ascribe.decisions import Decisions, Usable, find_decisions, usable
from ascribe.decisions.attempts import Attempts, attempts
from ascribe.decisions.contrasts import LEVEL
from ascribe.decisions.decision import Decision
from ascribe.decisions.versions import Change, compare_versions
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.files import Rollouts
from ascribe.steps.hints import unknown
from ascribe.steps.problems import counted, one_line
from ascribe.steps.table import Coded, StepTable

GATE = f"drop > 0 and q <= {LEVEL:g}"
"""The condition of the verdict if none is given: a drop that is certain."""
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FIELDS = {
    1: ("success", "certain", "sessions", "difference", "low", "high", "p", "q", "better", "worse"),
    2: ("drop", "old", "new", "low", "high", "p", "q", "old_sessions", "new_sessions"),
}
"""What a condition may name, by the number of files."""
Term = tuple[str, str, float]
SILENT = "most sessions of the new version have no reward"
UNCOUNTED = "no session of the new version counts"


@dataclass(frozen=True)
class TaskChange:
    """What attempts at one task won, or earned, before and now, and how many there were."""

    task: str
    old: tuple[float, int]
    new: tuple[float, int]
    explained: bool = False

    @property
    def rise(self) -> float:
        """How much more the new version's attempts earned on average."""
        return self.new[0] / self.new[1] - self.old[0] / self.old[1]


@dataclass(frozen=True, eq=False)
class Changed:
    """What changed from one version to the other.

    Attributes:
        names: of the old and the new version.
        changes: over all tasks that both attempted, then state by state, the surest first.
        missing: tasks of the old version that are not compared, each with the reason.
        notes: what was left out.
        lost: tasks that the new version won less often, the largest loss first.
        gained: tasks that it won more often.
        same: how many tasks it won as often.
        found: decisions in both files together.
        finding: the finding that goes along with most of the loss, if there is one.
        binary: whether attempts win or lose; else they earn.
        kept: rows of both tables that count.
        table: both tables as one.
    """

    names: tuple[str, str]
    changes: tuple[Change, ...]
    missing: dict[str, str]
    notes: tuple[str, ...]
    lost: tuple[TaskChange, ...]
    gained: tuple[TaskChange, ...]
    same: int
    found: Decisions
    finding: Decision | None
    binary: bool
    kept: tuple[Ints, Ints]
    table: StepTable

    @property
    def whole(self) -> Change:
        """The change over all tasks."""
        return self.changes[0]

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """The changes as plain values, which a condition names."""
        return [each.as_dict() for each in self.changes]

    def verdict(self, condition: str = GATE) -> tuple[str, bool]:
        """Whether the condition holds, overall or in a state, and a sentence that says so."""
        failing = failing_of(terms_of(condition, 2), self.described)
        if failing:
            return f"failed: {condition}: {failing[0]['text']}", True
        text = f"passed: {condition} holds neither over all tasks nor in any state"
        if condition == GATE:
            text = "passed: the new version is not certainly worse, over all tasks or in any state"
        if self.missing:
            text += f"; {counted(len(self.missing), 'task')} could not be compared"
        return text, False


def compare_files(
    old: Rollouts, new: Rollouts, *, names: tuple[str, str] = ("old", "new")
) -> Changed:
    """Compare two versions of an agent, in every way that ``Changed`` tells.

    Raises:
        TableError: if nothing in a file counts.
        ValueError: if no task was attempted by both.
    """
    before, now = usable(old), usable(new)
    found = compare_versions(before.rollouts.table, now.rollouts.table)
    lost = dict.fromkeys(now.lost, UNCOUNTED)
    missing = {task: lost.get(task, why) for task, why in found.missing.items()}
    attempted = {*map(str, before.rollouts.table.group.used().values)}
    for task in filter(attempted.__contains__, now.thin):
        missing.setdefault(task, SILENT)
    table, won = joined((before, now), names)
    both = find_decisions(table, won=won)
    tried = attempts(table, won=won)
    is_new = versions_of(tried, names[1])
    tasks = _tasks(tried, is_new, missing)
    fell = [number for number, each in tasks if each.rise < -1e-9]
    finding, explained = _explaining(both, tried, is_new, fell)
    told = [replace(each, explained=number in explained) for number, each in tasks]
    by_loss = sorted(told, key=lambda each: (each.rise, each.task))
    return Changed(
        names=names,
        changes=found.changes,
        missing=missing,
        notes=_notes((before, now), missing, found.copies),
        lost=tuple(each for each in by_loss if each.rise < -1e-9),
        gained=tuple(each for each in by_loss[::-1] if each.rise > 1e-9),
        same=sum(abs(each.rise) <= 1e-9 for each in told),
        found=both,
        finding=finding,
        binary=tried.binary,
        kept=(before.rows, now.rows),
        table=table,
    )


def joined(parts: Sequence[Usable], names: Sequence[str]) -> tuple[StepTable, Bools | None]:
    """Both tables as one: tasks keep their names, the column ``version`` tells the files apart."""
    tables = [part.rollouts.table for part in parts]
    columns: dict[str, Any] = {}
    shared = set(tables[0].columns()) & set(tables[1].columns())
    sizes = [len(table) for table in tables]
    played = {
        name: [_sessions(table, known, name) for table, known in zip(tables, names, strict=True)]
        for name in ("trajectory", "corrects")
        if name in shared
    }
    clash = bool({*played["trajectory"][0]} & {*played["trajectory"][1]})
    for name in tables[0].columns():
        one, two = (getattr(table, name) for table in tables)
        if name in played:
            columns[name] = Coded.encode(
                [
                    f"{known}: {text}" if clash and text is not None else text
                    for part, known in zip(played[name], names, strict=True)
                    for text in part
                ]
            )
        elif name in {"iteration", "version"}:
            continue
        elif isinstance(one, Coded) and name in shared:
            columns[name] = Coded.encode([*one.texts(), *two.texts()])
        elif name in shared and one.shape[1:] == two.shape[1:]:
            columns[name] = np.concatenate([one, two])
    for name in ("valid", "padding", "terminated", "truncated"):
        flags = [table.flag(name, default=name == "valid") for table in tables]
        columns[name] = np.concatenate(flags)
    versions = [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]
    columns["version"] = Coded.encode(versions)
    known = [flag for part in parts if (flag := part.rollouts.flag("won")) is not None]
    return StepTable(**columns), np.concatenate(known) if len(known) == len(parts) else None


def _sessions(table: StepTable, version: str, name: str) -> list[str | None]:
    """A column that names sessions, told apart over the iterations of a file."""
    texts = getattr(table, name).texts()
    if table.iteration is None:
        return [*texts]
    pairs = zip(table.iteration, texts, strict=True)
    return [None if t is None else f"{version}, iteration {i}: {t}" for i, t in pairs]


def versions_of(tried: Attempts, name: str) -> Bools:
    """Whether each session is of the version of this name."""
    column = tried.table.version
    assert column is not None
    texts = column.take(tried.steps.rows[tried.steps.starts]).texts()
    return np.array([text == name for text in texts], dtype=np.bool_)


def _tasks(
    tried: Attempts, is_new: Bools, missing: Mapping[str, str]
) -> list[tuple[int, TaskChange]]:
    """The tasks that both versions attempted, by their labels."""
    steps = tried.steps
    group, count = steps.group_of_trajectory, steps.group_count
    size, earned = (
        [np.bincount(group[side], values[side], count).tolist() for side in (~is_new, is_new)]
        for values in (np.ones(group.size), tried.outcome)
    )
    firsts = np.searchsorted(group, np.arange(count))
    names = tried.table.group.take(steps.rows[steps.starts[firsts]]).texts()
    return [
        (
            task,
            TaskChange(
                str(names[task]),
                (earned[0][task], int(size[0][task])),
                (earned[1][task], int(size[1][task])),
            ),
        )
        for task in range(count)
        if size[0][task] and size[1][task] and names[task] not in missing
    ]


def _explaining(
    found: Decisions, tried: Attempts, is_new: Bools, lost: Sequence[int]
) -> tuple[Decision | None, set[int]]:
    """The finding that goes along with most of the loss, and the lost tasks that it explains."""
    steps = tried.steps
    group, outcome = steps.group_of_trajectory, tried.outcome
    session_of_row = steps.to_table_order(steps.trajectory, len(tried.table), -1)
    inside = np.isin(group, np.array(lost, dtype=np.int64))
    best = np.full(steps.group_count, -np.inf)
    np.maximum.at(best, group[~is_new], outcome[~is_new])
    failed, before = inside & is_new & (outcome < best[group]), inside & ~is_new
    most, chosen, explained = 0.0, None, set[int]()
    if not failed.any():
        return chosen, explained
    for each in found.findings:
        worse = np.zeros(group.size, dtype=np.bool_)
        worse[session_of_row[each.worse.rows]] = True
        beyond = float(worse[failed].mean() - worse[before].mean())
        if each.p <= LEVEL and beyond > most:
            share = [
                np.bincount(group[side & worse], minlength=best.size)
                / np.maximum(np.bincount(group[side], minlength=best.size), 1)
                for side in (failed, before)
            ]
            most, chosen = beyond, each
            explained = {*np.flatnonzero(share[0] > share[1]).tolist()} & {*lost}
    return chosen, explained


def _notes(
    parts: tuple[Usable, Usable], missing: Mapping[str, str], copies: int
) -> tuple[str, ...]:
    """What was left out, and why."""
    named = zip(("old", "new"), parts, strict=True)
    notes = [f"Of the {name} version: {note}" for name, part in named for note in part.notes]
    for why in dict.fromkeys(missing.values()):
        tasks = [one_line(task, 60) for task, reason in missing.items() if reason == why]
        notes.append(f"Not compared: {counted(len(tasks), 'task')}, {why}: {', '.join(tasks)}.")
    if copies:
        notes.append(
            f"{counted(copies, 'session')} look like copies of another one. Nothing is surer "
            "than it is with each of them counted once."
        )
    return tuple(notes)


# Conditions, such as those of ``--fail-if``.


def terms_of(condition: str, files: int) -> list[Term]:
    """The comparisons of a condition such as ``drop > 0.1 and q < 0.1``.

    Raises:
        ValueError: for any other condition.
    """
    terms = []
    for part in condition.split(" and "):
        match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|<|>)\s*(-?[0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*", part)
        if match is None:
            raise InputError(
                f"cannot read the condition '{one_line(part)}'",
                hint="write a name, <, <=, > or >=, and a number: drop > 0.1 and q < 0.1",
            )
        if match[1] not in FIELDS[files]:
            raise unknown("name in --fail-if", one_line(match[1]), FIELDS[files])
        terms.append((match[1], match[2], float(match[3])))
    return terms


def failing_of(
    terms: Sequence[Term], described: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What fulfils every term; nothing does without terms, or where a number is not known."""
    return [
        each
        for each in described
        if terms
        and all(
            each.get(name) is not None and OPERATORS[sign](each[name], value)
            for name, sign, value in terms
        )
    ]
