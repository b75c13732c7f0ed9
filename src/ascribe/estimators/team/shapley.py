"""Shapley values: an agent's contribution, averaged over all orders in which a team can form.

Leaving one agent out of the full team asks a question of one order only, in which it comes last. If
two agents gave the same right answer, each is superfluous, and both get nothing. Over all orders
each comes first in half of them, and they share. A value needs the reward of many coalitions,
so it is for teams that need no new answers for that (voting), or small ones.
"""

from math import factorial

import numpy as np

from ascribe.estimators.team.topology import Team
from ascribe.steps.arrays import Floats

EXACT = 6
"""Teams of up to this many agents are computed exactly: 64 coalitions."""


def shapley(team: Team, random: np.random.Generator | None = None, *, samples: int = 32) -> Floats:
    r"""Shapley value of each agent in each rollout, (rollouts, agents).

    ``φ_i = Σ over coalitions S without i of |S|! (K - |S| - 1)! / K! (R(S + i) - R(S))``.

    The values of a rollout add up to what the team earns above an empty one; agents that always add
    the same have the same value; an agent that never adds anything has 0.

    Args:
        team: the rollouts.
        random: source of randomness, for teams of more than ``EXACT`` agents.
        samples: orders drawn for each rollout of such a team; each is also taken backwards.
    """
    if len(team.reads) <= EXACT:
        return exact(team)
    if random is None:
        raise ValueError(f"a team of more than {EXACT} agents needs a numpy Generator")
    return sampled(team, random, samples)


def exact(team: Team) -> Floats:
    """From all ``2 ** agents`` coalitions."""
    agents = len(team.reads)
    coalitions = np.arange(2**agents)
    present = (coalitions[:, None] >> np.arange(agents) & 1).astype(np.bool_)
    worth = np.stack([team.reward(each) for each in present])
    size = present.sum(axis=1)
    weight = [factorial(n) * factorial(agents - n - 1) / factorial(agents) for n in range(agents)]
    value = np.empty((worth.shape[1], agents))
    for agent in range(agents):
        without = coalitions[~present[:, agent]]
        added = worth[without | 1 << agent] - worth[without]
        value[:, agent] = np.array(weight)[size[without]] @ added
    return value


def sampled(team: Team, random: np.random.Generator, samples: int) -> Floats:
    """From random orders, other ones in each rollout, each also backwards.

    Unbiased; the values of a rollout still add up to its reward, and an agent that never adds
    anything still has 0.
    """
    agents = len(team.reads)
    nobody = np.zeros(agents, dtype=np.bool_)
    empty = team.reward(nobody)
    rows = np.arange(empty.size)
    value = np.zeros((empty.size, agents))
    for _ in range(samples):
        order = random.permuted(np.tile(np.arange(agents), (empty.size, 1)), axis=1)
        for forth in (order, order[:, ::-1]):
            present = np.zeros(order.shape, dtype=np.bool_)
            before = empty
            for joins in forth.T:
                present[rows, joins] = True
                after = team.reward(present)
                value[rows, joins] += after - before
                before = after
    return value / (2 * samples)
