"""A short tabular learning run: what an estimator is worth to a policy that learns from it."""

import numpy as np

from ascribe.audit.rollouts import Conditions, rollouts
from ascribe.audit.scores import Estimator, policy_gradient
from ascribe.audit.tasks import Tasks
from ascribe.steps.arrays import Floats

RATE = 2.0
"""Length of an update on the logits of one task, root mean square over the tasks of a block."""

POINTS = 10
"""After how many equal parts of a run success is measured."""


def learning_curves(
    tasks: Tasks,
    estimate: Estimator,
    random: np.random.Generator,
    conditions: Conditions,
    *,
    updates: int,
    block: int,
) -> Floats:
    """Exact success at the start and after each tenth of the updates, [11, blocks].

    All blocks learn side by side; each has its own policies and shares nothing with the others. An
    update moves the response logits along the policy gradient, at a fixed length for each block:
    the scale of a recipe does not matter, its direction does.

    Args:
        tasks: the tasks of all blocks, block by block.
        estimate: the advantages that the update uses.
        random: where randomness comes from.
        conditions: how the tasks are rolled out.
        updates: how many updates.
        block: tasks of each block.
    """
    points = {round(updates * part / POINTS) for part in range(1, POINTS + 1)}
    curve = [tasks.success()]
    for number in range(1, updates + 1):
        batch = rollouts(tasks, None, random, conditions)
        gradient = policy_gradient(tasks, batch, estimate(batch))
        apart = gradient.reshape(tasks.count // block, -1)
        length = np.sqrt((apart**2).sum(axis=1, keepdims=True) / block)
        move = (RATE * apart / np.maximum(length, 1e-9)).reshape(gradient.shape)
        tasks = tasks.with_logits(tasks.logits + move)
        if number in points:
            curve.append(tasks.success())
    return np.asarray(np.array(curve).reshape(len(curve), -1, block).mean(axis=2))
