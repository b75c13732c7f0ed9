"""The truth is true: dynamic programming against loops, and against many rollouts."""

from dataclasses import replace

import numpy as np
import pytest

from ascribe_lab.audit import ALL_WORLDS, TabularTasks
from ascribe_lab.audit.scores import cosine, policy_gradient
from ascribe_lab.audit.tasks import sample_episodes
from lab.tests.audit.batches import batch_of

GAMMA = 0.95
each_world = pytest.mark.parametrize("name", ALL_WORLDS)


def tasks_of(name: str, count: int = 2, seed: int = 0) -> TabularTasks:
    return ALL_WORLDS[name].tasks(count, np.random.default_rng(seed))


def value_by_loops(tasks: TabularTasks, task: int, state: int, t: int, memory: dict) -> float:
    """Expected discounted return from a state on, one branch at a time."""
    if t == tasks.horizon or state == tasks.states:
        return 0.0
    if (state, t) not in memory:
        total = 0.0
        for a, chance_of_action in enumerate(tasks.policy[task, state]):
            for k, chance in enumerate(tasks.chance[task, state, a]):
                follows = int(tasks.outcome[task, state, a, k])
                later = value_by_loops(tasks, task, follows, t + 1, memory)
                paid = tasks.reward[task, state, a, k]
                total += chance_of_action * chance * (paid + GAMMA * later)
        memory[state, t] = total
    return memory[state, t]


@pytest.mark.unit
@pytest.mark.parametrize("name", ["graph", "stop", "chance", "keydoor", "compaction", "delegate"])
def test_values_equal_those_of_a_plain_recursion(name: str) -> None:
    tasks = tasks_of(name, count=1)
    exact = tasks.solve(GAMMA)
    start = int(tasks.start[0])
    assert exact.value[0, 0, start] == pytest.approx(value_by_loops(tasks, 0, start, 0, {}))


@pytest.mark.unit
@each_world
def test_worlds_are_well_formed(name: str) -> None:
    tasks = tasks_of(name)
    exact = tasks.solve(GAMMA)
    np.testing.assert_allclose(tasks.chance.sum(axis=-1), 1.0)
    np.testing.assert_allclose(tasks.response_policy.sum(axis=(2, 3)), 1.0)
    np.testing.assert_allclose((exact.advantage * tasks.policy).sum(axis=-1), 0.0, atol=1e-12)
    assert tasks.outcome.min() >= 0
    assert tasks.outcome.max() <= tasks.states
    assert (exact.visits.sum(axis=-1) <= 1 + 1e-9).all()
    assert tasks.observation.max() < len(tasks.texts)
    assert tasks.verb.max() < len(tasks.actions)
    np.testing.assert_allclose(np.linalg.norm(tasks.centre, axis=-1), 1.0)


@pytest.mark.unit
@each_world
def test_the_gradient_is_the_derivative_of_the_return(name: str) -> None:
    """With γ = 1 the policy gradient is the slope of the exact return in each logit."""
    tasks = tasks_of(name, count=1)
    slope = tasks.gradient(tasks.solve(1.0))
    random = np.random.default_rng(1)
    way = random.normal(size=tasks.logits.shape)
    step = 1e-5
    up = replace(tasks, logits=tasks.logits + step * way).success()[0]
    down = replace(tasks, logits=tasks.logits - step * way).success()[0]
    assert (up - down) / (2 * step) == pytest.approx(float((slope * way).sum()), abs=1e-6)


@pytest.mark.slow
@each_world
def test_many_rollouts_agree_with_dynamic_programming(name: str) -> None:
    """The mean return of many episodes lies within 4 standard errors of the exact value."""
    tasks = tasks_of(name, count=1, seed=3)
    walked = sample_episodes(tasks, 2_000_000 // tasks.horizon, np.random.default_rng(4))
    discounted = walked.reward @ GAMMA ** np.arange(tasks.horizon)
    exact = tasks.solve(GAMMA)
    error = discounted.std() / np.sqrt(discounted.size)
    assert abs(discounted.mean() - exact.value[0, 0, tasks.start[0]]) < 4 * error
    plain = walked.reward.sum(axis=1)
    error = plain.std() / np.sqrt(plain.size)
    assert abs(plain.mean() - tasks.success()[0]) < 4 * error


@pytest.mark.slow
@each_world
def test_many_rollouts_agree_on_the_advantage_of_the_first_action(name: str) -> None:
    tasks = tasks_of(name, count=1, seed=5)
    walked = sample_episodes(tasks, 2_000_000 // tasks.horizon, np.random.default_rng(6))
    discounted = walked.reward @ GAMMA ** np.arange(tasks.horizon)
    exact, start = tasks.solve(GAMMA), int(tasks.start[0])
    action = walked.response[:, 0] // tasks.forms
    for a in range(tasks.logits.shape[2]):
        taken = discounted[action == a]
        if taken.size > 100:
            error = max(taken.std() / np.sqrt(taken.size), 1e-12)
            assert abs(taken.mean() - exact.q[0, 0, start, a]) < 4.5 * error


@pytest.mark.slow
@each_world
def test_the_gradient_of_true_advantages_is_the_exact_gradient(name: str) -> None:
    tasks = tasks_of(name, seed=7)
    exact = tasks.solve(GAMMA)
    batch = batch_of(tasks, exact, np.random.default_rng(8), group_size=400_000 // tasks.horizon)
    found = policy_gradient(tasks, batch, batch.advantage)
    assert cosine(found.ravel(), tasks.gradient(exact).ravel()) > 0.98
