r"""Two kinds of sessions compared inside strata: difference, interval, p value.

Session i of stratum s has the outcome y and is on one of two sides, z = 1 or z = 0. With n1 and n0
sessions on the sides, and n = n1 + n0:

    difference = Σ_s w_s (mean of y where z = 1 - mean of y where z = 0) / Σ_s w_s,  w_s = n1 n0 / n

The p value is that of a permutation test: the sides are dealt anew inside every stratum, so that
strata of easy tasks never speak for a side that is frequent in them. The interval holds every δ for
which the test does not refuse that the sides differ by δ: subtract δ from the outcomes where z = 1,
and T(δ) = T - δ C, for a dealing b likewise T_b - δ C_b; so its ends are order statistics of
(T - T_b) / (C - C_b). If outcomes vary more on one side, dealing the sides anew misjudges a rare
and risky action; so no p value is smaller, and no interval shorter, than that of Welch's test,
which has a variance for each side.

Outcomes of two values, such as 0 and 1, cannot be shifted, and vary alike if their means are equal:
for these the p value is exact, and the interval is Newcombe's (1998, method 10) with the weights of
the strata.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ascribe.estimators.diagnostics import wilson
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints

LEVEL = 0.1
"""Share of false discoveries that is accepted, and of intervals that may miss."""
DEALINGS = (1_999, 39_999)
"""How often the sides are dealt anew, unless there are so few ways that all of them are tried; the
second number if fewer than ``ENOUGH`` of the first are as extreme as what was observed."""
ENOUGH, LARGEST = 10, 500
"""``LARGEST`` is the size of a stratum whose many dealings would take too much memory."""
POWER, SHRUNK, MOST_TIMES = 0.8, 0.5, 50.0
"""Of ``sessions_needed``: how probable it should be that they settle the question, how much a score
is shrunk, and how many times the sessions so far they are at most. ``benchmarks/null_decisions.py``
measures how often following the advice settles it."""


@dataclass(frozen=True)
class Contrast:
    """Two sides compared.

    Attributes:
        difference: mean outcome where z = 1, minus that where z = 0.
        low: lower end of its interval; -inf if there are too few sessions for one.
        high: upper end.
        p: of the two-sided permutation test.
        with_: mean outcome where z = 1, weighted over strata like the difference.
        without: mean outcome where z = 0.
    """

    difference: float
    low: float
    high: float
    p: float
    with_: float
    without: float


def contrast(
    outcome: Floats, side: Bools, stratum: Ints, rng: np.random.Generator, level: float = LEVEL
) -> Contrast:
    """Compare the sessions of two sides.

    Args:
        outcome: of each session; each session once.
        side: whether a session is on the first side.
        stratum: label of each session's stratum, from 0; both sides occur in each.
        rng: source of randomness.
        level: probability that the interval misses.
    """
    count = int(stratum.max()) + 1
    order = np.lexsort((outcome, ~side, stratum))  # the first side first; row order never matters
    y, z, stratum = outcome[order], side[order].astype(np.float64), stratum[order]
    size = segments.size(stratum, count)
    ones = segments.total(z, stratum, count)
    weight = ones * (size - ones) / size
    of_ones = segments.total(y * z, stratum, count)
    total = segments.total(y, stratum, count)
    means = of_ones / ones, (total - of_ones) / (size - ones)
    with_, without = (float((weight * mean).sum() / weight.sum()) for mean in means)
    own = float(weight.sum())
    if np.unique(y).size <= 2:
        sides = [(with_, ones), (without, size - ones)]
        won = y == y.max()
        p = _shares_p(won, won & (z > 0), stratum, size, ones)
        low, high = _newcombe(sides, weight, float(y.min()), float(np.ptp(y)), level)
    else:
        observed = float((of_ones - ones * total / size).sum())
        centred = y - (total / size)[stratum]
        whole = ones.astype(np.int64)
        p, low, high = _permuted(
            centred, size, whole, observed=(observed, own), level=level, rng=rng
        )
        residual = y - np.where(z > 0, means[0][stratum], means[1][stratum])
        squares_of = float((residual**2 * z).sum()), float((residual**2 * (1 - z)).sum())
        score, reach = _welch(observed, squares_of, size, ones, level)
        p = max(p, score)
        low, high = min(low, (observed - reach) / own), max(high, (observed + reach) / own)
    return Contrast(with_ - without, low, high, p, with_, without)


def _shares_p(won: Bools, first: Bools, stratum: Ints, size: Ints, ones: Floats) -> float:
    """The p value of all dealings, if outcomes have two values: sums of hypergeometric numbers."""
    wins = np.bincount(stratum, won, size.size).astype(np.int64)
    log = np.append(0.0, np.cumsum(np.log(np.arange(1, int(size.max()) + 1))))
    chance = np.ones(1)
    for n, k, w in zip(size.tolist(), ones.astype(np.int64).tolist(), wins.tolist(), strict=True):
        x = np.arange(max(0, k + w - n), min(k, w) + 1)
        ways = log[w] - log[x] - log[w - x] + log[n - w] - log[k - x] - log[n - w - k + x]
        # From 0 on, so that the place in the array is the number of wins of the first side.
        of_stratum = np.zeros(x[-1] + 1)
        of_stratum[x] = np.exp(ways - (log[n] - log[k] - log[n - k]))
        chance = np.convolve(chance, of_stratum)
    observed = int(first.sum())
    return float(min(1.0, 2 * min(chance[: observed + 1].sum(), chance[observed:].sum())))


def _permuted(
    centred: Floats,
    size: Ints,
    ones: Ints,
    *,
    observed: tuple[float, float],
    level: float,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """The p value, and both ends of the interval; more dealings where few are as extreme."""
    near = 1e-9 * float(np.abs(centred).max())
    for dealings in DEALINGS:
        sums, theirs, exact = _dealt(centred, size, ones, dealings, rng)
        extreme = extremes(sums, observed[0], near)
        if exact or extreme >= ENOUGH or int(size.max()) > LARGEST:
            break
    return inverted(sums, theirs, observed=observed, extreme=extreme, exact=exact, level=level)


def extremes(sums: Floats, observed: float, near: float) -> int:
    """How many dealings are at least as extreme as what was observed, on the side with fewer."""
    return min(int((sums >= observed - near).sum()), int((sums <= observed + near).sum()))


def inverted(
    sums: Floats,
    theirs: Floats,
    *,
    observed: tuple[float, float],
    extreme: int,
    exact: bool,
    level: float,
) -> tuple[float, float, float]:
    """The p value of a test by dealings, and the ends of the interval that inverts it.

    Args:
        sums: T of each dealing.
        theirs: C of each.
        observed: both of the dealing that was observed.
        extreme: dealings at least as extreme.
        exact: whether the dealings are all that there are.
        level: probability that the interval misses.
    """
    sum_, own = observed
    more = 0 if exact else 1
    p = min(1.0, 2 * (extreme + more) / (sums.size + more))
    # Dealings equal to the one observed are never refused.
    moved = own - theirs > 1e-9 * own
    ends = np.sort((sum_ - sums[moved]) / (own - theirs[moved]))
    rank = math.floor(level / 2 * (sums.size + more) + 1e-9) - more - int((~moved).sum())
    if not 0 <= rank < ends.size:
        return p, -math.inf, math.inf
    return p, float(ends[rank]), float(ends[-1 - rank])


def _welch(
    observed: float, squares: tuple[float, float], size: Ints, ones: Floats, level: float
) -> tuple[float, float]:
    """The p value of a sum over strata, and how far its interval reaches, for unequal variances.

    Both 0 if a side has too few sessions.
    """
    zeros = size - ones
    free = float((ones - 1).sum()), float((zeros - 1).sum())
    if min(free) < 1:
        return 0.0, 0.0
    parts = [
        float((mine * other**2 / size**2).sum()) * square / each
        for mine, other, square, each in zip(
            (ones, zeros), (zeros, ones), squares, free, strict=True
        )
    ]
    variance = sum(parts)
    if variance <= 1e-18 * observed**2:
        return 0.0, 0.0
    degrees = 1 / sum((part / variance) ** 2 / each for part, each in zip(parts, free, strict=True))
    return student(observed, variance, degrees, level)


def student(observed: float, variance: float, degrees: float, level: float) -> tuple[float, float]:
    """The p value of a sum by Student's t, and how far its interval reaches (Wallace 1959)."""
    scale = (8 * degrees + 1) / (8 * degrees + 3)
    normal = NormalDist()
    score = scale * math.sqrt(degrees * math.log1p(observed**2 / variance / degrees))
    quantile = (normal.inv_cdf(1 - level / 2) / scale) ** 2 / degrees
    return 2 * normal.cdf(-score), math.sqrt(variance * degrees * math.expm1(quantile))


def _newcombe(
    sides: Sequence[tuple[float, Floats]], weight: Floats, least: float, width: float, level: float
) -> tuple[float, float]:
    """The interval of the difference of two shares, from Wilson's interval of each.

    Args:
        sides: the mean outcome of each side, and its sessions in each stratum.
        weight: of each stratum.
        least: the smaller of the two outcomes.
        width: what the larger one is more.
        level: probability that the interval misses.
    """
    z = NormalDist().inv_cdf(1 - level / 2)
    ends = []
    for mean, sessions in sides:
        share = (mean - least) / (width or 1.0)
        # As many sessions as would give this variance if there were no strata.
        n = float(weight.sum() ** 2 / (weight**2 / sessions).sum())
        low, high = wilson(share, max(n, 1.0), z)
        ends.append((share - low, high - share))
    (first_down, first_up), (other_down, other_up) = ends
    difference = sides[0][0] - sides[1][0]
    return (
        difference - width * math.hypot(first_down, other_up),
        difference + width * math.hypot(first_up, other_down),
    )


def _dealt(
    centred: Floats, size: Ints, ones: Ints, dealings: int, rng: np.random.Generator
) -> tuple[Floats, Floats, bool]:
    """The statistic of every dealing, for the outcomes and for the sides; and if these are all.

    ``centred`` holds the outcomes minus the mean of their stratum, the first side first.
    """
    starts = np.cumsum(size) - size
    sums, theirs = np.zeros(dealings), np.zeros(dealings)
    for n, k in np.unique(np.stack([size, ones], axis=1), axis=0).tolist():
        choices, overlap, exact = _dealings(n, k, dealings)
        at = starts[(size == n) & (ones == k)]
        of_strata = choices @ centred[at[:, None] + np.arange(n)].T
        if size.size == 1:
            return of_strata[:, 0], overlap, exact
        # Strata of one shape share the dealings, and each draws its own ones.
        for first in range(0, at.size, 100):
            part = np.arange(first, min(first + 100, at.size))
            drawn = rng.integers(0, overlap.size, (dealings, part.size))
            sums += of_strata[drawn, part].sum(axis=1)
            theirs += overlap[drawn].sum(axis=1)
    return sums, theirs, False


def _dealings(n: int, k: int, dealings: int) -> tuple[Floats, Floats, bool]:
    """Choices of k out of n as rows of zeros and ones, and if these are all choices.

    Also how many of the first k each one chooses, less what is expected.
    """
    exact = _log_ways(n, k) <= math.log(DEALINGS[0] + 1) + 1e-9
    rows = _choices(n, k) if exact else (_ranks(n, dealings) < k).astype(np.float64)
    return rows, rows[:, :k].sum(axis=1) - k * k / n, exact


@lru_cache(maxsize=64)
def _choices(n: int, k: int) -> Floats:
    """All choices of k out of n as rows of zeros and ones."""
    chosen = np.array(list(combinations(range(n), k)), dtype=np.int64)
    rows = np.zeros((chosen.shape[0], n))
    np.put_along_axis(rows, chosen, 1.0, axis=1)
    return rows


@lru_cache(maxsize=4)
def _ranks(n: int, dealings: int) -> npt.NDArray[np.int32]:
    """Random orders of n; the seed is their own, so that no p value depends on other tests."""
    return np.random.default_rng(n).permuted(
        np.tile(np.arange(n, dtype=np.int32), (dealings, 1)), axis=1
    )


def _log_ways(n: int, k: int) -> float:
    """The logarithm of the number of choices of k out of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def smallest_p(outcome: Floats, side: Bools, stratum: Ints) -> float:
    """The smallest p value that sides of these sizes can have with these outcomes.

    It does not depend on who is on which side, so leaving out what can never be found keeps the
    share of false discoveries (Tarone 1990, Gilbert 2005).
    """
    tails = [1.0, 1.0]
    for label in range(int(stratum.max()) + 1):
        y, ones = np.sort(outcome[stratum == label]), int(side[stratum == label].sum())
        for tail, ordered in enumerate((y, -y[::-1])):
            last = ordered[ones - 1]  # the first side has the smallest outcomes, down to ties
            ways = math.comb(int((ordered == last).sum()), ones - int((ordered < last).sum()))
            tails[tail] *= ways / math.comb(y.size, ones)
    return min(1.0, 2 * min(tails))


def standard_score(outcome: Floats, side: Bools, stratum: Ints) -> float:
    """How far the first side is from what dealing the sides anew gives, in standard deviations."""
    count = int(stratum.max()) + 1
    size = segments.size(stratum, count)
    ones = segments.total(side.astype(np.float64), stratum, count)
    centred = outcome - segments.mean(outcome, stratum, count)[stratum]
    squares = segments.total(centred**2, stratum, count)
    variance = ones * (size - ones) / (size * np.maximum(size - 1, 1)) * squares
    return abs(float(centred[side].sum())) / math.sqrt(max(float(variance.sum()), 1e-300))


def both_sides(side: Bools, stratum: Ints) -> tuple[Bools, Ints]:
    """Which sessions are in a stratum with both sides, and the labels of these strata from 0."""
    count = int(stratum.max(initial=-1)) + 1
    ones = segments.total(side.astype(np.float64), stratum, count)
    both = (ones > 0) & (ones < segments.size(stratum, count))
    inside = both[stratum]
    return inside, (np.cumsum(both) - 1)[stratum[inside]]


def discovery_rate(p: Sequence[float]) -> Floats:
    """The smallest false discovery rate at which each is found (Benjamini and Hochberg 1995)."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)
    scaled = values[order] * values.size / np.arange(1, values.size + 1)
    rates = np.empty(values.size)
    rates[order] = np.minimum.accumulate(scaled[::-1])[::-1] if values.size else scaled
    return np.minimum(rates, 1.0)


def sessions_needed(p: float, sessions: tuple[int, int], tests: int) -> int | None:
    """How many sessions more would make a difference certain with the probability ``POWER``.

    Nothing is known of the true difference but what the sessions say: with the standard score z of
    the n sessions so far, that of N sessions is normal with mean z √(N/n) and variance (N - n)/n. A
    difference is told because it is the largest of several, so z is shrunk by ``SHRUNK / z``. None
    if no number of sessions is known to do.

    Args:
        p: the p value so far.
        sessions: how many are on each side.
        tests: of the file; the smallest p value is to be certain among so many.
    """
    normal, n = NormalDist(), sum(sessions)
    score = normal.inv_cdf(1 - max(p, 1e-300) / 2)
    score -= SHRUNK / max(score, 1e-9)
    if score <= 0:
        return None
    goal = normal.inv_cdf(1 - LEVEL / tests / 2)
    factors = np.geomspace(1 + 1 / n, MOST_TIMES, 400)
    ratios = (score * np.sqrt(factors) - goal) / np.sqrt(factors - 1)
    reached = np.flatnonzero(ratios >= normal.inv_cdf(POWER))
    if reached.size == 0:
        return None
    needed = math.ceil(n * float(factors[reached[0]]))
    share = sessions[0] / n
    while _log_ways(needed, min(max(1, round(share * needed)), needed - 1)) < math.log(
        2 * tests / LEVEL
    ):
        needed += 1
    return needed - n
