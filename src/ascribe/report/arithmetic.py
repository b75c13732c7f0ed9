"""The arithmetic of an advantage: what a step was compared with, as its recipe did it.

For every term and step there are the numbers that the comparison is made of, and how they make the
value: ``value = difference / spread``. The difference follows from the numbers by the ``Form``,
and the spread from the value itself. So what a reader is told always leads to the credit that was
really given; the tests see to it that the spread is one and the same over a state group.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ascribe.estimators import (
    CCPO,
    GRPO,
    IBPO,
    RLOO,
    BiPACEDiff,
    BiPACEQ,
    DrGRPO,
    Recipe,
    ReinforcePP,
)
from ascribe.estimators.peers import Branch, pace
from ascribe.estimators.two_level import TwoLevel
from ascribe.groups.actions import ActionKeys
from ascribe.report.crediting import Credited
from ascribe.report.states import keys_of, returns_of
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable


class Form(IntEnum):
    """How a step was compared."""

    BLEND = 0
    """More than one difference: ``beyond`` says what comes on top."""
    MEAN = 1
    """Its own return against the mean of all peers, itself included."""
    OTHERS = 2
    """Its own return against the mean of the others."""
    SAME = 3
    """The mean of the peers that did the same against the mean of all."""
    DIFFERENT = 4
    """Its own return against the mean of the peers that did something else."""
    RAW = 5
    """Its own return as it is: nothing else is in its task."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What each step of a term was compared with, in canonical order."""

    among: str
    """What the peers are, in words."""
    form: Codes8
    own: Floats
    peers: Ints
    """How many it was compared with, itself included; 0 if it takes no part."""
    mean: Floats
    """Their mean return."""
    same: Ints
    """How many of them did the same, itself included."""
    same_mean: Floats

    def difference(self) -> Floats:
        """What the form makes of the numbers, before any division by a spread."""
        whole, others = self.peers * self.mean, np.maximum(self.peers - 1, 1)
        different = np.maximum(self.peers - self.same, 1)
        found = np.select(
            [
                self.form == Form.MEAN,
                self.form == Form.OTHERS,
                self.form == Form.SAME,
                self.form == Form.DIFFERENT,
                self.form == Form.RAW,
            ],
            [
                self.own - self.mean,
                self.own - (whole - self.own) / others,
                self.same_mean - self.mean,
                self.own - (whole - self.same * self.same_mean) / different,
                self.own,
            ],
            np.nan,
        )
        return np.asarray(found, dtype=np.float64)


def beyond(recipe: Recipe) -> str:
    """What a recipe does besides a comparison with the mean, in words."""
    if isinstance(recipe, CCPO):
        return "the recipe bounds and scales what an agent added"
    if isinstance(recipe, IBPO):
        return "a wrong answer counts for more the more of its corrections are right"
    return "the recipe weighs several such comparisons"


def comparisons(credited: Credited) -> dict[str, Comparison]:
    """The comparison of every term of a credit."""
    recipe, table = credited.recipe, credited.table
    steps, keys = arrange(table), keys_of(recipe, table)
    found = {}
    for name, term in credited.credit.terms.items():
        labels = term.labels[steps.rows]
        if name == "episode":
            found[name] = _episode(recipe, table, labels, credited.batch[steps.rows])
        elif name == "team":
            found[name] = _team(recipe, table, labels)
        elif name == "own":
            found[name] = _own(recipe, steps, labels)
        else:
            found[name] = _step(recipe, steps, labels, keys)
    return found


def _step(recipe: Recipe, steps: Arranged, labels: Ints, keys: ActionKeys) -> Comparison:
    returns, count = returns_of(recipe, steps), int(labels.max(initial=-1)) + 1
    kind, kinds = segments.pairs(labels, keys.labels, keys.count)
    alike = segments.pick(segments.size(kind, kinds).astype(np.float64), kind)
    lonely = (kind < 0) & (labels >= 0)  # an action without a key is nobody's same action
    return Comparison(
        among="peers in this state",
        form=_step_form(recipe, returns, labels, count, keys),
        own=returns,
        peers=_sizes(labels, count, labels),
        mean=segments.pick(segments.mean(returns, labels, count), labels),
        same=np.where(lonely, 1, alike).astype(np.int64),
        same_mean=np.where(
            lonely, returns, segments.pick(segments.mean(returns, kind, kinds), kind)
        ),
    )


def _step_form(
    recipe: Recipe, returns: Floats, labels: Ints, count: int, keys: ActionKeys
) -> Codes8:
    plain = isinstance(recipe, TwoLevel) and recipe.revisits == "each"
    if isinstance(recipe, (BiPACEQ, BiPACEDiff)):
        branch = pace(returns, labels, count, keys.labels, keys.count, form=recipe.form).branch
        by_peers = Form.SAME if isinstance(recipe, BiPACEQ) else Form.DIFFERENT
        form = np.where(branch == Branch.PACE, by_peers, Form.OTHERS)
    else:
        form = np.full(returns.size, Form.MEAN if plain else Form.BLEND)
    return form.astype(np.int8)


def _own(recipe: Recipe, steps: Arranged, labels: Ints) -> Comparison:
    """A step's return among all steps of its task, whatever their states."""
    form = np.full(labels.size, Form.BLEND)
    return _with_mean("steps of this task", form, returns_of(recipe, steps), labels, labels)


def _episode(recipe: Recipe, table: StepTable, labels: Ints, batch: Ints) -> Comparison:
    """A trajectory's return against its task group, or against the batch."""
    steps = arrange(table)
    form, by_step = np.full(labels.size, Form.BLEND), False
    if isinstance(recipe, RLOO):
        form[:] = Form.OTHERS
    elif isinstance(recipe, (GRPO, DrGRPO, TwoLevel)):
        form[:], by_step = Form.MEAN, getattr(recipe, "baseline_unit", "") == "step"
    elif isinstance(recipe, ReinforcePP) and recipe.baseline == "batch":
        form[:], labels = Form.MEAN, np.where(labels < 0, -1, batch)
    elif isinstance(recipe, IBPO) and table.corrects is not None:
        form[table.corrects.codes[steps.rows] >= 0] = Form.MEAN  # corrections get no bonus
    own = recipe._episode_returns(steps)[steps.trajectory]
    members, among = _once(labels, steps.starts), "trajectories"
    if by_step:
        members, among = labels, "steps of this task, each by its whole trajectory,"
    if getattr(recipe, "group_of_one", "") == "raw":
        form[_sizes(members, int(labels.max(initial=-1)) + 1, labels) == 1] = Form.RAW
    late = (form == Form.RAW) | by_step
    own = np.where(late, own - recipe._late_penalties(steps), own)
    return _with_mean(among, form, own, members, labels)


def _team(recipe: Recipe, table: StepTable, labels: Ints) -> Comparison:
    """What the agent added, ``R - R_without``, among the trajectories of its task."""
    assert table.without is not None
    steps = arrange(table)
    own = recipe._episode_returns(steps)[steps.trajectory] - table.without[steps.rows]
    own = np.where(labels < 0, 0.0, own)  # nothing was measured where a step only measures
    both, pairs = segments.pairs(labels, steps.trajectory, steps.trajectory_count)
    members = _once(labels, segments.first_rows(both, pairs))
    form = np.full(own.size, Form.BLEND)
    return _with_mean("trajectories of the task", form, own, members, labels)


def _with_mean(among: str, form: Ints, own: Floats, members: Ints, labels: Ints) -> Comparison:
    """A comparison with the mean of the group; ``members`` are the labels of those that count."""
    count = int(labels.max(initial=-1)) + 1
    return Comparison(
        among=among,
        form=form.astype(np.int8),
        own=own,
        peers=_sizes(members, count, labels),
        mean=segments.pick(segments.mean(own, members, count), labels),
        same=np.zeros(own.size, dtype=np.int64),
        same_mean=np.zeros(own.size),
    )


def _once(labels: Ints, places: Ints) -> Ints:
    """The labels at these places; the others take no part."""
    once = np.full(labels.size, -1, dtype=np.int64)
    once[places] = labels[places]
    return once


def _sizes(members: Ints, count: int, labels: Ints) -> Ints:
    sizes: Ints = np.append(segments.size(members, count), 0)[labels]
    return sizes
