"""Score estimated advantages against exact ones, and run learning curves with them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ascribe.audit.tasks import AuditBatch, Conditions, Exact, TabularTasks, rollouts
from ascribe.steps.arrays import Floats

CLEAR = 0.02
"""The sign of a true advantage smaller than this is not scored."""

UPDATE_LENGTH = 2.0
"""Length of an update on the logits of one task, root mean square over the tasks of a block."""

POINTS = 10
"""Number of evenly spaced points at which a learning curve measures success."""


@dataclass(frozen=True)
class Scores:
    """Scores of one recipe on one block of tasks.

    The scale of an advantage belongs to the learning rate, so ``mse``, ``bias`` and ``variance``
    are computed after scaling all advantages of a block by the one factor that minimises the error.
    They are fractions of the mean square of the true advantage.

    Attributes:
        cosine: of estimated and true advantages over the rows of a batch.
        mse: mean squared error; 1 is no better than an advantage of zero everywhere.
        bias: squared difference between mean estimate and truth, for equal task, step, state and
            action.
        variance: of the estimate for equal task, step, state and action.
        sign: share of rows with a clear true advantage whose sign is right; 0 counts half.
        rank: rank correlation of estimated and true advantages over the rows of a batch.
        gradient_cosine: of a batch's policy gradient and the exact one, on response logits.
        action_gradient_cosine: the same on action logits, where differences between responses with
            the same action cancel: a lower bound on the cost of noise between them.
        gradient_direction: cosine of the mean of all batches' gradients (action logits) and the
            exact one: the error that more rollouts do not remove.
        gradient_variance: variance of a batch's gradient on response logits over the squared
            length of its mean along the exact gradient.
    """

    cosine: float
    mse: float
    bias: float
    variance: float
    sign: float
    rank: float
    gradient_cosine: float
    action_gradient_cosine: float
    gradient_direction: float
    gradient_variance: float


class Tally:
    """Sums over the batches of one block, from which ``Scores`` follow."""

    def __init__(self, tasks: TabularTasks, exact: Exact) -> None:
        self.tasks = tasks
        self.truth = exact.advantage.ravel()
        self.exact_gradient = tasks.gradient(exact)
        cells = self.truth.size
        self.rows, self.sums, self.squares = np.zeros(cells), np.zeros(cells), np.zeros(cells)
        self.cross = self.estimate_squares = self.truth_squares = 0.0
        self.correct = self.clear = 0.0
        self.cosines: list[float] = []
        self.ranks: list[float] = []
        self.gradients: list[Floats] = []

    def add(self, batch: AuditBatch, estimate: Floats) -> None:
        """Add the estimated advantages of a batch."""
        truth = batch.advantage
        shape = (self.tasks.horizon, *self.tasks.logits.shape[:3])
        action = batch.response // self.tasks.forms
        cell = np.ravel_multi_index((batch.step, batch.task, batch.state, action), shape)
        self.rows += np.bincount(cell, minlength=self.truth.size)
        self.sums += np.bincount(cell, estimate, self.truth.size)
        self.squares += np.bincount(cell, estimate * estimate, self.truth.size)
        self.cross += float(estimate @ truth)
        self.estimate_squares += float(estimate @ estimate)
        self.truth_squares += float(truth @ truth)
        clear = np.abs(truth) > CLEAR
        agrees = np.sign(estimate[clear]) * np.sign(truth[clear])
        self.correct += float((agrees + 1.0).sum()) / 2.0
        self.clear += float(clear.sum())
        self.cosines.append(cosine(estimate, truth))
        self.ranks.append(cosine(_centred_ranks(estimate), _centred_ranks(truth)))
        self.gradients.append(policy_gradient(self.tasks, batch, estimate))

    def scores(self) -> Scores:
        """The scores over all batches so far."""
        scale = self.cross / self.estimate_squares if self.estimate_squares else 0.0
        repeated = self.rows > 1
        rows = self.rows[repeated]
        mean = scale * self.sums[repeated] / rows
        spread = scale**2 * self.squares[repeated] / rows - mean * mean
        spread = np.maximum(spread, 0.0) * rows / (rows - 1)
        squared_bias = (mean - self.truth[repeated]) ** 2 - spread / rows
        by_response = np.array([gradient.ravel() for gradient in self.gradients])
        by_action = np.array([gradient.sum(axis=-1).ravel() for gradient in self.gradients])
        exact, exact_action = self.exact_gradient.ravel(), self.exact_gradient.sum(axis=-1).ravel()
        along = float(by_response.mean(axis=0) @ exact) / float(np.linalg.norm(exact))
        noise = float(by_response.var(axis=0, ddof=1).sum()) if len(by_response) > 1 else np.nan
        return Scores(
            cosine=float(np.mean(self.cosines)),
            mse=1.0 - scale * self.cross / self.truth_squares,
            bias=float(rows @ squared_bias) / self.truth_squares,
            variance=float(rows @ spread) / self.truth_squares,
            sign=self.correct / max(self.clear, 1.0),
            rank=float(np.mean(self.ranks)),
            gradient_cosine=float(np.mean([cosine(g, exact) for g in by_response])),
            action_gradient_cosine=float(np.mean([cosine(g, exact_action) for g in by_action])),
            gradient_direction=cosine(by_action.sum(axis=0), exact_action),
            gradient_variance=noise / max(along**2, 1e-12),
        )


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


def cosine(x: Floats, y: Floats) -> float:
    """Cosine of the angle between two vectors; 0 if either is zero."""
    lengths = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / lengths if lengths > 0 else 0.0


def _centred_ranks(values: Floats) -> Floats:
    """Rank of each value, ties sharing their mean rank, minus the mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts + 1) / 2.0
    return np.asarray(rank[inverse] - (values.size - 1) / 2.0)


def learning_curves(
    tasks: TabularTasks,
    estimate: Callable[[AuditBatch], Floats],
    random: np.random.Generator,
    conditions: Conditions,
    *,
    updates: int,
    block: int,
) -> Floats:
    """Exact success before a tabular learning run and after each tenth of it, [11, blocks].

    Blocks learn independently of each other. An update moves the response logits along the policy
    gradient, by a fixed length for each block: the scale of a recipe does not matter, its direction
    does.

    Args:
        tasks: the tasks of all blocks, block by block.
        estimate: the advantage of every row of a batch.
        random: source of randomness.
        conditions: how the tasks are rolled out.
        updates: number of updates.
        block: tasks of each block.
    """
    points = {round(updates * point / POINTS) for point in range(1, POINTS + 1)}
    curve = [tasks.success()]
    for update in range(1, updates + 1):
        batch = rollouts(tasks, None, random, conditions)
        gradient = policy_gradient(tasks, batch, estimate(batch))
        by_block = gradient.reshape(tasks.count // block, -1)
        length = np.sqrt((by_block**2).sum(axis=1, keepdims=True) / block)
        move = (UPDATE_LENGTH * by_block / np.maximum(length, 1e-9)).reshape(gradient.shape)
        tasks = replace(tasks, logits=tasks.logits + move)
        if update in points:
            curve.append(tasks.success())
    return np.asarray(np.array(curve).reshape(len(curve), -1, block).mean(axis=2))
