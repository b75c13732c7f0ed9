"""Score estimated advantages against exact ones, and run learning curves with them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ascribe.steps.arrays import Floats, Ints
from ascribe_lab.audit.tasks import AuditBatch, Conditions, Exact, TabularTasks, rollouts

CLEAR = 0.02
"""The sign of a true advantage smaller than this is not scored."""

UPDATE_LENGTH = 2.0
"""Length of an update on the logits of one task, root mean square over the tasks of a block."""

POINTS = 10
"""Number of evenly spaced points at which a learning curve measures success."""

LATER = 3
"""Updates along the exact gradient between the two policies that are scored."""

MOMENTUM = 0.9
"""That of learning runs, as a trainer's optimiser has it."""

POOLED = 32
"""``update_cosine`` is of the summed gradient of this many batches, which predicts learning."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The exact gradients of a policy on the response logits, [blocks, D].

    Attributes:
        discounted: of the discounted return.
        success: of the return without discount.
        block: tasks of each block.
    """

    discounted: Floats
    success: Floats
    block: int

    @classmethod
    def of(cls, tasks: TabularTasks, exact: Exact, block: int) -> "Truth":
        """The gradients of the policy of ``tasks``."""
        by_block = (tasks.count // block, -1)
        success = tasks.gradient(tasks.solve(1.0))
        return cls(tasks.gradient(exact).reshape(by_block), success.reshape(by_block), block)


def scores_of(
    tasks: TabularTasks,
    truth: Truth,
    batches: Sequence[AuditBatch],
    estimates: Sequence[Floats],
) -> dict[str, Floats]:
    """Every score of a recipe, for each block of tasks.

    - ``gradient_cosine`` of a batch's policy gradient and the exact one, on response logits; the
      truth is the discounted return. ``success_cosine``: the truth is success without discount.
    - ``action_gradient_cosine``: on action logits, where differences between responses with the
      same action cancel: a lower bound on the cost of noise between them.
    - ``gradient_direction``: cosine of the mean gradient and the exact one: the bias, which more
      rollouts do not remove.
    - ``gradient_variance`` of a batch over the squared length of its mean along the exact gradient.
    - ``update_cosine``: pooled cosine of ``POOLED`` batches with the gradient of success.

    Args:
        tasks: the tasks, with the policy that was rolled out.
        truth: its exact gradients.
        batches: the rollouts.
        estimates: the estimated advantages of each of them.
    """
    blocks = len(truth.success)
    by_block = np.array(
        [policy_gradient(tasks, *pair) for pair in zip(batches, estimates, strict=True)]
    ).reshape(len(batches), blocks, -1)
    exact, moments = truth.discounted, Moments.of(by_block)
    return row_scores(batches, estimates, blocks, truth.block) | {
        "gradient_cosine": gradient_cosine(by_block, exact),
        "success_cosine": gradient_cosine(by_block, truth.success),
        "action_gradient_cosine": gradient_cosine(*map(tasks.by_action, (by_block, exact))),
        "gradient_direction": moments.pooled_cosine(exact, np.inf),
        "gradient_variance": moments.noise / np.maximum(moments.along(exact) ** 2, 1e-12),
        "update_cosine": moments.pooled_cosine(truth.success, POOLED),
    }


def row_scores(
    batches: Sequence[AuditBatch], estimates: Sequence[Floats], blocks: int, block: int
) -> dict[str, Floats]:
    """Scores of the advantages of rows, for each block of tasks.

    - ``cosine`` of estimated and true advantages over the rows of a batch.
    - ``sign``: share of rows with a clear true advantage whose sign is right; 0 counts half.
    - ``mse``: mean squared error over all batches, as a fraction of the mean square of the true
      advantage, after scaling by the one factor that minimises it: the scale of an advantage
      belongs to the learning rate. 1 is no better than an advantage of zero everywhere.
    """
    sums, cosines, right = np.zeros((3, blocks)), [], np.zeros((2, blocks))
    for batch, estimate in zip(batches, estimates, strict=True):
        owner, truth = batch.task // block, batch.advantage
        products = (estimate * truth, estimate * estimate, truth * truth)
        of_batch = np.array([np.bincount(owner, values, blocks) for values in products])
        sums += of_batch
        cosines.append(of_batch[0] / np.sqrt(np.maximum(of_batch[1] * of_batch[2], 1e-300)))
        clear = np.abs(truth) > CLEAR
        agrees = (np.sign(estimate) * np.sign(truth) + 1.0) / 2.0
        right += [np.bincount(owner[clear], values[clear], blocks) for values in (agrees, clear)]
    error = 1.0 - sums[0] ** 2 / np.maximum(sums[1] * sums[2], 1e-300)
    sign = right[0] / np.maximum(right[1], 1.0)
    return {"cosine": np.mean(cosines, axis=0), "sign": sign, "mse": error}


def policy_gradient(tasks: TabularTasks, batch: AuditBatch, advantage: Floats) -> Floats:
    r"""``1/G Σ over rows of A ∇ log π`` on the response logits, [n, S, A, M].

    For a softmax policy ``∂ log π(y | s) / ∂ logit(z | s) = 1[y = z] - π(z | s)``.
    """
    n, states, actions, forms = tasks.logits.shape
    state = batch.task * states + batch.state
    total = np.bincount(state, advantage, n * states).reshape(n, states, 1, 1)
    response = state * actions * forms + batch.response
    by_response = np.bincount(response, advantage, n * states * actions * forms)
    gradient = by_response.reshape(tasks.logits.shape) - total * tasks.response_policy
    return np.asarray(gradient / batch.group_size)


def gradient_cosine(gradients: Floats, truth: Floats) -> Floats:
    """Mean over batches of the cosine of a batch's gradient and the true one, by block.

    Args:
        gradients: [batches, blocks, D].
        truth: [blocks, D].
    """
    lengths = np.linalg.norm(gradients, axis=-1) * np.linalg.norm(truth, axis=-1)
    products = np.einsum("nbd,bd->nb", gradients, truth)
    return np.asarray((products / np.maximum(lengths, 1e-300)).mean(axis=0))


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and noise of the gradients of batches, by block.

    Attributes:
        mean: [blocks, D].
        noise: variance of a batch's gradient, summed over D.
        length: squared length of the true mean: that of ``mean``, less what noise adds to it.
    """

    mean: Floats
    noise: Floats
    length: Floats

    @classmethod
    def of(cls, gradients: Floats) -> "Moments":
        """Those of [batches, blocks, D]."""
        mean, count = gradients.mean(axis=0), len(gradients)
        own, of_mean = (np.einsum("...d,...d->...", v, v) for v in (gradients, mean))
        noise = (own.mean(axis=0) - of_mean) * count / (count - 1)
        return cls(mean, noise, of_mean - noise / count)

    def along(self, truth: Floats) -> Floats:
        """Length of the mean along a true gradient [blocks, D]."""
        length = np.linalg.norm(truth, axis=-1)
        return np.asarray(np.einsum("bd,bd->b", self.mean, truth) / np.maximum(length, 1e-300))

    def pooled_cosine(self, truth: Floats, batches: float) -> Floats:
        r"""Cosine of the true gradient and the sum of the gradients of this many batches, by block.

        ``a / sqrt(μ² + v / batches)`` with a the mean's component along the truth, μ its length and
        v the noise. Infinitely many batches leave the bias alone.
        """
        along = self.along(truth)
        square = np.maximum(self.length, along**2) + self.noise / batches
        return np.asarray(along / np.sqrt(np.maximum(square, 1e-300)))


def moved(tasks: TabularTasks, gradient: Floats, block: int) -> TabularTasks:
    """The tasks after an update of fixed length along a gradient of the response logits.

    The scale of a recipe does not matter, its direction does.
    """
    by_block = gradient.reshape(tasks.count // block, -1)
    length = np.sqrt((by_block**2).sum(axis=1, keepdims=True) / block)
    move = (UPDATE_LENGTH * by_block / np.maximum(length, 1e-9)).reshape(gradient.shape)
    return replace(tasks, logits=tasks.logits + move)


def later(tasks: TabularTasks, block: int) -> TabularTasks:
    """The tasks with a better policy: some updates along the exact gradient of success later."""
    for _ in range(LATER):
        tasks = moved(tasks, tasks.gradient(tasks.solve(1.0)), block)
    return tasks


def learning_curves(
    tasks: TabularTasks,
    estimate: Callable[[AuditBatch], Floats],
    random: np.random.Generator,
    conditions: Conditions,
    *,
    updates: int,
    block: int,
    momentum: float = MOMENTUM,
    parts: int = 1,
) -> Floats:
    """Exact success before a tabular learning run and after each tenth of it, [11, blocks].

    Blocks learn independently of each other.

    Args:
        tasks: the tasks of all blocks, block by block.
        estimate: the advantage of every row of a batch.
        random: source of randomness.
        conditions: how the tasks are rolled out.
        updates: number of updates.
        block: tasks of each block.
        momentum: an update goes along the sum of all gradients so far, each multiplied by this
            factor once for every update since.
        parts: each update rolls out one of this many parts of a block's tasks, by turns.
    """
    turns = _turns(random.spawn(1)[0], tasks.count // block, block, parts)
    points = {round(updates * point / POINTS) for point in range(1, POINTS + 1)}
    curve, velocity = [tasks.success()], np.zeros_like(tasks.logits)
    for update in range(1, updates + 1):
        batch = rollouts(tasks, None, random, conditions, next(turns))
        velocity = momentum * velocity + policy_gradient(tasks, batch, estimate(batch))
        tasks = moved(tasks, velocity, block)
        if update in points:
            curve.append(tasks.success())
    return np.asarray(np.array(curve).reshape(len(curve), -1, block).mean(axis=2))


def _turns(random: np.random.Generator, blocks: int, block: int, parts: int) -> Iterator[Ints]:
    """The tasks of each update: every one of a block once in as many updates as it has parts."""
    task = np.arange(blocks * block).reshape(blocks, block)
    while True:
        for part in np.split(random.permuted(task, axis=1), parts, axis=1):
            yield np.sort(part, axis=None)


def cosine(x: Floats, y: Floats) -> float:
    """Cosine of the angle between two vectors; 0 if either is zero."""
    lengths = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / lengths if lengths > 0 else 0.0
