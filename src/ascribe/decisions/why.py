"""Why a step has the credit that it has, in words that need no knowledge of credit."""

from typing import Any

import numpy as np

from ascribe.decisions.decision import amount
from ascribe.groups.events import Calls, Usual, read_calls
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.problems import counted, one_line
from ascribe.steps.table import StepTable

REFUSED = "this call was refused, which may be an error that the session recovered from"
NEVER = "no attempt at this task won, so this is judged by other tasks: "


class Reasons:
    """Why steps are credited: what other attempts did, and what became of these.

    Args:
        table: the steps.
        calls: their calls, if they were read before.
        outcome: whether each session won, or what it earned; by default whether it earned anything.
        graded: whether that is what it earned.
        states: the state group of each step in canonical order, if credit compares by states.
    """

    def __init__(
        self,
        table: StepTable,
        *,
        calls: Calls | None = None,
        outcome: Floats | None = None,
        graded: bool = False,
        states: Ints | None = None,
    ) -> None:
        self.steps = steps = arrange(table)
        self.calls = calls = read_calls(table) if calls is None else calls
        if outcome is None:
            earned = segments.total(steps.reward, steps.trajectory, steps.trajectory_count)
            outcome = (earned > 0).astype(np.float64)
        self.outcome, self.graded, self.states = outcome, graded, states
        self.task = steps.group_of_trajectory
        self.attempts = segments.size(self.task, steps.group_count)
        self.usual = Usual.without_outcomes(calls, self.task)
        self.first = np.searchsorted(calls.place, np.arange(steps.rows.size + 1))
        made = self._label(self.task[calls.session], calls.call)
        self.by_call = np.argsort(made, kind="stable")
        self.made = made[self.by_call]
        order = np.argsort(self.task, kind="stable")
        self.members = np.split(order, np.cumsum(self.attempts)[:-1])
        self._tools: dict[int, str] = {}
        if states is not None:
            self.order = np.argsort(states, kind="stable")
            self.sorted = states[self.order]

    def _label(self, task: Any, call: Any) -> Any:
        """A number for a call at a task."""
        return task * len(self.calls.calls) + call

    def calls_at(self, place: int) -> Ints:
        """The calls of a step."""
        return np.arange(self.first[place], self.first[place + 1])

    def no_credit(self, session: int) -> str:
        """Why all steps of a session have the same credit."""
        if self.attempts[self.task[session]] == 1:
            return "no other attempt at this task, so its steps are compared with nothing"
        own = self.outcome[self.members[self.task[session]]]
        if np.ptp(own) == 0:
            return "all attempts at this task ended alike, so nothing tells its steps apart"
        return "nothing tells the steps of this session apart"

    def of(self, place: int, *, best: bool = False) -> str:
        """Why a step is the best, or the costliest, of its session; empty if nothing is known."""
        said = self._state(place) or self._call(place, best=best)
        return NEVER + said if said and self.never(int(self.steps.trajectory[place])) else said

    def never(self, session: int) -> bool:
        """Whether none of several attempts at the task of a session won."""
        own = self.outcome[self.members[self.task[session]]]
        return own.size > 1 and not self.graded and not own.any()

    def _call(self, place: int, *, best: bool) -> str:
        own = self.calls_at(place)
        if not own.size:
            return ""
        calls, session = self.calls, int(self.steps.trajectory[place])
        if calls.refused[own].all():
            return REFUSED
        others = int(self.attempts[self.task[session]]) - 1
        if not others:
            return ""
        share = np.where(calls.refused[own], -1.0 if best else 2.0, self.usual.share[own])
        call = int(own[np.argmax(share) if best else np.argmin(share)])
        label = self._label(self.task[session], calls.call[call])
        low, high = np.searchsorted(self.made, [label, label + 1])
        at = self.by_call[low:high]
        at = at[calls.session[at] != session]
        tried = np.unique(calls.session[at])
        makers = np.unique(calls.session[at[~calls.refused[at]]])
        those = makers if makers.size else tried
        if those.size:
            rest = np.setdiff1d(self.members[self.task[session]], [*tried.tolist(), session])
            said = (
                f"{those.size:,} of {counted(others, 'other attempt')} at this task made this call"
            )
            said += "" if makers.size else f" and {'was' if those.size == 1 else 'were'} refused"
            said += f"; {'it' if those.size == 1 else 'they'} {self._share(those)}"
            return said + (
                f", the {rest.size:,} without it {self._amount(rest)}" if rest.size else ""
            )
        return "no other attempt at this task made this call" + self._tool(int(calls.tool[call]))

    def _tool(self, tool: int) -> str:
        """What sessions with a call of the tool that no other attempt made won, and others."""
        if tool not in self._tools:
            calls = self.calls
            same = calls.new & (calls.tool == tool) & (self.usual.others > 0)
            such = np.unique(calls.session[same & (self.usual.share == 0)])
            rest = np.setdiff1d(np.flatnonzero(self.attempts[self.task] > 1), such)
            name = one_line(str(calls.tools[tool]), 40)
            said = f"; sessions with such a `{name}` {self._share(such)}" if such.size else ""
            said += f", else {self._amount(rest)}" if said and rest.size else ""
            self._tools[tool] = said
        return self._tools[tool]

    def _state(self, place: int) -> str:
        """What attempts in the same situation did."""
        if self.states is None or (label := self.states[place]) < 0:
            return ""
        low, high = np.searchsorted(self.sorted, [label, label + 1])
        at = self.order[low:high]
        session = int(self.steps.trajectory[place])
        at = at[self.steps.trajectory[at] != session]
        same = self.steps.action[at] == self.steps.action[place]
        alike = np.unique(self.steps.trajectory[at[same]])
        rest = np.setdiff1d(self.steps.trajectory[at], alike)
        if not alike.size and not rest.size:
            return ""
        count = counted(alike.size + rest.size, "other attempt")
        if not alike.size:
            return f"none of {count} in the same situation did this; they {self._share(rest)}"
        said = f"{alike.size:,} of {count} in the same situation did this and {self._share(alike)}"
        return said + (f", the other {rest.size:,} {self._amount(rest)}" if rest.size else "")

    def _share(self, sessions: Ints) -> str:
        return f"{'earned' if self.graded else 'won'} {self._amount(sessions)}"

    def _amount(self, sessions: Ints) -> str:
        return amount(float(self.outcome[sessions].mean()), share=not self.graded)
