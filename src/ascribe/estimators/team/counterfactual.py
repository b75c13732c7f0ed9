"""From contributions to advantages: CCPO for a team of any topology."""

import numpy as np

from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm, relative
from ascribe.estimators.team import TeamCredit
from ascribe.estimators.team.shaping import PAPER, Shaping, bounded, statistics_for
from ascribe.estimators.team.statistics import Statistics
from ascribe.steps.arrays import Floats, Ints


def within_prompts(rewards: Floats, prompt: Ints, count: int, norm: Norm) -> TeamCredit:
    """Each agent's rewards against its own in the other rollouts of the prompt (CCPO, Eq. 5).

    ``A_i = (r_i - mean r_i) / (std r_i + ε)`` over the rollouts of a prompt. A prompt with one
    rollout, or in which an agent was always paid the same, gives that agent no credit, and says so.

    Args:
        rewards: what each agent is paid, (rollouts, agents).
        prompt: prompt of each rollout; -1 takes no part.
        count: number of prompts.
        norm: what a reward is compared with.
    """
    agents = rewards.shape[1]
    labels = np.where(prompt[:, None] < 0, -1, prompt[:, None] * agents + np.arange(agents))
    advantage, reason = relative(
        rewards.ravel(), labels.ravel(), count * agents, norm, Reason.GROUP_OF_ONE
    )
    return TeamCredit(advantage.reshape(rewards.shape), reason.reshape(rewards.shape), rewards)


def counterfactual(
    contribution: Floats,
    prompt: Ints,
    count: int,
    *,
    history: Statistics,
    shaping: Shaping = PAPER,
) -> tuple[TeamCredit, Statistics]:
    """Advantages of all agents from what each contributed (CCPO, Eq. 2-5).

    Running statistics of every agent's contributions, ``r_i = tanh(α (Δ_i - μ_i) / (σ_i + ε))``,
    then ``within_prompts``. While the statistics have seen too little, ``r_i = Δ_i``.

    Args:
        contribution: Δ, (rollouts, agents), as ``topology.contributions`` gives it.
        prompt: prompt of each rollout; -1 takes no part, not in the statistics either.
        count: number of prompts.
        history: statistics of the batches before, one stream per agent.
        shaping: the parameters.

    Returns:
        The credit, and the statistics to hand on to the next batch.
    """
    used, after = statistics_for(contribution[prompt >= 0], history, shaping)
    rewards = contribution if used is None else bounded(contribution, used, shaping)
    return within_prompts(rewards, prompt, count, shaping.norm), after
