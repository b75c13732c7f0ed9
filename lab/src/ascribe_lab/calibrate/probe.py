"""A linear probe: how well a layer predicts the family of tasks that it has not seen."""

from dataclasses import dataclass

import numpy as np

from ascribe.groups.fingerprints import FloatMatrix
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.errors import InputError

FOLDS = 5
"""Of the cross-validation; fewer if a family has fewer tasks."""


@dataclass(frozen=True)
class Probe:
    """Accuracy of a linear probe, cross-validated by task group.

    Attributes:
        accuracy: share of rows whose family is predicted correctly, mean over folds.
        deviation: standard deviation of that share over folds.
        chance: accuracy of always predicting the most frequent family.
    """

    accuracy: float
    deviation: float
    chance: float


def split(task: Ints, family: Ints, random: np.random.Generator) -> Ints:
    """The fold of each row: rows of a task stay together, and families spread over all folds.

    Args:
        task: label of each row's task group.
        family: label of each row's family, one for each task.
        random: assigns the tasks of each family to folds.

    Raises:
        ValueError: if there is one family only, or a family has one task only.
    """
    tasks, first_row = np.unique(task, return_index=True)
    family_of_task = family[first_row]
    families, counts = np.unique(family_of_task, return_counts=True)
    if families.size < 2:
        raise InputError("a probe needs tasks of two families or more")
    if counts.min() < 2:
        raise InputError("a probe needs two tasks of every family: one to train on, one to test on")
    fold = np.zeros(int(task.max()) + 1, dtype=np.int64)
    for label in families:
        members = random.permutation(tasks[family_of_task == label])
        fold[members] = np.arange(members.size) % min(FOLDS, int(counts.min()))
    return fold[task]


def linear_probe(vectors: FloatMatrix, family: Ints, fold: Ints, ridge: float = 0.01) -> Probe:
    """Ridge regression on one-hot families; the prediction is the family with the largest value.

    ``W = argmin |X W - Y|² + λ |W|²`` with X standardised on the training rows, and
    λ = ridge x rows, so that its weight does not depend on the number of rows.

    Args:
        vectors: fingerprints, one row each.
        family: label of each row's family.
        fold: fold of each row; each fold is tested once, with a probe trained on the others.
        ridge: strength of the penalty.
    """
    _, label = np.unique(family, return_inverse=True)
    scores = [_score(vectors, label, fold == held_out, ridge) for held_out in np.unique(fold)]
    chance = np.bincount(label).max() / label.size
    return Probe(float(np.mean(scores)), float(np.std(scores)), float(chance))


def _score(vectors: FloatMatrix, label: Ints, tested: Bools, ridge: float) -> float:
    train, test = np.flatnonzero(~tested), np.flatnonzero(tested)
    mean = vectors[train].mean(axis=0, dtype=np.float64)
    deviation = vectors[train].std(axis=0, dtype=np.float64)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    x = (vectors[train] - mean) * scale
    y = np.eye(int(label.max()) + 1)[label[train]]
    centre = y.mean(axis=0)
    weights = _ridge_weights(x, y - centre, ridge * train.size)
    predicted = ((vectors[test] - mean) * scale @ weights + centre).argmax(axis=1)
    return float((predicted == label[test]).mean())


def _ridge_weights(x: Floats, y: Floats, penalty: float) -> Floats:
    """The ridge solution, from the smaller of the two Gram matrices."""
    rows, dims = x.shape
    if rows < dims:
        weights = x.T @ np.linalg.solve(x @ x.T + penalty * np.eye(rows), y)
    else:
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(dims), x.T @ y)
    return np.asarray(weights, dtype=np.float64)
