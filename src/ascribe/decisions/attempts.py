"""What decisions are compared by: the sessions of a table, their outcomes and their steps."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ascribe.decisions.residuals import strata
from ascribe.groups.events import Calls, read_calls
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, arrange, no_response, twins
from ascribe.steps.returns import episode_outcome
from ascribe.steps.table import StepTable

Scope = Literal["task", "batch"]
"""What may be compared: attempts at one task, or all sessions that met the same state."""
Outcome = Literal["return", "won"]
"""What sessions are compared by."""


@dataclass(frozen=True, eq=False)
class Attempts:
    """Sessions and their steps, in canonical order.

    Attributes:
        table: the steps.
        steps: the same, arranged.
        outcome: what each session is compared by: its return, or 1 if it won and 0 otherwise.
        won: whether each session won.
        version: label of the version of each session; None if there is one.
        versions: the names of these; the last is for sessions without one, if there are any.
        stratum: label of what each session is compared within: its task, or its task and version
            (see ``ascribe.decisions.residuals.strata``); its family, if no task has two sessions
            and the scope is ``batch``.
        state: label of each step's state, -1 for none; equal states of two tasks differ, or with
            the scope ``batch`` those of two families.
        rewritten: whether the context was rewritten after each step, such as by a summary.
        silent: whether each step stands for a session without a response.
        across: whether sessions of different tasks are compared.
        binary: whether every session earned 0 or 1, so that its return says whether it won.
    """

    table: StepTable
    steps: Arranged
    outcome: Floats
    won: Bools
    version: Ints | None
    versions: tuple[str, ...]
    stratum: Ints
    state: Ints
    rewritten: Bools
    silent: Bools
    across: bool
    binary: bool

    @cached_property
    def spread(self) -> float:
        """The largest outcome minus the smallest."""
        return float(np.ptp(self.outcome))

    @cached_property
    def group_sizes(self) -> Ints:
        """How many sessions attempted each task."""
        return segments.size(self.steps.group_of_trajectory, self.steps.group_count)

    @cached_property
    def calls(self) -> Calls:
        """What the steps call."""
        return read_calls(self.table)

    @cached_property
    def ends(self) -> tuple[Bools, Bools]:
        """Whether each step is the last of its session; and whether no call follows.

        Neither is said of a session that a limit cut.
        """
        last = np.append(self.steps.trajectory[1:] != self.steps.trajectory[:-1], True)
        calls = np.bincount(self.calls.place, minlength=last.size)
        if not calls.any():
            return last & ~self.steps.truncated, last & ~self.steps.truncated
        called = np.append(0, np.cumsum(calls))
        after = called[np.flatnonzero(last)[self.steps.trajectory] + 1] - called[1:]
        return last & ~self.steps.truncated, (after == 0) & ~self.steps.truncated

    @cached_property
    def twins(self) -> tuple[Bools, Bools]:
        """Sessions that equal another one step for step; and those that look like its copies."""
        return twins(self.table)

    def first_visits(self) -> Ints:
        """Places of the first visit of each session to each state, state by state."""
        visit, count = segments.pairs(
            self.steps.trajectory, self.state, int(self.state.max(initial=-1)) + 1
        )
        places = segments.first_rows(visit, count)
        return places[np.argsort(self.state[places], kind="stable")]

    def texts(self, places: Ints) -> list[str]:
        """The actions at these places, as the table has them."""
        return [text or "" for text in self.table.action.take(self.steps.rows[places]).texts()]


def attempts(
    table: StepTable,
    *,
    won: Bools | None = None,
    states: Ints | None = None,
    scope: Scope = "task",
    rewritten: Bools | None = None,
    outcome: Outcome = "return",
) -> Attempts:
    """The sessions of a table; arguments of ``ascribe.find_decisions``."""
    if table.corrects is not None and (table.corrects.codes < 0).any():
        # A correction is no attempt at the task.
        correction = table.corrects.codes >= 0
        table = replace(table, padding=table.flag("padding", default=False) | correction)
    steps = arrange(table)
    count = steps.trajectory_count
    returns = episode_outcome(steps.reward, steps.trajectory, count)
    has_won = returns > 0
    if won is not None:
        has_won = segments.total(won[steps.rows].astype(np.float64), steps.trajectory, count) > 0
    silent = no_response(table)[steps.rows]
    task = stratum = within = steps.group_of_trajectory
    version, versions = _versions(table, steps)
    if version is not None:
        stratum = strata(task, version)
    if scope == "batch":
        family = np.zeros(count, dtype=np.int64)
        if table.family is not None:
            codes = table.family.codes[steps.rows[steps.starts]]
            family = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        within = family
        stratum = stratum if count > steps.group_count else family
    label = np.where(silent, -1, steps.state if states is None else states[steps.rows])
    state = exact(within[steps.trajectory], label, int(label.max(initial=-1)) + 1).labels
    compared = returns if outcome == "return" else has_won.astype(np.float64)
    return Attempts(
        table=table,
        steps=steps,
        outcome=compared,
        won=has_won,
        version=version,
        versions=versions,
        stratum=stratum,
        state=state,
        rewritten=np.zeros(steps.rows.size, dtype=np.bool_)
        if rewritten is None
        else rewritten[steps.rows],
        silent=silent,
        across=scope == "batch" and count == steps.group_count,
        binary=bool((has_won == compared).all()),
    )


def without(tried: Attempts, left_out: Bools, **options: Any) -> Attempts:
    """The same without some sessions; with the options that the others were made with."""
    steps = tried.steps
    padding = tried.table.flag("padding", default=False).copy()
    padding[steps.rows[left_out[steps.trajectory]]] = True
    kept = attempts(replace(tried.table, padding=padding), **options)
    return replace(kept, across=tried.across, binary=tried.binary)


def _versions(table: StepTable, steps: Arranged) -> tuple[Ints | None, tuple[str, ...]]:
    """The version of each session, that of its first step, and the names of versions."""
    if table.version is None:
        return None, ()
    column = table.version.take(steps.rows[steps.starts]).used().ordered()
    names = [*map(str, column.values)]
    unknown = column.codes < 0
    if unknown.any():
        names.append("not given")
    if len(names) < 2:
        return None, ()
    return np.where(unknown, len(names) - 1, column.codes), tuple(names)
