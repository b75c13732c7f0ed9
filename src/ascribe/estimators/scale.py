"""How large a credit is against the episode term: as the papers write it, or made equal.

Terms come on different scales. A standardised term has values near 1; a difference of returns has
the size of the reward. Their ratio acts as a hidden weight, and the learning rate that suits one
recipe is not that of another. ``equal`` takes this out of a comparison.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ascribe.estimators.credit import Term
from ascribe.steps.arrays import Bools, Floats, Ints

TermScale = Literal["paper", "equal"]
"""``paper``: as the equations are written. ``equal``: rescaled to the size of the episode term."""

NOTHING = 1e-9
"""A root mean square up to this is rounding, not a signal to be blown up."""


def equalised(
    terms: dict[str, Term], names: Sequence[str], episode: Term, rows: Ints
) -> tuple[dict[str, Term], float]:
    """The terms, those of ``names`` times ``c = rms(episode) / rms(sum of those terms)``.

    A root mean square is over the rows of the batch that are credited: by the episode term for the
    one, by any of the named terms for the other. Weights are left out, so they act on top. Where
    either is zero (up to 1e-9), c is 1: there is nothing to rescale, or no size to rescale it to.

    Args:
        terms: all terms of a credit.
        names: the terms to rescale, all by one factor.
        episode: the episode term whose size is wanted.
        rows: rows that count, in canonical order: padding stays out, and row order cannot matter.

    Returns:
        The terms and c.
    """
    named = [terms[name] for name in names]
    credited = np.any([term.credited for term in named], axis=0)
    size = _rms(np.sum([term.values for term in named], axis=0), credited, rows)
    wanted = _rms(episode.values, episode.credited, rows)
    factor = wanted / size if min(size, wanted) > NOTHING else 1.0
    changed = {name: replace(terms[name], values=factor * terms[name].values) for name in names}
    return terms | changed, factor


def _rms(values: Floats, credited: Bools, rows: Ints) -> float:
    """Root mean square over the ``rows`` that are credited; 0 without any."""
    said = values[rows][credited[rows]]
    return float(np.sqrt(np.mean(said * said))) if said.size else 0.0
