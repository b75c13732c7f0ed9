"""What is known about estimators shows in the audit."""

import numpy as np
import pytest

from ascribe.estimators import RLOO, DrGRPO
from ascribe_lab.audit import WORLDS
from ascribe_lab.audit.scores import policy_gradient
from ascribe_lab.audit.tasks import TabularTasks
from lab.tests.audit.batches import batch_of


def mean_gradient(tasks: TabularTasks, recipe, batches: int, group_size: int) -> tuple:
    random, exact = np.random.default_rng(1), tasks.solve(1.0)
    found = []
    for _ in range(batches):
        batch = batch_of(tasks, exact, random, group_size=group_size)
        found.append(policy_gradient(tasks, batch, recipe(batch.table).advantage).sum(axis=-1))
    found = np.array(found)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(batches), exact


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph", "stop"])
def test_leave_one_out_is_unbiased(name: str) -> None:
    """Its mean gradient is the exact one, within what its own noise allows."""
    tasks = WORLDS[name].tasks(40, np.random.default_rng(0))
    mean, error, exact = mean_gradient(tasks, RLOO(), batches=400, group_size=3)
    wanted = tasks.gradient(exact).sum(axis=-1)
    seen = error > 1e-4
    away = (mean - wanted)[seen] / error[seen]
    assert np.mean(away**2) == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_the_mean_baseline_is_leave_one_out_shrunk() -> None:
    """With the row's own return in its baseline the gradient is (N - 1) / N of the exact one."""
    tasks = WORLDS["graph"].tasks(40, np.random.default_rng(0))
    mean, _, exact = mean_gradient(tasks, DrGRPO(), batches=400, group_size=3)
    wanted = tasks.gradient(exact).sum(axis=-1)
    slope = float((mean * wanted).sum() / (wanted * wanted).sum())
    assert slope == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.unit
@pytest.mark.parametrize("stop", [0.2, 0.5])
def test_the_bias_of_normalising_per_turn_has_its_closed_form(stop: float) -> None:
    """Turn k pays μ_k to all who are still there; the policy stops with a fixed chance.

    Rewards centred per turn index, summed to go, are zero on average for those who go on and for
    those who stop, so the difference is off by what going on earns: Σ_{k>t} μ_k P(alive at k).
    """
    random = np.random.default_rng(0)
    episodes, turns = 200_000, 10
    paid = 1.0 + 0.5 * np.arange(turns)
    leaves = random.random((episodes, turns)) < stop
    before = np.cumsum(leaves, axis=1) - leaves
    alive = before == 0
    reward = np.where(alive, paid + random.normal(size=alive.shape), 0.0)
    centred = np.where(alive, reward - reward.sum(axis=0) / alive.sum(axis=0), 0.0)
    goes_on = ~leaves[:, 0]

    def difference(values: np.ndarray) -> float:
        to_go = values.sum(axis=1)
        return float(to_go[goes_on].mean() - to_go[~goes_on].mean())

    bias = difference(centred) - difference(reward)
    closed = -sum(paid[k] * (1 - stop) ** (k - 1) for k in range(1, turns))
    assert bias == pytest.approx(closed, abs=0.05)
