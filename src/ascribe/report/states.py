"""From steps to pairs that teach something: how far a way of telling states apart gets."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from ascribe.estimators import BiGPO, Recipe
from ascribe.estimators.peers import RowMix, pace, row_mix
from ascribe.groups import Groups
from ascribe.groups.actions import ActionKeys
from ascribe.groups.exact import exact
from ascribe.report.sample import whole_groups
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable

CLUSTERED = "clustered"
CLUSTERED_STEPS = 10_000
"""Steps that are clustered to see what clusters would give, if the recipe does not cluster."""


@dataclass(frozen=True)
class Stage:
    """A stage of the funnel: steps that are left, and the pairs that they form."""

    name: str
    steps: int
    share: float
    """Of all steps."""
    pairs: int | None


@dataclass(frozen=True)
class StateView:
    """What one way of telling states apart gives.

    Attributes:
        name: how states are told apart.
        steps: steps that were looked at.
        stages: the funnel.
        mix: how BiPACE would credit these steps (its row mix).
    """

    name: str
    steps: int
    stages: tuple[Stage, ...]
    mix: RowMix

    def rows(self) -> list[dict[str, Any]]:
        """The funnel as rows of a table."""
        return [{"states": self.name, **asdict(stage)} for stage in self.stages]


def state_views(table: StepTable, recipe: Recipe, labels: Ints | None) -> list[StateView]:
    """Exact states against clustered ones, on the same steps.

    Args:
        table: the steps.
        recipe: the estimator; its clusters are shown if it makes some.
        labels: state group of each row of the table by the recipe, if it has a step term.
    """
    clusters = hasattr(recipe, "radius") and getattr(recipe, "states", "cluster") == "cluster"
    if clusters and labels is not None:
        count = int(labels.max(initial=-1)) + 1
        found = Groups(labels[arrange(table).rows], count, recipe.name)
        return _views(table, recipe, {"exact": _exact(table), CLUSTERED: found})
    table = table.take(whole_groups(table, CLUSTERED_STEPS))
    # Only states that the sample has get a fingerprint.
    table = replace(table, state=table.state.used(), action=table.action.used())
    same = _exact(table)
    found = BiGPO.preset("ngram").state_groups(table, {})[0] if table.state.values.size else same
    return _views(table, recipe, {"exact": same, f"{CLUSTERED} by n-grams": found})


def _exact(table: StepTable) -> Groups:
    steps = arrange(table)
    return exact(steps.group, steps.state, table.state.values.size)


def _views(table: StepTable, recipe: Recipe, ways: Mapping[str, Groups]) -> list[StateView]:
    keys, returns = recipe.action_keys(table), recipe.step_returns(table)
    return [_view(name, arrange(table), groups, keys, returns) for name, groups in ways.items()]


def _view(
    name: str, steps: Arranged, groups: Groups, keys: ActionKeys, returns: Floats
) -> StateView:
    # A step whose action has no key did something that no other step is known to have done.
    action = np.where(keys.labels < 0, keys.count + np.arange(keys.labels.size), keys.labels)
    outcome = np.unique(returns.round(9), return_inverse=True)[1]
    differ = [steps.trajectory, action, outcome]
    total = int(steps.rows.size)
    counted = [Stage("all steps", total, 1.0, None)]
    known = int((groups.labels >= 0).sum())
    counted.append(Stage("have a state", known, known / total, None))
    names = (
        "others were there too",
        "and did something else",
        "and fared differently",
    )
    for number, stage in enumerate(names, start=1):
        found = partners(groups.labels, groups.count, differ[:number])
        left = int((found > 0).sum())
        counted.append(Stage(stage, left, left / total, int(found.sum()) // 2))
    given = (groups.labels, groups.count, keys.labels, keys.count)
    branch = pace(returns, *given, form="q").branch
    return StateView(name, total, tuple(counted), row_mix(branch, *given))


def partners(labels: Ints, count: int, differ: Sequence[Ints]) -> Ints:
    r"""For each row, how many rows of its segment differ from it in every one of ``differ``.

    By inclusion and exclusion: ``Σ over subsets S of (-1)^|S| n(same segment, same in all of S)``,
    so that no pair is ever written down.

    Args:
        labels: segment of each row; -1 has no partners.
        count: number of segments.
        differ: labels from 0 of what must differ.
    """
    found = np.zeros(labels.size, dtype=np.int64)
    for chosen in range(len(differ) + 1):
        for subset in combinations(differ, chosen):
            joint, joints = labels, count
            for same in subset:
                joint, joints = segments.pairs(joint, same, int(same.max(initial=-1)) + 1)
            size = np.append(segments.size(joint, joints), 0)
            found += (-1) ** chosen * size[joint]
    return found
