"""Which recipe and discount suit a table, and how many useful comparisons its states give.

``docs/howto/recipe.md`` shows ``SITUATIONS``; to change a recommendation, change its row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.bipace import BiGPO
from ascribe.groups import Groups
from ascribe.groups.actions import ActionKeys
from ascribe.groups.exact import exact
from ascribe.groups.keys import keyed, propose, tools_before
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.discount import USUAL, Discount, propose_discount
from ascribe.steps.problems import counted
from ascribe.steps.table import Coded, StepTable

CLUSTERED = "clustered"
CLUSTERED_STEPS = 10_000
"""Steps that are clustered to see what clusters would give, if the recipe does not cluster."""

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


# How many useful comparisons exact and clustered states give; samples of whole groups.


@dataclass(frozen=True)
class StateView:
    """How many useful comparisons one definition of equal states gives.

    Attributes:
        name: how states are grouped.
        steps: number of steps.
        stages: rows of the funnel: the steps that are left, and the pairs that they form.
        alone: share of the steps with a state that are alone in it.
    """

    name: str
    steps: int
    stages: tuple[dict[str, Any], ...]
    alone: float


def state_views(table: StepTable, recipe: Recipe, labels: Ints | None) -> list[StateView]:
    """Exact states and clustered ones, on the same steps.

    Args:
        table: the steps.
        recipe: the estimator; its clusters are shown if it makes some.
        labels: state group of each row of the table by the recipe, if it has a step term.
    """
    clusters = hasattr(recipe, "radius") and getattr(recipe, "states", "cluster") == "cluster"
    if clusters and labels is not None:
        count = int(labels.max(initial=-1)) + 1
        clustered, name = Groups(labels[arrange(table).rows], count), CLUSTERED
    else:
        name = f"{CLUSTERED} by n-grams"
        table = table.take(whole_groups(table, CLUSTERED_STEPS))
        # Only states that the sample has get a fingerprint.
        table = replace(table, state=table.state.used(), action=table.action.used())
    steps = arrange(table)
    exact_groups = exact(steps.group, steps.state, table.state.values.size)
    if name != CLUSTERED:
        has_states = table.state.values.size > 0
        clustered = BiGPO.preset("ngram").state_groups(table, {})[0] if has_states else exact_groups
    keys, returns = recipe.action_keys(table), recipe.step_returns(table)
    ways = {"exact": exact_groups, name: clustered}
    return [_view(name, steps, groups, keys, returns) for name, groups in ways.items()]


def _view(
    name: str, steps: Arranged, groups: Groups, keys: ActionKeys, returns: Floats
) -> StateView:
    # A step whose action has no key counts as an action of its own.
    action = np.where(keys.labels < 0, keys.count + np.arange(keys.labels.size), keys.labels)
    outcome = np.unique(returns.round(9), return_inverse=True)[1]
    total = int(steps.rows.size)
    funnel: list[tuple[str, int, int | None]] = [
        ("all steps", total, None),
        ("with a state", int((groups.labels >= 0).sum()), None),
    ]
    differ: list[Ints] = []
    for stage, labels in (
        ("in a shared state", steps.trajectory),
        ("with another action", action),
        ("with another return", outcome),
    ):
        differ.append(labels)
        count = partners(groups.labels, groups.count, differ)
        funnel.append((stage, int((count > 0).sum()), int(count.sum()) // 2))
    stages = tuple(
        {"states": name, "name": stage, "steps": left, "share": left / total, "pairs": pairs}
        for stage, left, pairs in funnel
    )
    size = segments.size(groups.labels, groups.count)
    return StateView(name, total, stages, float((size == 1).sum() / max(size.sum(), 1)))


def partners(labels: Ints, count: int, differ: Sequence[Ints]) -> Ints:
    r"""For each row, how many rows of its segment differ from it in every one of ``differ``.

    By inclusion and exclusion: ``Σ over subsets S of (-1)^|S| n(same segment, same in all of S)``,
    without enumerating pairs.

    Args:
        labels: segment of each row; -1 has no partners.
        count: number of segments.
        differ: labels from 0 of what must differ.
    """
    count_of_row = np.zeros(labels.size, dtype=np.int64)
    for order in range(len(differ) + 1):
        for subset in combinations(differ, order):
            joint, joints = labels, count
            for labels_of in subset:
                joint, joints = segments.pairs(joint, labels_of, int(labels_of.max(initial=-1)) + 1)
            size = np.append(segments.size(joint, joints), 0)
            count_of_row += (-1) ** order * size[joint]
    return count_of_row


def whole_groups(table: StepTable, most: int, first: Sequence[int] = ()) -> Ints:
    """Rows of groups, evenly spaced over the table, that have ``most`` steps or fewer together.

    The groups of the rows ``first`` come before all others. All rows that take part if there are no
    more than that. If even one group is too large, as many of its trajectories as fit, and at least
    one. Rows are in canonical order.
    """
    steps = arrange(table)
    if steps.rows.size <= most:
        return steps.rows
    wanted = steps.group[np.isin(steps.rows, first)].tolist()
    order = np.array([*dict.fromkeys([*wanted, *_evenly(steps.group_count).tolist()])])
    fits = np.cumsum(segments.size(steps.group, steps.group_count)[order]) <= most
    if fits[0]:
        return steps.rows[np.isin(steps.group, order[fits])]
    inside = np.flatnonzero(steps.group == order[0])
    ends = np.cumsum(np.unique(steps.trajectory[inside], return_counts=True)[1])
    count = max(int((ends <= most).sum()), 1)
    return steps.rows[inside[: ends[count - 1]]]


def _evenly(count: int) -> Ints:
    """The numbers 0 to count - 1, ordered so that every prefix is spread evenly over the range.

    This is bit-reversal order: 0, 1/2, 1/4, 3/4, 1/8, ...
    """
    bits = max((count - 1).bit_length(), 1)
    numbers = np.arange(count, dtype=np.int64)
    mirrored = sum(((numbers >> bit) & 1) << (bits - 1 - bit) for bit in range(bits))
    return np.argsort(mirrored, kind="stable")
