"""Candidates for states that never recur: tried in the audit and on small policies, not shipped.

Each is called on the step tables of one run, in order, and returns an object with an ``advantage``
for every row. What it learns from a table is used from the next one on. ``learning_recurrence.py``
and ``audit_recurrence.py`` measure them against ``returns``; docs/howto/state.md has the result.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ascribe.estimators.credit import Credit
from ascribe.estimators.gae import GAE
from ascribe.estimators.progress import Progress
from ascribe.estimators.sbc import SBC
from ascribe.groups import Groups
from ascribe.groups.actions import tag_body
from ascribe.groups.cluster import cluster
from ascribe.groups.fingerprints import normalised, present
from ascribe.groups.ngram import ngram
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import Coded, StepTable

REPLAYED = 4
"""Batches that a critic is trained on: the last so many."""


class HiddenCritic:
    """A critic on the policy's hidden states, trained over iterations, and GAE on its values.

    Two layers on the unit fingerprint, the turn and the task (one number each, learned as a bias);
    Adam on the squared error to the discounted return, over the last batches. The values of a batch
    come from the batches before it.
    """

    def __init__(self, gamma: float = 0.95, lam: float = 0.95) -> None:
        self.recipe = GAE(gamma=gamma, lam=lam, bootstrap=False)
        self.batches: list[tuple[Floats, Floats]] = []
        self.tasks: dict[str, int] = {}
        self.weights: list[Floats] = []
        self.moments: list[tuple[Floats, Floats]] = []
        self.updates, self.random = 0, np.random.default_rng(0)

    def __call__(self, table: StepTable) -> Any:
        """GAE with the critic's values; then the critic learns from the table."""
        steps = arrange(table)
        features = self._features(table)
        value = np.zeros(len(table))
        if self.weights:
            value = self._forward(features)[-1]
        returns = np.zeros(len(table))
        returns[steps.rows] = reward_to_go(steps.reward, steps.trajectory, self.recipe.gamma)
        credit = self.recipe(replace(table, value=value))
        self.batches = [*self.batches, (features, returns)][-REPLAYED:]
        self._learn()
        return credit

    def _features(self, table: StepTable, tasks: int = 64) -> Floats:
        assert table.fingerprint is not None
        names = [self.tasks.setdefault(str(n), len(self.tasks)) for n in table.group.values]
        task = np.eye(tasks)[np.array(names)[table.group.codes] % tasks]
        turn = table.step[:, None] / 16.0
        unit = normalised(np.asarray(table.fingerprint, np.float64))
        return np.hstack([unit * unit.shape[1] ** 0.5, turn, turn**2, task, np.ones_like(turn)])

    def _forward(self, features: Floats) -> tuple[Floats, Floats]:
        hidden = np.maximum(features @ self.weights[0], 0.0)
        return hidden, hidden @ self.weights[1] + features @ self.weights[2]

    def _learn(self, passes: int = 60, rate: float = 3e-3, rows: int = 256) -> None:
        inputs, returns = (np.concatenate(part) for part in zip(*self.batches, strict=True))
        if not self.weights:
            shapes = ((inputs.shape[1], 32), (32,), (inputs.shape[1],))
            scales = (inputs.shape[1] ** -0.5, 0.0, 0.0)
            draws = (self.random.normal(size=shape) for shape in shapes)
            self.weights = [s * d for s, d in zip(scales, draws, strict=True)]
            self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]
        for _ in range(passes):
            some = self.random.integers(0, returns.size, rows)
            x = inputs[some]
            hidden, value = self._forward(x)
            error = (value - returns[some]) / rows
            back = np.outer(error, self.weights[1]) * (hidden > 0)
            self.updates += 1
            for place, slope in enumerate((x.T @ back, hidden.T @ error, x.T @ error)):
                mean, square = self.moments[place]
                mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
                self.moments[place] = mean, square
                step = mean / (1 - 0.9**self.updates)
                step /= np.sqrt(square / (1 - 0.999**self.updates)) + 1e-8
                self.weights[place] = self.weights[place] - rate * step


@dataclass(frozen=True, kw_only=True)
class PooledClusters(SBC):
    """``sbc`` on tighter clusters that pool the same action across tasks.

    Clusters are over the batch, of ``share`` of the radius. Returns are taken above the mean of
    their task before they are pooled.
    """

    share: float = 0.5

    def _validate(self, name: str, hint: Any) -> None:
        if name != "share":
            super()._validate(name, hint)

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """Clusters over the batch."""
        steps = arrange(table)
        vectors = self._fingerprints(table, inputs)
        assert vectors is not None
        radius = self.share * self.radius
        groups = cluster(vectors, np.zeros_like(steps.group), radius, present(vectors))
        return groups, {}

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """``sbc`` of rewards less the task's mean return, paid at the end of an episode."""
        return super().compute(less_task_mean(table), inputs)


def less_task_mean(table: StepTable) -> StepTable:
    """The table with the mean return of the task taken off at the end of each episode."""
    steps = arrange(table)
    of_episode = segments.total(steps.reward, steps.trajectory, steps.trajectory_count)
    mean = segments.mean(of_episode, steps.group_of_trajectory, steps.group_count)
    reward = steps.reward.copy()
    last = np.append(steps.starts[1:], reward.size) - 1
    reward[last] -= mean[steps.group_of_trajectory]
    return replace(table, reward=steps.to_table_order(reward, len(table), 0.0))


@dataclass(frozen=True, kw_only=True)
class ByTool(SBC):
    """The outcome predicted from tool and error class: ``sbc`` with these as states, over tasks.

    The state of a step is the tool of the step before it, whether that step changed the text other
    than in its numbers (an error mostly does not), and which third of the horizon it is in.
    """

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """``sbc`` on the coarse states, pooled over the batch."""
        steps = arrange(table)
        tools = [(tag_body(text) or "").split(" ")[0] for text in table.action.values]
        texts = ["".join(c for c in text if not c.isdigit()) for text in table.state.values]
        states, horizon = [], int(steps.step.max()) + 1
        for place in range(steps.rows.size):
            if steps.step[place] == 0:
                states.append("start")
                continue
            before, now = steps.state[place - 1], steps.state[place]
            changed = before < 0 or now < 0 or texts[before] != texts[now]
            tool = tools[steps.action[place - 1]] if steps.action[place - 1] >= 0 else ""
            states.append(f"{tool} {changed} {3 * int(steps.step[place]) // horizon}")
        coded = Coded.encode(states)
        codes = steps.to_table_order(coded.codes, len(table), -1)
        coarse = replace(less_task_mean(table), state=Coded(codes, coded.values))
        return super().compute(coarse, inputs)

    def state_groups(
        self,
        table: StepTable,
        inputs: dict[str, Any],  # noqa: ARG002
    ) -> tuple[Groups, dict[str, float]]:
        """Equal coarse states over the batch."""
        steps = arrange(table)
        return Groups(steps.state, int(table.state.values.size)), {}


@dataclass
class CheapProgress:
    """``progress`` with a score that costs nothing: likeness to the ends of earlier successes.

    The score of a state is the largest cosine of its n-grams and those of the last states of
    successful episodes of the same task, in earlier tables; 0 for a task that never succeeded.
    """

    gamma: float = 0.95
    most: int = 32
    ends: dict[str, list[Any]] = field(default_factory=dict)

    def __call__(self, table: StepTable) -> Any:
        """``progress`` with the score; then the ends of successes are kept."""
        steps = arrange(table)
        vectors = ngram(table.state.values)
        score = np.zeros(steps.rows.size)
        names = table.group.texts()
        task = np.array([str(names[row]) for row in steps.rows])
        for name in np.unique(task):
            rows = np.flatnonzero(task == name)
            if known := self.ends.get(str(name)):
                likeness = vectors[steps.state[rows]] @ np.stack(known).T
                score[rows] = np.asarray(likeness).max(axis=1)
        last = np.append(steps.starts[1:], score.size) - 1
        won = segments.total(steps.reward, steps.trajectory, steps.trajectory_count) > 0.5
        for place in last[won]:
            kept = self.ends.setdefault(str(task[place]), [])
            kept.append(np.asarray(vectors[steps.state[place]]))
            del kept[: -self.most]
        scored = replace(table, score=steps.to_table_order(score, len(table), 0.0))
        return Progress(gamma=self.gamma)(scored)
