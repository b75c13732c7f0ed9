"""How many useful comparisons exact and clustered states give; samples of whole groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.bipace import BiGPO
from ascribe.groups import Groups
from ascribe.groups.actions import ActionKeys
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable

CLUSTERED = "clustered"
CLUSTERED_STEPS = 10_000
"""Steps that are clustered to see what clusters would give, if the recipe does not cluster."""


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
