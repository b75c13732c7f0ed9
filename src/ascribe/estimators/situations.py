"""Which recipe and discount suit a table.

``docs/howto/recipe.md`` shows ``SITUATIONS``; to change a recommendation, change its row.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ascribe.groups.exact import exact
from ascribe.groups.keys import keyed, propose, tools_before
from ascribe.steps import segments
from ascribe.steps.arrays import Ints
from ascribe.steps.check import arrange
from ascribe.steps.discount import USUAL, Discount, propose_discount
from ascribe.steps.problems import counted
from ascribe.steps.table import Coded, StepTable, once

States = Literal["recur", "recur under a key", "do not recur"]
Range = tuple[int, float]
ANY, ONE, SEVERAL = (1, math.inf), (1, 1), (2, math.inf)
LONG = 30
"""Steps from which an episode is long."""
MOST_ALONE = 0.5
"""States recur if no larger share of the steps is alone in its state."""
SAMPLE = 200_000
"""Characters of states, of the first tasks by name and in them of the first steps, for which a key
is sought."""
PROPOSED, LARGER = "as proposed", "as proposed, if larger than the default"
RECUR: tuple[States, ...] = ("recur",)
KEYED: tuple[States, ...] = ("recur under a key",)
NEVER: tuple[States, ...] = ("do not recur",)


@dataclass(frozen=True)
class Situation:
    """A situation, and what to do in it.

    Attributes:
        states: whether states recur inside a task; with one rollout, over iterations.
        rollouts: fewest and most rollouts of a task.
        steps: fewest and most steps of an episode.
        recipe: what to use.
        discount: what to set ``gamma`` to.
        evidence: what the row rests on, as a clause.
        page: page of the documentation with the evidence.
    """

    states: tuple[States, ...]
    rollouts: Range
    steps: Range
    recipe: str
    discount: str
    evidence: str
    page: str

    def fits(self, states: States, rollouts: int, steps: int) -> bool:
        """Whether a table is in this situation."""
        sizes = ((self.rollouts, rollouts), (self.steps, steps))
        return states in self.states and all(low <= n <= high for (low, high), n in sizes)


WITH_MEMORY = "with a memory, one rollout learned like groups of eight with grpo, or faster"
SITUATIONS = (
    Situation(
        (*RECUR, *KEYED, *NEVER), ANY, ONE, "grpo", "none", "one step has one outcome", "concepts"
    ),
    Situation((*RECUR, *KEYED), ONE, SEVERAL, "sbc with memory", LARGER, WITH_MEMORY, "audit"),
    Situation(NEVER, ONE, SEVERAL, "returns with memory", PROPOSED, WITH_MEMORY, "howto/state"),
    Situation(
        RECUR, SEVERAL, SEVERAL, "sbc", LARGER, "it learned fastest in small policies", "learning"
    ),
    Situation(
        KEYED,
        SEVERAL,
        SEVERAL,
        "sbc after ascribe states",
        LARGER,
        "with a key it learned faster than returns",
        "howto/state",
    ),
    Situation(
        NEVER,
        SEVERAL,
        (2, LONG - 1),
        "returns",
        PROPOSED,
        "nothing that was tried learned faster",
        "howto/state",
    ),
    Situation(
        NEVER,
        SEVERAL,
        (LONG, math.inf),
        "returns",
        PROPOSED,
        "in long worlds 0.95 lost 0.11 of mean success to the best discount, the proposal 0.05",
        "howto/recipe",
    ),
)
"""The recommendation. The first row that fits a table is its row."""


@dataclass(frozen=True)
class Placed:
    """A table's row, and what it was chosen by.

    Attributes:
        row: the situation.
        states: whether states recur.
        alone: share of steps alone in their state.
        keyed: the same under the proposed key, if states do not recur without one.
        rollouts: median number of rollouts of a task.
        discount: the proposed discount, and the median length.
    """

    row: Situation
    states: States
    alone: float
    keyed: float | None
    rollouts: int
    discount: Discount

    @property
    def advice(self) -> str:
        """Recipe and discount, as a clause."""
        least = {PROPOSED: 0.0, LARGER: USUAL}.get(self.row.discount, 1.0)
        gamma = self.discount.gamma or 0.0
        return f"use {self.row.recipe}" + (f" and gamma {gamma:g}" if gamma > least else "")

    def sentences(self, gamma: float | None) -> tuple[str, ...]:
        """The row, and what a recipe's discount leaves of a reward, if it has one; a line each."""
        alone = f"{self.alone:.0%} of the steps have no other step in the same state"
        alone += f", {self.keyed:.0%} with the key" if self.states == "recur under a key" else ""
        row = (
            f"Advice: {self.advice}. States {self.states} ({alone.replace('%', ' %')}); "
            f"in the median {counted(self.rollouts, 'rollout')} per task and "
            f"{counted(round(self.discount.length), 'step')} per episode."
        )
        return (row,) if gamma is None else (row, self.discount.compared(gamma))


@once
def place(table: StepTable) -> Placed:
    """The row of a table.

    Raises:
        TableError: if the rows of the table cannot be put in order.
    """
    steps, discount = arrange(table), propose_discount(table)
    rollouts = int(np.median(np.bincount(steps.group_of_trajectory)))
    # A memory pools the iterations of a task, so single rollouts are compared over them.
    named = table.group if table.task is None else table.task
    task = named.codes[steps.rows] if rollouts == 1 else steps.group
    states: States = "recur"
    alone, under_key = _alone(task, table.state.take(steps.rows)), None
    if alone > MOST_ALONE:
        order = np.lexsort((steps.trajectory, steps.step, steps.group))
        size = np.array([*map(len, table.state.values), 0])[steps.state[order]]
        order = order[: max(1, int((np.cumsum(size) <= SAMPLE).sum()))]
        sample = table.take(steps.rows[order])
        sample = replace(sample, state=sample.state.used())
        under_key = _alone(task[order], keyed(sample.state, propose(sample), tools_before(sample)))
        states = "recur under a key" if under_key <= MOST_ALONE else "do not recur"
    facts = (states, rollouts, math.ceil(discount.length))
    row = next(row for row in SITUATIONS if row.fits(*facts))
    return Placed(row, states, alone, under_key, rollouts, discount)


def _alone(task: Ints, state: Coded) -> float:
    """Share of steps that are alone in their state, or have none."""
    groups = exact(task, state.codes, state.values.size)
    size = segments.size(groups.labels, groups.count)
    return 1.0 - float(size[size > 1].sum()) / task.size
