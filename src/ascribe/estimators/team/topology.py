"""Who reads whom, and what a team earns without one of its agents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ascribe.steps.arrays import Bools, Floats


class Team(Protocol):
    """Rollouts of a team, of any topology: all that counterfactual credit has to know."""

    @property
    def reads(self) -> Bools:
        """Who reads whom, (agents, agents): ``reads[i, j]`` if agent i sees the output of j."""

    def reward(self, present: Bools) -> Floats:
        """What each rollout earns if only these agents take part.

        The outputs of the others are removed. An agent that reads a removed one, directly or
        through others, has to have spoken again (see ``speaks_again``); the rest say what they
        said.

        Args:
            present: who takes part, (agents,) or (rollouts, agents).
        """


def side_by_side(agents: int) -> Bools:
    """Nobody reads anybody: all answer the prompt alone (voting)."""
    return np.zeros((agents, agents), dtype=np.bool_)


def in_line(agents: int) -> Bools:
    """Everybody reads those before (think, then solve)."""
    return np.tri(agents, k=-1, dtype=np.bool_)


def speaks_again(reads: Bools, absent: int) -> Bools:
    """The agents whose outputs would be others if agent ``absent`` had been silent.

    They read it, or read an agent that does. Their recorded outputs carry what it said, so that
    a reward from these still depends on it: it is no counterfactual, and taking it off the team's
    reward biases the gradient. Nobody speaks again if agents stand side by side.
    """
    touched = np.zeros(len(reads), dtype=np.bool_)
    new = reads[:, absent]
    while (new & ~touched).any():
        touched = touched | new
        new = np.asarray((reads & touched).any(axis=1))
    touched[absent] = False
    return touched


@dataclass(frozen=True, eq=False)
class Recorded:
    """A team whose reward without some agents was found by playing, for the coalitions played.

    ``rewards`` is (2 ** agents, rollouts): row ``Σ 2**i`` over the agents i that are present, NaN
    where a coalition was not played.
    """

    reads: Bools
    rewards: Floats

    @staticmethod
    def of(reads: Bools, played: Mapping[Iterable[int], Floats]) -> "Recorded":
        """From what each coalition earned; without agents a team earns 0, unless told otherwise.

        Args:
            reads: who reads whom.
            played: rewards of the rollouts for each coalition, a tuple of agents.
        """
        rollouts = {len(rewards) for rewards in played.values()}
        if len(rollouts) != 1:
            raise ValueError(f"coalitions differ in their number of rollouts: {sorted(rollouts)}")
        rewards = np.full((2 ** len(reads), rollouts.pop()), np.nan)
        rewards[0] = 0.0
        for coalition, earned in played.items():
            rewards[sum(1 << agent for agent in coalition)] = earned
        return Recorded(reads, rewards)

    def reward(self, present: Bools) -> Floats:
        """What each rollout earns with these agents; an error if that was not played."""
        agents = len(self.reads)
        row = present @ (1 << np.arange(agents))
        found: Floats = self.rewards[row, np.arange(self.rewards.shape[1])]
        if np.isnan(found).any():
            missing = int(np.broadcast_to(row, found.shape)[np.isnan(found)][0])
            coalition = tuple(agent for agent in range(agents) if missing >> agent & 1)
            raise ValueError(f"the coalition of agents {coalition} was not played")
        return found


def rewards_without(team: Team) -> Floats:
    """``R_without_i`` of each rollout and agent, (rollouts, agents)."""
    everyone = ~np.eye(len(team.reads), dtype=np.bool_)
    return np.stack([team.reward(others) for others in everyone], axis=1)


def contributions(team: Team) -> Floats:
    r"""Marginal contribution of each agent to each rollout (CCPO, Eq. 1), (rollouts, agents).

    ``Δ_i = R_team - R_without_i``: above 0 if the agent helped, 0 if the team earned as much
    without it, below 0 if it did harm.
    """
    everyone = np.ones(len(team.reads), dtype=np.bool_)
    return team.reward(everyone)[:, None] - rewards_without(team)
