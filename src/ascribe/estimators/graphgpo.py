"""GraphGPO: a step is worth what its next state is, by its distance to success.

    A = A^E + ω A^S
    A^S(a_t) = (p_t - mean over the state group of p) / F_norm,    p_t = g γ^d(s_{t+1})

d is the fewest steps to success from a state, over all transitions that trajectories of the task
took. It is 0 after the last step of a success. A state from which no path leads to success, and the
end of a failure, count as one step farther than the farthest state that has one. A^E and F_norm are
those of GiGPO. The paper's exponent is d(s_{t+1}) + 1, which is g times γ: standardised, the same.
Paper: GraphGPO, arXiv 2605.26684.

Page: docs/estimators/graphs.md. Test: tests/estimators/test_graphgpo.py.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ascribe.estimators.base import LARGEST_FACTOR
from ascribe.estimators.credit import Sentence
from ascribe.estimators.gigpo import StepTerms, TwoLevel
from ascribe.groups import Groups
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.check import LARGEST_REWARD, arrange
from ascribe.steps.returns import episode_return
from ascribe.steps.table import StepTable

NEARER = Sentence(
    "by the distance to success, {peers} steps in this state came to what is worth {baseline}; "
    "this one to {own}"
)


def steps_to_success(
    labels: Ints, count: int, trajectory: Ints, task: Ints, success: Bools
) -> Ints:
    """The fewest steps to success that are left after each row.

    ``labels`` are state groups, -1 a state of its own; ``success`` is that of a row's trajectory.
    """
    rows, far = np.arange(labels.size), labels.size + 1
    state = np.where(labels < 0, count + rows, labels)
    last = np.append(trajectory[1:] != trajectory[:-1], True)
    distance = np.full(count + labels.size, far)
    distance[state[last & success & (task >= 0)]] = 1
    moves = rows[~last & (task >= 0)]
    while True:  # one step farther from success in each pass
        through = distance[state[moves + 1]] + 1
        nearer = through < distance[state[moves]]
        if not nearer.any():
            break
        np.minimum.at(distance, state[moves[nearer]], through[nearer])
    left = np.where(last, np.where(success, 0, far), distance[np.append(state[1:], 0)])
    known = distance[state] < far
    farthest = np.zeros(int(task.max(initial=-1)) + 2, dtype=np.int64)
    np.maximum.at(farthest, task[known], distance[state[known]])
    return np.where(left < far, left, farthest[task] + 1)


@dataclass(frozen=True, kw_only=True)
class GraphGPO(TwoLevel):
    """Graph-based group policy optimization: steps by how near to success they lead.

    ``A = A^E + ω A^S``. ``A^E`` compares a trajectory's return with its task group, ``A^S`` the
    distance to success after a step with that of the other visits to the same state, on the graph
    of all transitions of the task.

    Attributes:
        gamma: decay γ of worth with each step of distance (public code: 0.10).
        right: an episode succeeds if its return without penalties is at least this.
        goal: g, what success is worth (public code: 10, its reward).
    """

    name: ClassVar[str] = "graphgpo"
    paper: ClassVar[str] = "GraphGPO, arXiv 2605.26684"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "verl-agent": {"baseline_unit": "step", "group_of_one": "raw", "goal": 10.0, "right": 10.0}
    }
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **TwoLevel.ranges,
        "right": (-LARGEST_REWARD, LARGEST_REWARD),
        "goal": (0.0, LARGEST_FACTOR),
    }
    sentences: ClassVar[tuple[Sentence, Sentence]] = (NEARER, NEARER)

    gamma: float = 0.10
    right: float = 1.0
    goal: float = 1.0

    def step_terms(self, table: StepTable, groups: Groups) -> StepTerms:
        """The step term: what each step led to, by its distance to success."""
        steps = arrange(table)
        returns = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
        success = (returns >= self.right - 1e-9 * max(1.0, abs(self.right)))[steps.trajectory]
        task = np.where(self.excluded(steps), -1, steps.group)
        left = steps_to_success(groups.labels, groups.count, steps.trajectory, task, success)
        worth = self.goal * self.gamma ** left.astype(np.float64) - self.late_penalties(steps)
        return {"step": self.step_term(table, groups, worth)}, {}
