"""What each agent of a team earned: counterfactual credit (CCPO, arXiv 2603.21563).

A team answers a prompt in several rollouts and is paid once for each. Arrays have one row for each
rollout and, where agents differ, one column for each agent; ``prompt`` labels the prompt of a row,
as ``group`` does for the trajectories of one agent.

- ``topology``: who reads whom, what the team earns without some agents, and so what each added;
- ``statistics`` and ``shaping``: running statistics, and rewards bounded with them;
- ``counterfactual``: contributions to advantages, for any topology;
- ``think_solve`` and ``voting``: the two topologies of the paper;
- ``shapley``: every agent's mean contribution over all orders of joining.
"""

from dataclasses import dataclass, field

import numpy as np

from ascribe.estimators.credit import Reason
from ascribe.steps.arrays import Bools, Codes8, Floats


@dataclass(frozen=True, eq=False)
class TeamCredit:
    """The advantage of every agent in every rollout, (rollouts, agents).

    ``reward`` is what was compared inside a prompt. ``advantage`` is 0 wherever ``reason`` (a
    ``Reason``) is not ``CREDITED``. ``numbers`` holds what was found on the way, by name.
    """

    advantage: Floats
    reason: Codes8
    reward: Floats
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def credited(self) -> Bools:
        """Where an agent's reward differs between the rollouts of the prompt."""
        return np.equal(self.reason, Reason.CREDITED)
