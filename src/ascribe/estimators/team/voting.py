"""Voting: agents answer alone, and the answer with the most votes is the team's (CCPO, B.3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ascribe.estimators.relative import Norm
from ascribe.estimators.team import TeamCredit
from ascribe.estimators.team.counterfactual import within_prompts
from ascribe.estimators.team.shaping import PAPER
from ascribe.estimators.team.topology import side_by_side
from ascribe.steps.arrays import Bools, Floats, Ints

Ties = Literal["share", "first"]
"""What a team earns if several answers have the most votes.

``share``: the mean of what they earn, as if one were drawn; so it does not matter which agent is
which. ``first``: what the answer earns that the earliest agent gave, so earlier agents count more.
"""


@dataclass(frozen=True, eq=False)
class Votes:
    """Rollouts of agents that vote: a ``Team`` that needs no new answers to lose an agent.

    Attributes:
        answers: a number for each answer, equal inside a rollout if the answers are the same;
            negative if the agent gave none, (rollouts, agents).
        rewards: what each answer would earn, (rollouts, agents).
        ties: what counts if several answers have the most votes.
    """

    answers: Ints
    rewards: Floats
    ties: Ties = "share"

    def __post_init__(self) -> None:
        if self.answers.ndim != 2 or self.answers.shape != self.rewards.shape:
            raise ValueError(f"answers {self.answers.shape}, but rewards {self.rewards.shape}")
        if self.ties not in {"share", "first"}:
            raise ValueError(f"ties cannot be {self.ties!r}")
        rewards = self.rewards.T
        if (self._same & (rewards[:, None] != rewards)).any():
            raise ValueError("the same answer has two rewards in one rollout")

    @property
    def reads(self) -> Bools:
        """Nobody reads anybody."""
        return side_by_side(self.answers.shape[1])

    def reward(self, present: Bools) -> Floats:
        """What the winner of the votes of these agents earns; 0 if none of them gave an answer."""
        given = self.answers.T >= 0
        votes = np.broadcast_to(present, self.answers.shape).T & given
        # Agents come first here: sums over them are then sums of long rows, and fast.
        count = np.zeros(votes.shape, dtype=np.int32)
        repeats = np.zeros(votes.shape, dtype=np.bool_)
        for agent, same in enumerate(self._same):
            alike = same & votes[agent]
            count += alike
            repeats[agent + 1 :] |= alike[agent + 1 :]
        most = np.where(votes, count, 0).max(axis=0, initial=0)
        # Each winning answer counts once, by its first vote: a mean over its votes would be
        # rounded, and an agent would seem to have changed the reward who did not.
        wins = votes & (count == most) & ~repeats
        if self.ties == "first":
            wins &= wins.cumsum(axis=0) == 1
        total = np.where(wins, self.rewards.T, 0.0).sum(axis=0)
        return np.asarray(total / np.maximum(wins.sum(axis=0), 1))

    @cached_property
    def _same(self) -> Bools:
        """Whether two agents gave the same answer, (agents, agents, rollouts)."""
        answers = np.ascontiguousarray(self.answers.T)
        return np.asarray((answers[:, None] == answers) & (answers >= 0))


def allocated(
    reward: Floats, contribution: Floats, prompt: Ints, count: int, norm: Norm = PAPER.norm
) -> TeamCredit:
    r"""The team's advantage, handed to those who brought it about (CCPO, B.3, second way).

    ``A_i = w_i A_joint`` with ``w_i = max(0, Δ_i) / (Σ_k max(0, Δ_k) + ε)`` and
    ``A_joint = (R - mean R) / (std R + ε)`` inside a prompt. The other way is ``counterfactual``.

    Where the team earns 0 or 1, no advantage is ever negative: if it fails, no agent has
    contributed, so nobody is blamed.

    Args:
        reward: reward of the team, (rollouts,).
        contribution: Δ, (rollouts, agents).
        prompt: prompt of each rollout; -1 takes no part.
        count: number of prompts.
        norm: how the team's rewards are compared; its epsilon is ε.
    """
    team = within_prompts(reward[:, None], prompt, count, norm)
    helped = np.maximum(contribution, 0.0)
    weights = helped / (helped.sum(axis=1, keepdims=True) + norm.epsilon)
    reason = np.broadcast_to(team.reason, contribution.shape).copy()
    shared = np.broadcast_to(team.reward, contribution.shape).copy()
    return TeamCredit(weights * team.advantage, reason, shared)
