r"""Sessions on two sides, and what they may be compared within.

Sessions of one version are compared inside strata (``ascribe.decisions.contrasts``), and so are
those whose version is not known. Where strata mix versions, outcomes and sides lose the effects of
both by least squares (``ascribe.decisions.residuals``). With the residuals e and ζ:

    T = Σ ζ e,  C = Σ ζ²,  difference = T / C

The p value and the interval are those of a permutation test of e inside strata. No p value is
smaller, and no interval shorter, than by Student's t with a variance that is right for sides and
versions that vary unlike each other (HC2, with the degrees of freedom of Bell and McCaffrey 2002;
for one stratum that is Welch's test, but for the degrees).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ascribe.decisions import contrasts
from ascribe.decisions.contrasts import DEALINGS, ENOUGH, LEVEL, Contrast, both_sides
from ascribe.decisions.residuals import CELLS, NullModel, fit, permutations, telling
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints

LEAST_UNUSUAL = 6
"""Sessions on the side that is the rarer one of their version, without which versions are not
compared: what a version does always, or nearly, tells only which version it is."""
MOST_DRAWN = 20 * CELLS
"""Numbers that are drawn for one test at most; larger ones make do with fewer permutations."""


@dataclass(frozen=True, eq=False)
class Sides:
    """Sessions that are compared.

    Attributes:
        inside: which of the sessions that were given.
        side: whether each of these is on the first side.
        stratum: label of its stratum, from 0.
        model: effects of strata and versions, if strata mix versions.
        versions: how many versions are compared with each other; 1 if none are.
    """

    inside: Bools
    side: Bools
    stratum: Ints
    model: NullModel | None = None
    versions: int = 1

    @cached_property
    def residual(self) -> Floats:
        """The sides without the effects of strata and versions."""
        assert self.model is not None
        return self.model.residuals(self.side.astype(np.float64))

    def contrast(self, outcome: Floats, rng: np.random.Generator, level: float = LEVEL) -> Contrast:
        """Compare the sides by these outcomes, of the sessions inside."""
        if self.model is None:
            return contrasts.contrast(outcome, self.side, self.stratum, rng, level)
        return _adjusted(self, outcome, rng, level)

    def means(self, values: Floats) -> tuple[float, float]:
        """Mean of the values on both sides, weighted or adjusted like their difference."""
        low, high = float(values.min()), float(values.max())
        if self.model is None:
            count = int(self.stratum.max()) + 1
            ones = segments.total(self.side.astype(np.float64), self.stratum, count)
            size = segments.size(self.stratum, count)
            weight = ones * (size - ones) / size
            first, other = (
                segments.mean(values, np.where(chosen, self.stratum, -1), count)
                for chosen in (self.side, ~self.side)
            )
            with_, without = (float((weight * m).sum() / weight.sum()) for m in (first, other))
        else:
            difference = float(self.residual @ values) / float(self.residual @ self.residual)
            share = float(self.side.mean())
            with_ = float(values.mean()) + difference * (1 - share)
            without = with_ - difference
        return min(max(with_, low), high), min(max(without, low), high)

    def smallest_p(self, outcome: Floats) -> float:
        """The smallest p value that sides of these sizes can have with these outcomes.

        It does not depend on who is on which side (see ``contrasts.smallest_p``).
        """
        if self.model is None:
            return contrasts.smallest_p(outcome, self.side, self.stratum)
        return _smallest_p(self.model, self.residual, self.model.residuals(outcome))

    def score(self, outcome: Floats) -> float:
        """How far the first side is from what permutations give, in standard deviations."""
        if self.model is None:
            return contrasts.standard_score(outcome, self.side, self.stratum)
        left = self.model.residuals(outcome)
        squares = self.model.means(self.residual**2) * self.model.means(
            (left * self.model.stretch) ** 2
        )
        variance = squares * self.model.size**2 / np.maximum(self.model.size - 1, 1)
        return abs(float(self.residual @ left)) / math.sqrt(max(float(variance.sum()), 1e-300))


def compared(side: Bools, stratum: Ints, version: Ints | None = None) -> Sides:
    """The sessions of both sides that may be compared, of which each has a stratum and a version.

    In strata that mix versions, sides say something only as far as neither tasks nor versions
    explain who is on which; without that, these strata are left out.
    """
    inside, label = both_sides(side, stratum)
    plain = Sides(inside, side[inside], label)
    if version is None or not inside.any():
        return plain
    own = version[inside]
    mixed = ~segments.constant(own.astype(np.float64), label, int(label.max()) + 1)[label]
    if not mixed.any():
        return plain
    told = telling(label, own)
    if (told & mixed).any():
        at = np.flatnonzero(inside)[told]
        within = np.unique(label[told], return_inverse=True)[1].ravel().astype(np.int64)
        model = fit(within, version[at])
        kept = np.zeros(side.size, dtype=np.bool_)
        kept[at] = True
        versions = np.unique(own[told & mixed]).size
        sides = Sides(kept, side[at], within, model, versions)
        which = version[at][mixed[told]]
        first, other = (np.bincount(which, side[at][mixed[told]] == one) for one in (True, False))
        usual = np.maximum(first, other)
        unusual = int((first + other - usual).sum())
        varied = (sides.residual**2)[mixed[told]].sum() > 1e-6
        if varied and unusual >= LEAST_UNUSUAL and np.isfinite(model.stretch).all():
            return sides
    kept = inside.copy()
    kept[np.flatnonzero(inside)[mixed]] = False
    rest, label = both_sides(side[kept], stratum[kept])
    at = np.flatnonzero(kept)[rest]
    inside = np.zeros(side.size, dtype=np.bool_)
    inside[at] = True
    return Sides(inside, side[at], label)


def rests_on_one(sides: Sides, outcome: Floats, version: Ints) -> bool:
    """Whether a difference between versions turns, or is less than half, without one of them.

    It then tells that version from the others as much as one decision from another. What cannot be
    compared without a version, as with two that tried each task once, says nothing.
    """
    first, other = sides.means(outcome)
    for label in np.unique(version).tolist():
        kept = version != label
        rest = compared(sides.side[kept], sides.stratum[kept], version[kept])
        if rest.inside.any() and both_sides(rest.side, rest.stratum)[0].any():
            one, two = rest.means(outcome[kept][rest.inside])
            if (one - two) * (first - other) < (first - other) ** 2 / 2:
                return True
    return False


def _adjusted(sides: Sides, outcome: Floats, rng: np.random.Generator, level: float) -> Contrast:
    """The comparison of sides in strata that mix versions."""
    model, side = sides.model, sides.residual
    assert model is not None
    left = model.residuals(outcome)
    own, observed = float(side @ side), float(side @ left)
    near = 1e-9 * float(np.abs(left).max() * np.abs(side).max())
    for times in DEALINGS:
        if times > DEALINGS[0] and times * outcome.size > MOST_DRAWN:
            break
        sums, theirs = _permuted(model, side, left, times, rng)
        extreme = contrasts.extremes(sums, observed, near)
        if extreme >= ENOUGH:
            break
    p, low, high = contrasts.inverted(
        sums, theirs, observed=(observed, own), extreme=extreme, exact=False, level=level
    )
    rest = left - observed / own * side
    variance, degrees = _robust(model, side, rest)
    if variance > 1e-18 * observed**2:
        score, reach = contrasts.student(observed, variance, degrees, level)
        p = max(p, score)
        low, high = min(low, (observed - reach) / own), max(high, (observed + reach) / own)
    return Contrast(observed / own, low, high, p, *sides.means(outcome))


def _permuted(
    model: NullModel, side: Floats, left: Floats, times: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """T and C of permutations of the residuals."""
    sums, theirs = [], []
    for order in permutations(model.stratum, times, rng):
        sums.append((left * model.stretch)[order] @ side)
        theirs.append((side * model.stretch)[order] @ side)
    return np.concatenate(sums), np.concatenate(theirs)


def _robust(model: NullModel, side: Floats, rest: Floats) -> tuple[float, float]:
    """The variance of T if residuals vary unlike each other, and its degrees of freedom."""
    own = float(side @ side)
    leverage = model.leverage + side**2 / own
    free = 1 - leverage > 1e-9
    weight = np.where(free, side**2 / np.where(free, 1 - leverage, 1.0), 0.0)
    # Squares of the entries of the hat matrix, which strata, versions and the side span.
    basis = np.column_stack([model.basis, side / math.sqrt(own)])
    of_strata = model.means(weight)
    squares = float((weight**2 * (1 - 2 * leverage)).sum() + (of_strata**2).sum())
    squares += 2 * float((model.means(weight[:, None] * basis) ** 2 * model.size[:, None]).sum())
    squares += float(((basis.T @ (weight[:, None] * basis)) ** 2).sum())
    expected = float((weight * (1 - leverage)).sum())
    degrees = expected**2 / squares if squares > 0 else 1.0
    return float((weight * rest**2).sum()), max(degrees, 1.0)


def _smallest_p(model: NullModel, side: Floats, left: Floats) -> float:
    """The share of permutations with the largest T, on both ends."""
    tails = [0.0, 0.0]
    sides, lefts = (np.round(each / (np.abs(each).max() or 1.0), 9) for each in (side, left))
    for label in range(model.size.size):
        own, values = np.sort(sides[model.stratum == label]), lefts[model.stratum == label]
        alike = np.unique(own, return_inverse=True)[1].ravel()
        for tail, ordered in enumerate((np.sort(values), np.sort(-values))):
            equal = np.unique(ordered, return_inverse=True)[1].ravel()
            both = np.unique(np.stack([alike, equal]), axis=1, return_counts=True)[1]
            ways = _log_orders(np.bincount(alike)) + _log_orders(np.bincount(equal))
            tails[tail] += ways - _log_orders(both) - math.lgamma(own.size + 1)
    return min(1.0, 2 * math.exp(min(tails)))


def _log_orders(sizes: Ints) -> float:
    """The logarithm of the product of the factorials."""
    return sum(math.lgamma(size + 1) for size in sizes.tolist())
