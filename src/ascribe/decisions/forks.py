"""Forks: states in which sessions of a task took different actions.

A session decides at its first visit to a state; what it does when it comes back is a consequence.
Each action, or each of the most frequent ones, is compared with all others taken in the state. The
fork is told by the comparison with the largest standard score, and its p value is multiplied by the
number of comparisons that could have been chosen.
"""

import math
from dataclasses import replace

import numpy as np

from ascribe.decisions.attempts import Attempts
from ascribe.decisions.contrasts import LEVEL
from ascribe.decisions.decision import FORK, Decision, calls, compare
from ascribe.decisions.sides import compared
from ascribe.steps import segments
from ascribe.steps.arrays import Ints

FEWEST = 6
"""Sessions in a state without which no p value is at most ``LEVEL``: half of six can be chosen in
20 ways."""
MOST_ACTIONS = 20
"""Actions of a state that are compared with the others, the most frequent ones."""
MOST_UNTESTED = 100
"""Forks with too few sessions for a test that are told all the same, those with the most first."""


def forks(attempts: Attempts, rng: np.random.Generator) -> tuple[list[Decision], int]:
    """The states with two actions and two outcomes, as decisions without discovery rates.

    Also how many more there are, with too few sessions for a test.
    """
    places = attempts.first_visits()
    label = attempts.state[places]
    action = attempts.steps.action[places]
    outcome = attempts.outcome[attempts.steps.trajectory[places]]
    count = int(label.max(initial=-1)) + 1
    open_ = ~segments.constant(action.astype(np.float64), label, count)
    open_ &= ~segments.constant(outcome, label, count)
    ends = np.searchsorted(label, np.arange(count + 1))
    found, untested, more = [], 0, 0
    size = np.diff(ends)
    for state in np.argsort(-size, kind="stable"):
        if not open_[state]:
            continue
        full = untested == MOST_UNTESTED
        if full and size[state] < FEWEST:
            more += 1
            continue
        fork = _fork(attempts, places[ends[state] : ends[state + 1]], rng, tested_only=full)
        if fork is None:
            more += full
            continue
        untested += math.isnan(fork.p)
        found.append(fork)
    return found, more


def _fork(
    attempts: Attempts, places: Ints, rng: np.random.Generator, *, tested_only: bool
) -> Decision | None:
    """The fork at these places; None if no task has two sides, or it cannot be tested but must."""
    steps = attempts.steps
    action, session = steps.action[places], steps.trajectory[places]
    taken, firsts, times = np.unique(action, return_index=True, return_counts=True)
    texts = attempts.texts(places[firsts])  # codes depend on row order
    order = sorted(range(taken.size), key=lambda number: (-times[number], texts[number]))
    taken = taken[order[:MOST_ACTIONS]]
    # Between two actions there is one comparison, seen from either.
    candidates = []
    for one in taken[:1] if taken.size == 2 else taken:
        version = None if attempts.version is None else attempts.version[session]
        sides = compared(action == one, attempts.stratum[session], version)
        if sides.inside.any():
            outcome = attempts.outcome[session[sides.inside]]
            able = sides.smallest_p(outcome) <= LEVEL
            candidates.append((able, sides.score(outcome), sides))
    if not candidates or (tested_only and not any(each[0] for each in candidates)):
        return None
    able, _, sides = max(candidates, key=lambda each: each[:2])
    at = places[sides.inside]
    others = np.unique(steps.action[at[~sides.side]]).size
    first, other = (attempts.texts(at[chosen][:1])[0] for chosen in (sides.side, ~sides.side))
    first, other = calls(first, other)
    found = compare(
        attempts,
        FORK,
        at,
        sides,
        names=(first, other if others == 1 else f"{others:,} other actions"),
        rng=rng,
        tests=sum(each[0] == able for each in candidates),
        state=attempts.table.state.take(steps.rows[places[:1]]).texts()[0] or "",
    )
    found = replace(found, start=bool(np.isin(places, steps.starts).all()))
    return found if able else replace(found, p=math.nan)
