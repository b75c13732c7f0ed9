"""The arithmetic of an advantage: what a step was compared with, as its recipe did it.

For every term and step there are the numbers that the comparison is made of, and how they make the
value: ``value = difference / spread``. The difference follows from the numbers by the ``Form``,
and the spread from the value itself. So what a reader is told always leads to the credit that was
really given; the tests see to it that the spread is one and the same over a state group.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ascribe import segments
from ascribe.actions import ActionKeys
from ascribe.arrays import Codes8, Floats, Ints
from ascribe.credit.peers import Branch, pace
from ascribe.recipes import GRPO, RLOO, BiPACEDiff, BiPACEQ, DrGRPO, Recipe, ReinforcePP
from ascribe.recipes.two_level import TwoLevel
from ascribe.report.crediting import Credited
from ascribe.report.states import keys_of, returns_of
from ascribe.table import Arranged


class Form(IntEnum):
    """How a step was compared."""

    BLEND = 0
    """Several comparisons at once, which no one difference tells."""
    MEAN = 1
    """Its own return against the mean of all peers, itself included."""
    OTHERS = 2
    """Its own return against the mean of the others."""
    SAME = 3
    """The mean of the peers that did the same against the mean of all."""
    DIFFERENT = 4
    """Its own return against the mean of the peers that did something else."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What each step of a term was compared with, in canonical order."""

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
            ],
            [
                self.own - self.mean,
                self.own - (whole - self.own) / others,
                self.same_mean - self.mean,
                self.own - (whole - self.same * self.same_mean) / different,
            ],
            np.nan,
        )
        return np.asarray(found, dtype=np.float64)


def comparisons(credited: Credited) -> dict[str, Comparison]:
    """The comparison of every term of a credit."""
    recipe, table = credited.recipe, credited.table
    steps, keys = table.arranged, keys_of(recipe, table)
    found = {}
    for name, term in credited.credit.terms.items():
        labels = term.labels[steps.rows]
        if name == "episode":
            found[name] = _episode(recipe, steps, labels, credited.batch[steps.rows])
        else:
            found[name] = _step(recipe, steps, labels, keys)
    return found


def _step(recipe: Recipe, steps: Arranged, labels: Ints, keys: ActionKeys) -> Comparison:
    returns, count = returns_of(recipe, steps), int(labels.max(initial=-1)) + 1
    kind, kinds = segments.pairs(labels, keys.labels, keys.count)
    alike = segments.pick(segments.size(kind, kinds).astype(np.float64), kind)
    lonely = (kind < 0) & (labels >= 0)  # an action without a key is nobody's same action
    return Comparison(
        form=_step_form(recipe, returns, labels, count, keys),
        own=returns,
        peers=_sizes(labels, count),
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


def _episode(recipe: Recipe, steps: Arranged, labels: Ints, batch: Ints) -> Comparison:
    """A trajectory's return against its task group, or against the batch."""
    form, by_step = Form.BLEND, False
    if isinstance(recipe, RLOO):
        form = Form.OTHERS
    elif isinstance(recipe, (GRPO, DrGRPO, TwoLevel)):
        form, by_step = Form.MEAN, getattr(recipe, "baseline_unit", "") == "step"
    elif isinstance(recipe, ReinforcePP) and recipe.baseline == "batch":
        form, labels = Form.MEAN, np.where(labels < 0, -1, batch)
    own = recipe._episode_returns(steps)[steps.trajectory]
    if by_step:
        own = own - recipe._late_penalties(steps)
    members = labels if by_step else _once(labels, steps.starts)
    count = int(labels.max(initial=-1)) + 1
    size = np.append(segments.size(members, count), 0)[labels]
    mean = segments.pick(segments.mean(own, members, count), labels)
    return Comparison(
        form=np.full(own.size, form, dtype=np.int8),
        own=own,
        peers=size,
        mean=mean,
        same=np.zeros(own.size, dtype=np.int64),
        same_mean=np.zeros(own.size),
    )


def _once(labels: Ints, starts: Ints) -> Ints:
    """The labels at the first step of each trajectory; the others take no part."""
    once = np.full(labels.size, -1, dtype=np.int64)
    once[starts] = labels[starts]
    return once


def _sizes(labels: Ints, count: int) -> Ints:
    sizes: Ints = np.append(segments.size(labels, count), 0)[labels]
    return sizes
