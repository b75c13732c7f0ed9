"""What decisions are compared by: the sessions of a table, their outcomes and their steps."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from ascribe.diagnostics import TEXT, tool_of
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable

Scope = Literal["task", "batch"]
"""What may be compared: attempts at one task, or all sessions that met the same state."""
Outcome = Literal["return", "won"]
"""What sessions are compared by."""

MOST_VERBS = 30
"""Commands are told apart by their first word if there are at most so many of these."""


@dataclass(frozen=True, eq=False)
class Attempts:
    """Sessions and their steps, in canonical order.

    Attributes:
        table: the steps.
        steps: the same, arranged.
        outcome: what each session is compared by: its return, or 1 if it won and 0 otherwise.
        won: whether each session won.
        stratum: label of what each session is compared within: its task; its family, if no task
            has two sessions and the scope is ``batch``.
        state: label of each step's state, -1 for none; equal states of two tasks differ, or with
            the scope ``batch`` those of two families.
        tool: number of the tool that each step calls, in ``tools``.
        tools: names of the tools, or first words of commands.
        calls: whether these are tools.
        rewritten: whether the context was rewritten after each step, such as by a summary.
        across: whether sessions of different tasks are compared.
    """

    table: StepTable
    steps: Arranged
    outcome: Floats
    won: Bools
    stratum: Ints
    state: Ints
    tool: Ints
    tools: Objects
    calls: bool
    rewritten: Bools
    across: bool

    @cached_property
    def spread(self) -> float:
        """The largest outcome minus the smallest."""
        return float(np.ptp(self.outcome))

    @cached_property
    def group_sizes(self) -> Ints:
        """How many sessions attempted each task."""
        return segments.size(self.steps.group_of_trajectory, self.steps.group_count)

    @cached_property
    def binary(self) -> bool:
        """Whether every session earned 0 or 1, so that its return says whether it won."""
        return bool(np.isin(self.outcome, (0.0, 1.0)).all() and (self.won == self.outcome).all())

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
    """The sessions of a table; arguments of ``ascribe.decisions.decisions``."""
    if table.corrects is not None and (table.corrects.codes < 0).any():
        # A correction is no attempt at the task.
        correction = table.corrects.codes >= 0
        table = replace(table, padding=table.flag("padding", default=False) | correction)
    steps = arrange(table)
    count = steps.trajectory_count
    returns = segments.total(steps.reward, steps.trajectory, count)
    has_won = returns > 0
    if won is not None:
        has_won = segments.total(won[steps.rows].astype(np.float64), steps.trajectory, count) > 0
    task = stratum = within = steps.group_of_trajectory
    if scope == "batch":
        family = np.zeros(count, dtype=np.int64)
        if table.family is not None:
            codes = table.family.codes[steps.rows[steps.starts]]
            family = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        within = family
        stratum = task if count > steps.group_count else family
    label = steps.state if states is None else states[steps.rows]
    state = exact(within[steps.trajectory], label, int(label.max(initial=-1)) + 1).labels
    names = [tool_of(text) for text in table.action.values]
    calls = set(names) != {TEXT}
    if not calls:
        words = [_first_word(text) for text in table.action.values]
        names = words if 1 < len(set(words)) <= MOST_VERBS else names
    tools, number = np.unique(np.array([*names, TEXT], dtype=object), return_inverse=True)
    return Attempts(
        table=table,
        steps=steps,
        outcome=returns if outcome == "return" else has_won.astype(np.float64),
        won=has_won,
        stratum=stratum,
        state=state,
        tool=number[table.action.codes[steps.rows]],
        tools=tools,
        calls=calls,
        rewritten=np.zeros(steps.rows.size, dtype=np.bool_)
        if rewritten is None
        else rewritten[steps.rows],
        across=stratum is not task,
    )


def _first_word(text: str) -> str:
    match = re.match(r"\s*([\w./-]{1,30})(?![\w./-])", text)
    return match[1] if match else TEXT
