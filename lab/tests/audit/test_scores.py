"""Scores of gradients, and controls whose states mean nothing."""

from functools import partial

import numpy as np
import pytest

from ascribe.estimators import GiGPO
from ascribe_lab.audit import WORLDS, Conditions, rollouts, scored_recipe
from ascribe_lab.audit.run import Regrouped, advantage
from ascribe_lab.audit.scores import (
    Moments,
    gradient_cosine,
    later,
    learning_curves,
    moved,
    policy_gradient,
)
from experiments.audit_predictor.graphs import ALL_WORLDS
from lab.tests.audit.batches import batch_of

pytestmark = pytest.mark.unit


def noisy(batches: int, turn: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Gradients whose mean is turned away from the truth, with noise in every direction."""
    truth = np.zeros((1, 400))
    truth[0, 0] = 1.0
    mean = np.zeros(400)
    mean[:2] = np.cos(turn), np.sin(turn)
    random = np.random.default_rng(0)
    return mean + noise * random.normal(size=(batches, 1, 400)) / 20.0, truth


@pytest.mark.parametrize("number", [1, 4, 16])
def test_a_pooled_cosine_is_that_of_summed_batches(number: int) -> None:
    gradients, truth = noisy(4800, turn=0.6, noise=2.0)
    summed = gradients.reshape(-1, number, 1, 400).sum(axis=1)
    wanted = gradient_cosine(summed, truth)[0]
    assert Moments.of(gradients[:64]).pooled_cosine(truth, number)[0] == pytest.approx(
        wanted, abs=0.02
    )


def test_infinitely_many_batches_leave_the_bias() -> None:
    gradients, truth = noisy(64, turn=0.6, noise=2.0)
    assert Moments.of(gradients).pooled_cosine(truth, np.inf)[0] == pytest.approx(
        np.cos(0.6), abs=0.06
    )


def test_a_later_policy_is_better() -> None:
    tasks = WORLDS["graph"].tasks(16, np.random.default_rng(0), success=(0.03, 0.35))
    assert (later(tasks, 8).success() > tasks.success()).mean() > 0.9


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_momentum_by_hand(momentum: float) -> None:
    tasks = WORLDS["graph"].tasks(4, np.random.default_rng(0), success=(0.03, 0.35))
    recipe, conditions = scored_recipe("grpo"), Conditions(8, 0.25)
    estimate = partial(advantage, recipe)
    run = partial(learning_curves, tasks, estimate, conditions=conditions, updates=3, block=2)
    curves = run(random=np.random.default_rng(1), momentum=momentum)
    random, gradients, at = np.random.default_rng(1), [], tasks
    for _ in range(3):
        batch = rollouts(at, None, random, conditions)
        gradients.append(policy_gradient(at, batch, estimate(batch)))
        since = range(len(gradients) - 1, -1, -1)
        along = sum(momentum**k * g for k, g in zip(since, gradients, strict=True))
        at = moved(at, along, 2)
    np.testing.assert_allclose(curves[-1], at.success().reshape(2, 2).mean(axis=1))


@pytest.mark.parametrize("name", sorted(set(ALL_WORLDS) - set(WORLDS)))
def test_graphs_have_tasks_to_learn(name: str) -> None:
    world = ALL_WORLDS[name]
    tasks = world.tasks(8, np.random.default_rng(0), success=(0.03, 0.35))
    assert tasks.observation.max() < len(tasks.texts)
    hidden = len(np.unique(tasks.observation[0])) < tasks.states
    assert hidden == (world.build.keywords["alias"] > 0)


def some() -> object:
    random = np.random.default_rng(0)
    tasks = WORLDS["graph"].tasks(4, random)
    return batch_of(tasks, tasks.solve(0.95), random).table


def sizes(recipe: object, table: object) -> list[list[int]]:
    """Sizes of the state groups of each task."""
    seen = []
    label = recipe(table).terms["step"].labels
    for task in np.unique(table.group.codes):
        _, counts = np.unique(label[table.group.codes == task], return_counts=True)
        seen.append(sorted(counts.tolist()))
    return seen


def test_random_groups_have_the_same_sizes_and_other_members() -> None:
    table, random = some(), Regrouped(GiGPO(), "random")
    assert sizes(random, table) == sizes(GiGPO(), table)
    assert (random(table).terms["step"].labels != GiGPO()(table).terms["step"].labels).mean() > 0.5
    np.testing.assert_array_equal(random(table).advantage, random(table).advantage)


def test_one_group_for_all_is_the_task() -> None:
    table = some()
    assert [len(of_task) for of_task in sizes(scored_recipe("sbc_one"), table)] == [1] * 4


def test_controls_change_one_thing() -> None:
    assert scored_recipe("gigpo_mean@1") == GiGPO(normalise="mean", gamma=1.0)
    assert scored_recipe("gigpo_equal") == GiGPO(scale="equal")
    assert scored_recipe("returns_turn@1").baseline == "turn"
    with pytest.raises(ValueError, match="no recipe 'nothing'"):
        scored_recipe("nothing_random")
    with pytest.raises(ValueError, match="grpo has no gamma"):
        scored_recipe("grpo@1")
