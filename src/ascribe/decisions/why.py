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

REFUSED = (
    "this call was refused, which may be an error that the session recovered from",
    "this call was refused, which harmed less than the other steps did",
)
NEVER = "no attempt at this task won, so this is judged by other tasks: "
ALONE = "no other attempt was in this situation, so only how this attempt ended counts"
RARE = (
    "; a call that fewer others make counts against an attempt",
    "; a call that more of the others make counts for an attempt",
)
"""What the costliest, and the best, call rests on if nothing that became of others agrees."""


class Reasons:
    """Why steps are credited: what other attempts did, and what became of these.

    What became of them is told where it agrees with the credit; else what the number rests on.

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
        share = segments.mean(self.usual.share, calls.session, calls.sessions)
        self.rarer = self.usual.share < share[calls.session]
        made = self._label(self.task[calls.session], calls.call)
        self.by_call = np.argsort(made, kind="stable")
        self.made = made[self.by_call]
        order = np.argsort(self.task, kind="stable")
        self.members = np.split(order, np.cumsum(self.attempts)[:-1])
        self._tools: dict[int, tuple[Ints, Ints]] = {}
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
        if self.states is not None:
            return self._state(place, best=best)
        said = self._call(place, best=best)
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
            return REFUSED[best]
        others = int(self.attempts[self.task[session]]) - 1
        if not others:
            return ""
        call = int(own[np.argmin(np.where(calls.refused[own], 2.0, self.usual.share[own]))])
        label = self._label(self.task[session], calls.call[call])
        low, high = np.searchsorted(self.made, [label, label + 1])
        at = self.by_call[low:high]
        at = at[calls.session[at] != session]
        tried = np.unique(calls.session[at])
        makers = np.unique(calls.session[at[~calls.refused[at]]])
        those = makers if makers.size else tried
        if those.size:
            said = (
                f"{those.size:,} of {counted(others, 'other attempt')} at this task made this call"
            )
            said += "" if makers.size else f" and {'was' if those.size == 1 else 'were'} refused"
            rest = np.setdiff1d(self.members[self.task[session]], [*tried.tolist(), session])
            if self._agree(those, rest, best=best):
                became = f"; {'it' if those.size == 1 else 'they'} {self._share(those)}"
                return f"{said}{became}, the {rest.size:,} without it {self._amount(rest)}"
        else:
            said = "no other attempt at this task made this call"
            such, rest = self._unique(int(calls.tool[call]))
            if self._agree(such, rest, best=best):
                name = one_line(str(calls.tools[calls.tool[call]]), 40)
                said += f"; sessions with a `{name}` that no other made {self._share(such)}"
                return f"{said}, else {self._amount(rest)}"
        return said + self._rest(call, best=best)

    def _rest(self, call: int, *, best: bool) -> str:
        """What the credit of a call rests on besides what became of other attempts."""
        calls, session = self.calls, int(self.calls.session[call])
        if bool(
            self.rarer[call] if not best else self.usual.share[call] > 0 and not self.rarer[call]
        ):
            return RARE[best]
        good = bool(self.outcome[session] > self.outcome.mean())
        tool = one_line(str(calls.tools[calls.tool[call]]), 40)
        part = "more" if best == good else "less"
        said = f"; this attempt {self._ended(session)}, and calls of `{tool}` carry {part} of that"
        return f"{said} than others"

    def _unique(self, tool: int) -> tuple[Ints, Ints]:
        """Sessions with a call of the tool that no other attempt made, and others."""
        if tool not in self._tools:
            calls = self.calls
            same = calls.new & (calls.tool == tool) & (self.usual.others > 0)
            such = np.unique(calls.session[same & (self.usual.share == 0)])
            rest = np.setdiff1d(np.flatnonzero(self.attempts[self.task] > 1), such)
            self._tools[tool] = such, rest
        return self._tools[tool]

    def _agree(self, those: Ints, rest: Ints, *, best: bool) -> bool:
        """Whether some sessions did better than the rest if a step is the best, or else worse."""
        if not those.size or not rest.size:
            return False
        more = float(self.outcome[those].mean() - self.outcome[rest].mean())
        return more > 0 if best else more < 0

    def _state(self, place: int, *, best: bool) -> str:
        """How this attempt ended, and how others in the same situation did."""
        assert self.states is not None
        if (label := self.states[place]) < 0:
            return ALONE
        low, high = np.searchsorted(self.sorted, [label, label + 1])
        at = self.order[low:high]
        session = int(self.steps.trajectory[place])
        at = at[self.steps.trajectory[at] != session]
        same = self.steps.action[at] == self.steps.action[place]
        alike, others = (np.unique(self.steps.trajectory[each]) for each in (at[same], at))
        if not others.size:
            return ALONE
        said = (
            f"this attempt {self._ended(session)}; {counted(others.size, 'other attempt')} in the "
        )
        said += f"same situation {self._share(others)}"
        rest = np.setdiff1d(others, alike)
        if self._agree(alike, rest, best=best):
            did = f": the {alike.size:,} that did the same {self._share(alike)}"
            said += f"{did}, the other {rest.size:,} {self._share(rest)}"
        return said

    def _ended(self, session: int) -> str:
        if self.graded:
            return f"earned {amount(float(self.outcome[session]), share=False)}"
        return "won" if self.outcome[session] else "lost"

    def _share(self, sessions: Ints) -> str:
        return f"{'earned' if self.graded else 'won'} {self._amount(sessions)}"

    def _amount(self, sessions: Ints) -> str:
        return amount(float(self.outcome[sessions].mean()), share=not self.graded)
