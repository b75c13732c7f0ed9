"""Teams and their coalitions: contributions, Shapley values, voting, and the authors' later code.

What `team.py` and the tests of CCPO's theorems need beside `ascribe.estimators.ccpo`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import Literal, Protocol

import numpy as np

from ascribe.estimators.ccpo import TeamCredit, within_prompts
from ascribe.estimators.relative import Norm
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints

Ties = Literal["share", "first"]
"""What a team earns if several answers have the most votes.

``share``: the mean of what they earn, as if one were drawn; so it does not matter which agent is
which. ``first``: what the answer earns that the earliest agent gave, so earlier agents count more.
"""


MEAN = Norm("mean")


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


def pair(joint: Floats, solo: Floats) -> Recorded:
    """The two agents as a team; without the solver there is no answer, and no reward.

    Args:
        joint: reward of each rollout.
        solo: reward of the solver for an answer to the same prompt without a thought.
    """
    nothing = np.zeros(joint.size)
    return Recorded.of(in_line(2), {(0, 1): joint, (1,): solo, (0,): nothing})


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


def outcome_bonus(
    joint: Floats,
    solo: Floats,
    prompt: Ints,
    count: int,
    *,
    bonus: Literal["event", "margin"] = "event",
    weight: float = 0.2,
    baseline: Literal["prompt", "rollout"] = "prompt",
    norm: Norm = MEAN,
) -> TeamCredit:
    r"""What the authors' code computes in its second release (commit 465377d) instead.

    The team's outcome, and a small bonus for the thinker; no statistics, no bound, no gate:
    ``r_1 = R_joint + weight * bonus`` and ``r_2 = R_joint``, with outcomes -1 and +1 and S the mean
    solo outcome of the prompt:

    - ``event``: +1 if the team is right where S < 0, -1 if it is wrong where S > 0, otherwise 0;
    - ``margin``: ``(R_joint - S) / 2``.

    Args:
        joint: reward of each rollout; above 0 is right.
        solo: reward of the solver for an answer without a thought; above 0 is right.
        prompt: prompt of each rollout; -1 takes no part.
        count: number of prompts.
        bonus: which of the two.
        weight: how much the bonus counts.
        baseline: S is the mean over the ``prompt``, or the outcome beside the ``rollout``.
        norm: how rewards are compared inside a prompt; the code's scripts take off the mean only.
    """
    team, alone = np.where(joint > 0, 1.0, -1.0), np.where(solo > 0, 1.0, -1.0)
    if baseline == "prompt":
        alone = segments.pick(segments.mean(alone, prompt, count), prompt)
    if bonus == "event":
        helped, hurt = (team > 0) & (alone < 0), (team < 0) & (alone > 0)
        extra = helped.astype(np.float64) - hurt.astype(np.float64)
    else:
        extra = 0.5 * (team - alone)
    rewards = np.stack([team + weight * extra, team], axis=1)
    return within_prompts(rewards, prompt, count, norm)
