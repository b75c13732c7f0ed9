"""What ``returns`` with a memory gives, computed row by row."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable


def against_memory(
    iterations: Iterable[StepTable], memory: float, gamma: float
) -> Iterator[Floats]:
    """Each return minus its task's mean, where a row of t visits ago counts memory ** t.

    One rollout of each task, so there is nothing to compare with in the first iteration.
    """
    seen: defaultdict[str | None, list[tuple[int, float]]] = defaultdict(list)
    for number, table in enumerate(iterations):
        assert table.task is not None
        tasks, episode, own = table.task.texts(), table.trajectory.codes, np.zeros(len(table))
        for row in np.argsort(-table.step):  # the last step of an episode first
            after = (episode == episode[row]) & (table.step == table.step[row] + 1)
            own[row] = table.reward[row] + gamma * own[after].sum()
            seen[tasks[row]].append((number, own[row]))
        advantage = np.zeros(len(table))
        for row, task in enumerate(tasks if number else []):
            visits = sorted({when for when, _ in seen[task]}, reverse=True)
            weights = [memory ** visits.index(when) for when, _ in seen[task]]
            advantage[row] = own[row] - np.average([r for _, r in seen[task]], weights=weights)
        yield advantage
