"""Values less what the task and the version explain, and permutations that respect both.

The null model says that the outcome of a session is the effect of its stratum, plus the effect of
its version, plus noise. A stratum holds attempts at one task. Where a version attempted a task
several times, those attempts are a stratum of their own; the other versions with an attempt at the
task share one. So effects of versions count in strata that mix them, and most public logs have only
such strata: one attempt at each task by each version.

Outcomes, and columns of any kind, lose both effects by least squares. Under the null model what is
left may be permuted inside strata.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints

MOST_VERSIONS = 200
"""Versions whose effects are told apart: those with the most sessions in mixed strata."""
CELLS = 4_000_000
"""Numbers of one part of the permutations."""
SINGULAR = 1e-9
"""Share of a direction that is left, below which the strata explain all of it."""


@dataclass(frozen=True, eq=False)
class NullModel:
    """Effects of strata and of versions, which outcomes and columns lose.

    Attributes:
        stratum: label of each session's stratum, from 0.
        size: sessions of each stratum.
        basis: an orthonormal basis of the effects of versions inside strata; a column for each.
        stretch: how much smaller the residual of each session is than its noise, because versions
            were fitted too; infinite where nothing is left of the noise.
    """

    stratum: Ints
    size: Ints
    basis: Floats
    stretch: Floats

    def residuals(self, values: Floats) -> Floats:
        """The values, or columns of values, without the effects of strata and versions."""
        centred = values - self.means(values)[self.stratum]
        left: Floats = centred - self.basis @ (self.basis.T @ centred)
        return left

    def means(self, values: Floats) -> Floats:
        """The mean of each stratum."""
        order = np.argsort(self.stratum, kind="stable")
        sums = np.add.reduceat(values[order], np.cumsum(self.size) - self.size, axis=0)
        means: Floats = sums / self.size.reshape(-1, *[1] * (values.ndim - 1))
        return means

    def beside(self, column: Floats) -> "NullModel":
        """The model with the effect of one more column."""
        left = self.residuals(column)
        basis = np.column_stack([self.basis, left / math.sqrt(left @ left)])
        free = column.size - self.size.size - basis.shape[1]
        stretch = self.stretch * math.sqrt((free + 1) / free) if free > 0 else math.inf
        return replace(self, basis=basis, stretch=stretch * np.ones(column.size))

    @property
    def leverage(self) -> Floats:
        """How much of each session's own outcome is in what the model expects of it."""
        own: Floats = 1 / self.size[self.stratum] + (self.basis**2).sum(axis=1)
        return own


def strata(task: Ints, version: Ints) -> Ints:
    """What sessions may be compared within: their task and version, or what is left of the task.

    The sessions of a version that attempted a task several times are a stratum. Versions with one
    attempt at a task share one.
    """
    versions = int(version.max(initial=0)) + 1
    cell = np.unique(task * versions + version, return_inverse=True)[1].ravel()
    alone = np.bincount(cell)[cell] == 1
    label = np.where(alone, int(cell.max(initial=-1)) + 1 + task, cell)
    return np.unique(label, return_inverse=True)[1].ravel().astype(np.int64)


def telling(stratum: Ints, version: Ints) -> Bools:
    """Sessions that say something beside the effects of their own stratum and version.

    A session does not that is alone in its stratum, or the only one of its version in strata that
    mix versions: an effect of its own explains it.
    """
    told = np.ones(stratum.size, dtype=np.bool_)
    strata_, versions = int(stratum.max(initial=-1)) + 1, int(version.max(initial=-1)) + 1
    mixed = ~segments.constant(version.astype(np.float64), stratum, strata_)[stratum]
    if np.unique(version[mixed]).size > MOST_VERSIONS:
        sessions = np.bincount(version[mixed], minlength=versions)
        rank = np.argsort(np.argsort(-sessions, kind="stable"), kind="stable")
        told &= ~mixed | (rank[version] < MOST_VERSIONS)
    while True:
        several = np.bincount(stratum[told], minlength=strata_)[stratum] > 1
        again = np.bincount(version[told & mixed], minlength=versions)[version] > 1
        kept = told & several & (again | ~mixed)
        if np.array_equal(kept, told):
            return told
        told = kept


def fit(stratum: Ints, version: Ints) -> NullModel:
    """The null model of sessions; see ``telling`` for those that it should be fitted to."""
    count = int(stratum.max()) + 1
    size = segments.size(stratum, count)
    mixed = ~segments.constant(version.astype(np.float64), stratum, count)[stratum]
    own, label = np.unique(version[mixed], return_inverse=True)
    dummies = np.zeros((stratum.size, own.size))
    dummies[np.flatnonzero(mixed), label.ravel()] = 1.0
    model = NullModel(stratum, size, np.zeros((stratum.size, 0)), np.ones(stratum.size))
    centred = dummies - model.means(dummies)[stratum]
    squares, directions = np.linalg.eigh(centred.T @ centred)
    free = squares > SINGULAR * max(1.0, float(squares.max(initial=0.0)))
    basis = centred @ (directions[:, free] / np.sqrt(squares[free]))
    before = int(mixed.sum()) - np.unique(stratum[mixed]).size
    left = before - basis.shape[1]
    stretch = np.ones(stratum.size)
    stretch[mixed] = np.sqrt(before / left) if left > 0 else np.inf
    return NullModel(stratum, size, basis, stretch)


def permutations(stratum: Ints, times: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Random orders of the sessions that keep each in its stratum, as rows, part by part."""
    order = np.argsort(stratum, kind="stable")
    place, home = stratum[order], np.empty_like(order)
    home[order] = np.arange(order.size)
    part = max(1, CELLS // max(1, stratum.size))
    for first in range(0, times, part):
        keys = rng.random((min(part, times - first), stratum.size)) + place
        yield order[np.argsort(keys, axis=1)][:, home]
