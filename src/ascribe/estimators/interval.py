"""How sure is one credit? An interval for the true advantage of every decision.

The return of a row is a single, noisy draw. What is known about the decision comes from all
sessions of its task that reached the same state, and from how much actions matter in the rest of
the table: a posterior by empirical Bayes, which exists even for an action that was taken once.

Page: docs/decisions.md. Test: tests/estimators/test_interval.py.
"""

from statistics import NormalDist

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints

SHARE, SPREAD = 0.15, 0.7
"""Prior of ρ: log-normal with this median and this standard deviation of the logarithm.

In the worlds in which the method was developed, the ρ that fits the exact advantages lies between
0.08 and 0.25.
"""

UNSEEN = 2.0
"""For how many sessions the actions count that no session took in a state."""

OWN_TASK = 20.0
"""For how many sessions the table's variance counts in the variance of one task."""

GRID = np.geomspace(0.005, 0.9, 120)
"""The values of ρ over which its posterior is summed."""


def posterior_interval(
    returns: Floats, task: Ints, trajectory: Ints, state: Ints, action: Ints, *, level: float
) -> tuple[Floats, Floats]:
    r"""The central interval of each row's true advantage ``A = Q(s, a) - V(s)``.

    A session counts once for each action that it took in a state: y is the mean return of these
    visits, less the mean over the task. With s the state, a the action, and ``i`` a session:

    ``y_i = μ_s + u_sa + e_i`` with ``μ ~ N(0, v)``, ``u ~ N(0, ρ v)``, ``e ~ N(0, (1 - ρ) v)``.

    - v, the variance of returns in a state, is one for each task: the mean of
      ``(y_i - o_i)² n / (n + 1)``, o being the mean of the n values of other sessions in the state.
      The mean over the table counts as ``OWN_TASK`` sessions.
    - ρ, the share of v that is due to actions, is one for the table. Its estimate is the mean of
      ``y_i (same_i - rest_i) / v``: same is the mean of the other sessions that did the same in the
      state, rest that of the other sessions that did something else. Errors of different sessions
      are independent, so noise does not make it larger. It is combined with the prior of ρ.
    - ``A_sa = u_sa - Σ_b π_b u_sb`` with ``π_b = n_b / (n + 2)`` for the n_b of n values, and the
      rest for an action that no session took. Given v and ρ its posterior is normal.

    Args:
        returns: discounted return from each row on.
        task: task of each row.
        trajectory: session of each row.
        state: state of each row; rows of different tasks are never in one state.
        action: action of each row.
        level: probability that the interval holds the advantage.

    Returns:
        The lower and the upper bounds. Rows of the same state and action have the same interval.
    """
    tasks, sessions = int(task.max()) + 1, int(trajectory.max()) + 1
    state, states = segments.pairs(task, state, int(state.max()) + 1)
    cell, cells = segments.pairs(state, action, int(action.max()) + 1)
    value_of, values = segments.pairs(cell, trajectory, sessions)
    first = segments.first_rows(value_of, values)
    of_cell, of_state, of_task = cell[first], state[first], task[first]
    visit, visits = segments.pairs(of_state, trajectory[first], sessions)
    y = segments.mean(returns, value_of, values)
    y -= segments.mean(y, of_task, tasks)[of_task]

    in_cell, in_state = segments.size(of_cell, cells), segments.size(of_state, states)
    # Means over other sessions: of the state, of the same action there, and of the other actions.
    others = in_state[of_state] - segments.size(visit, visits)[visit]
    total = _total(y, of_state, states) - _total(y, visit, visits)
    alike, total_alike = in_cell[of_cell] - 1, _total(y, of_cell, cells) - y
    unlike = others - alike

    met = others > 0
    squares = (y - total / np.maximum(others, 1)) ** 2 * others / (others + 1)
    pooled = (squares.sum() + np.mean(y * y)) / (met.sum() + 1)
    task_squares = segments.total(squares, of_task, tasks) + OWN_TASK * pooled
    variance = task_squares / (segments.size(np.where(met, of_task, -1), tasks) + OWN_TASK)
    variance = np.maximum(variance, 1e-200)  # where all returns are equal

    both = (alike > 0) & (unlike > 0)
    same, rest = total_alike[both] / alike[both], (total - total_alike)[both] / unlike[both]
    ratio = y[both] / variance[of_task[both]]
    size = ratio @ y[both] / max(1, ratio.size)
    share = _posterior_share(ratio * (same - rest), 2 * size * (1 / alike[both] + 1 / unlike[both]))

    # The posterior of u in each cell, given μ; of μ in each state; and then of A.
    state_of = state[segments.first_rows(cell, cells)]
    spread = variance[task[segments.first_rows(state, states)]]
    prior, noise = share * spread[state_of], (1 - share) * spread[state_of] / in_cell
    weight, left = prior / (prior + noise), prior * noise / (prior + noise)
    mean = segments.mean(y, of_cell, cells)
    precision = 1 / spread + segments.total(1 / (prior + noise), state_of, states)
    centre = segments.total(mean / (prior + noise), state_of, states) / precision
    effect = weight * (mean - centre[state_of])
    chance = in_cell / (in_state + UNSEEN)[state_of]
    unseen = UNSEEN / (in_state + UNSEEN)
    advantage = effect - _total(chance * effect, state_of, states)
    squared = segments.total(chance**2 * left, state_of, states) + unseen**2 * share * spread
    slope = weight - _total(chance * weight, state_of, states)
    width = (1 - 2 * chance) * left + squared[state_of] + slope**2 / precision[state_of]
    half = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(width)
    return (advantage - half)[cell], (advantage + half)[cell]


def _total(values: Floats, labels: Ints, count: int) -> Floats:
    """Of each entry, the sum over its segment."""
    return segments.total(values, labels, count)[labels]


def _posterior_share(estimates: Floats, variances: Floats) -> float:
    """The posterior mean of ρ, given unbiased estimates of it and their variances."""
    logarithm = -0.5 * (np.log(GRID / SHARE) / SPREAD) ** 2
    if estimates.size:
        error = max(variances.sum() / estimates.size**2, 1e-200)
        logarithm -= 0.5 * (GRID - estimates.mean()) ** 2 / error
    weight = np.exp(logarithm - logarithm.max())
    return float((weight * GRID).sum() / weight.sum())
