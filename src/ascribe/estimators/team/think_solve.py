"""Think, then solve: one agent writes a thought, another reads it and answers (CCPO, B.2)."""

from typing import Literal

import numpy as np

from ascribe.estimators.relative import Norm
from ascribe.estimators.team import TeamCredit
from ascribe.estimators.team.counterfactual import within_prompts
from ascribe.estimators.team.shaping import (
    PAPER,
    Shaping,
    bounded,
    standardised,
    statistics_for,
    trust,
)
from ascribe.estimators.team.statistics import Statistics
from ascribe.estimators.team.topology import Recorded, in_line
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints

THINKER, SOLVER = 0, 1
"""Columns of a credit."""

STREAMS = ("contribution", "joint", "solo")
"""What the running statistics of a pair are of."""

MEAN = Norm("mean")


def pair(joint: Floats, solo: Floats) -> Recorded:
    """The two agents as a team; without the solver there is no answer, and no reward.

    Args:
        joint: reward of each rollout.
        solo: reward of the solver for an answer to the same prompt without a thought.
    """
    nothing = np.zeros(joint.size)
    return Recorded.of(in_line(2), {(0, 1): joint, (1,): solo, (0,): nothing})


def think_solve(
    joint: Floats,
    solo: Floats,
    prompt: Ints,
    count: int,
    *,
    history: Statistics,
    shaping: Shaping = PAPER,
) -> tuple[TeamCredit, Statistics]:
    r"""Advantages of thinker and solver from the team's rewards and the solver's own.

    - thinker: ``r_1 = tanh(α z_Δ)`` with ``Δ = R_joint - R_solo``;
    - solver: ``r_2 = g z_joint + (1 - g) z_solo`` with ``g = sigmoid(η μ_Δ / (σ_Δ + ε))``: it
      answers for the team as far as thoughts have helped so far, and for itself otherwise;
    - ``z = (x - μ) / (σ + ε)`` with the running statistics of each stream, and then
      ``A = (r - mean r) / (std r + ε)`` inside a prompt, for each of the two.

    While the statistics have seen too little, ``r_1 = Δ`` and ``r_2 = R_joint``.

    Args:
        joint: reward of each rollout.
        solo: reward of the solver for an answer without a thought, sampled beside each rollout.
        prompt: prompt of each rollout; -1 takes no part.
        count: number of prompts.
        history: statistics of the batches before, with the streams ``STREAMS``.
        shaping: the parameters.

    Returns:
        The credit, with the columns ``THINKER`` and ``SOLVER`` and, once the statistics are used,
        the number ``trust``; and the statistics to hand on to the next batch.
    """
    if history.streams != STREAMS:
        raise ValueError(f"statistics of {history.streams}, but think-solve has {STREAMS}")
    streams = np.stack([joint - solo, joint, solo], axis=1)
    used, after = statistics_for(streams[prompt >= 0], history, shaping)
    if used is None:
        return within_prompts(streams[:, :2], prompt, count, shaping.norm), after
    z = standardised(streams, used, shaping)
    gate = trust(used, "contribution", shaping)
    thinker = bounded(streams, used, shaping)[:, 0]
    solver = gate * z[:, 1] + (1.0 - gate) * z[:, 2]
    credit = within_prompts(np.stack([thinker, solver], axis=1), prompt, count, shaping.norm)
    return TeamCredit(credit.advantage, credit.reason, credit.reward, {"trust": gate}), after


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
