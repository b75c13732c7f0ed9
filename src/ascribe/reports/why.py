"""Why a step has the credit that it has, in words that need no knowledge of credit."""

import numpy as np

from ascribe.decisions.decision import amount
from ascribe.groups.events import Calls, Usual
from ascribe.reports.crediting import Credited
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.problems import counted, one_line

REFUSED = "the environment refused this call"


class Reasons:
    """Why steps are credited: what other attempts did, and what became of these.

    Args:
        credited: the steps and their credit.
        calls: the calls of their table.
        outcome: whether each session won, or what it earned.
        graded: whether that is what it earned.
    """

    def __init__(self, credited: Credited, calls: Calls, outcome: Floats, *, graded: bool) -> None:
        self.steps, self.calls, self.outcome, self.graded = credited.steps, calls, outcome, graded
        self.task = self.steps.group_of_trajectory
        self.attempts = segments.size(self.task, self.steps.group_count)
        self.usual = Usual.without_outcomes(calls, self.task)
        self.first = np.searchsorted(calls.place, np.arange(self.steps.rows.size + 1))
        self.by_states = "step" in credited.credit.terms
        self.state = credited.states
        self.order = np.argsort(self.state, kind="stable")
        self.sorted = self.state[self.order]
        made = np.where(calls.refused, -1, calls.call)
        self.by_call = np.argsort(made, kind="stable")
        self.made = made[self.by_call]
        self.members = np.split(np.argsort(self.task, kind="stable"), np.cumsum(self.attempts)[:-1])
        self._tools: dict[int, str] = {}

    def no_credit(self, session: int) -> str:
        """Why all steps of a session have the same credit."""
        if self.attempts[self.task[session]] == 1:
            return "no other attempt at this task, so its steps are compared with nothing"
        own = self.outcome[self.members[self.task[session]]]
        if np.ptp(own) == 0:
            return "all attempts at this task ended alike, so nothing tells its steps apart"
        return "nothing tells the steps of this session apart"

    def of(self, place: int, *, best: bool) -> str:
        """Why the step at a place is the best, or the costliest, of its session."""
        said = self._state(place) if self.by_states else ""
        return said or self._call(place, best=best) or self._state(place) or self._rest(place)

    def _call(self, place: int, *, best: bool) -> str:
        own = np.arange(self.first[place], self.first[place + 1])
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
        low, high = np.searchsorted(self.made, [calls.call[call], calls.call[call] + 1])
        makers = np.unique(calls.session[self.by_call[low:high]])
        makers = makers[(self.task[makers] == self.task[session]) & (makers != session)]
        if makers.size:
            rest = np.setdiff1d(self.members[self.task[session]], [*makers.tolist(), session])
            said = (
                f"{makers.size:,} of {counted(others, 'other attempt')} at this task made this call"
            )
            said += f"; {'it' if makers.size == 1 else 'they'} {self._share(makers)}"
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
        label = self.state[place]
        if label < 0:
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

    def _rest(self, place: int) -> str:
        if self.first[place] == self.first[place + 1]:
            return "it calls nothing, and the other steps of the session are credited otherwise"
        return "no other attempt can be compared with this step"

    def _share(self, sessions: Ints) -> str:
        return f"{'earned' if self.graded else 'won'} {self._amount(sessions)}"

    def _amount(self, sessions: Ints) -> str:
        return amount(float(self.outcome[sessions].mean()), share=not self.graded)
