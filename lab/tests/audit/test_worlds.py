"""The worlds' knobs turn what they say they turn."""

from collections.abc import Callable

import numpy as np
import pytest

from ascribe.estimators import GRPO, BiGPO, GiGPO
from ascribe.steps.check import arrange, check
from ascribe.steps.problems import Severity
from ascribe_lab.audit import ALL_WORLDS, WORLDS, AuditBatch, Conditions, TabularTasks, rollouts
from ascribe_lab.audit.rare import NOTES, WINDOW
from ascribe_lab.audit.scores import policy_gradient
from lab.tests.audit.batches import batch_of

pytestmark = pytest.mark.unit

each_world = pytest.mark.parametrize("name", ALL_WORLDS)


def some(
    name: str, *, wordings: int | None = None, **conditions: float
) -> tuple[TabularTasks, AuditBatch]:
    random = np.random.default_rng(0)
    world = ALL_WORLDS[name]
    tasks = world.tasks(8, random, wordings=wordings)
    conditions = {"paraphrase": world.paraphrase, "noise": world.noise} | conditions
    return tasks, batch_of(tasks, tasks.solve(0.95), random, **conditions)


def alone(batch: AuditBatch) -> float:
    """Share of the states, told apart by their text, that were seen once."""
    size = np.bincount(GiGPO()(batch.table).terms["step"].labels)
    return float((size == 1).mean())


def purity(batch: AuditBatch, **parameters: str) -> float:
    """Share of the pairs of rows in a cluster that were in the same true state."""
    label = BiGPO(**parameters)(batch.table).terms["step"].labels
    pair = label[:, None] == label[None, :]
    np.fill_diagonal(pair, val=False)
    return float((batch.state[:, None] == batch.state[None, :])[pair].mean())


@each_world
def test_the_table_is_a_clean_one_in_canonical_order(name: str) -> None:
    _, batch = some(name)
    worst = check(batch.table, group_size=8).worst
    assert worst is None or worst < Severity.ERROR
    np.testing.assert_array_equal(arrange(batch.table).rows, np.arange(len(batch.table)))
    np.testing.assert_array_equal(batch.table.step, batch.step)
    np.testing.assert_allclose(np.linalg.norm(batch.table.fingerprint, axis=1), 1.0)


@each_world
def test_a_seed_decides_everything(name: str) -> None:
    _, one = some(name)
    _, two = some(name)
    assert one.table.to_dicts()[:50] == two.table.to_dicts()[:50]
    np.testing.assert_array_equal(one.advantage, two.advantage)


def test_paraphrases_make_singletons_from_few_to_half() -> None:
    few = [alone(some(name, paraphrase=0.0)[1]) for name in WORLDS]
    usual = [alone(some(name)[1]) for name in WORLDS]
    many = [alone(some(name, paraphrase=0.9, wordings=12)[1]) for name in WORLDS]
    assert np.mean(few) < 0.2
    assert 0.15 < np.mean(usual) < 0.35
    assert np.mean(many) > 0.45


def test_blur_takes_clusters_from_pure_to_a_fifth() -> None:
    pure = np.mean([purity(some(name)[1]) for name in ("graph", "craft", "stop")])
    mixed = [purity(some(n, blur=0.97)[1], on_collapse="keep") for n in ("graph", "craft", "stop")]
    assert pure > 0.97
    assert np.mean(mixed) < 0.2


def test_noise_makes_clustering_err() -> None:
    quiet = np.unique(BiGPO()(some("graph")[1].table).terms["step"].labels).size
    loud = np.unique(BiGPO()(some("graph", noise=0.6)[1].table).terms["step"].labels).size
    assert loud > 1.2 * quiet


def test_hidden_states_share_an_observation() -> None:
    alias, keydoor = some("alias")[0], some("keydoor")[0]
    assert len(np.unique(alias.observation[0])) < alias.states
    assert (keydoor.observation[:, :6] == keydoor.observation[:, 6:]).all()


def test_crafting_follows_recipes() -> None:
    _, batch = some("craft")
    texts = {row["state"] for row in batch.table.to_dicts()}
    made = [text for text in texts if "stick" in text.split("You hold: ")[1]]
    assert made
    # Planks are never used up, but may be dropped, so most holders of sticks hold planks.
    assert np.mean(["oak planks" in text for text in made]) > 0.5


def estimated(by: Callable[[AuditBatch], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    tasks, batch = some("graph", paraphrase=0.0)
    responses = policy_gradient(tasks, batch, by(batch))
    return responses, responses.sum(axis=-1)


def test_only_surface_forms_tell_same_action_means_from_own_returns() -> None:
    """On action logits the two agree to the last bit of rounding; on responses they do not."""

    def own(batch: AuditBatch) -> np.ndarray:
        return GiGPO(normalise="mean", gamma=0.95)(batch.table).terms["step"].values

    def pooled(batch: AuditBatch) -> np.ndarray:
        values, states = own(batch), GiGPO()(batch.table).terms["step"].labels
        kind = states * 10 + batch.response // 4
        return (np.bincount(kind, values) / np.maximum(np.bincount(kind), 1))[kind]

    by_response, by_action = estimated(own)
    pooled_response, pooled_action = estimated(pooled)
    np.testing.assert_allclose(by_action, pooled_action, atol=1e-12)
    assert np.abs(by_response - pooled_response).max() > 0.01


@pytest.mark.parametrize(("name", "share"), [("reworded", 0.9), ("shell", 0.97)])
def test_states_recur_and_their_texts_hardly_do(name: str, share: float) -> None:
    _, batch = some(name)
    assert alone(batch) > share
    _, visits = np.unique(np.stack([batch.task, batch.state]), axis=1, return_counts=True)
    assert visits.mean() > 3


def best(tasks: TabularTasks, actions: list[int]) -> np.ndarray:
    """The success of the best policy with these actions in each task."""
    task = np.arange(tasks.count)[:, None, None, None]
    value = np.zeros((tasks.count, tasks.states + 1))
    for _ in range(tasks.horizon):
        q = (tasks.chance * (tasks.reward + value[task, tasks.outcome])).sum(axis=-1)
        value[:, :-1] = q[:, :, actions].max(axis=-1)
    return value[np.arange(tasks.count), tasks.start]


@pytest.mark.parametrize(
    ("name", "others", "worth"), [("compaction", [0, 1, 3], 0.4), ("delegate", [0, 2, 3], 0.1)]
)
def test_summaries_and_sub_agents_are_worth_their_steps(
    name: str, others: list[int], worth: float
) -> None:
    tasks, _ = some(name)
    assert (best(tasks, [0, 1, 2, 3]) - best(tasks, others)).max() > worth


def test_a_full_window_loses_what_no_summary_holds() -> None:
    tasks, _ = some("compaction")
    full = NOTES.index((WINDOW - 1, 1, 2))
    assert (tasks.outcome[:, full, 0] == NOTES.index((1, 1, 0))).all()
    assert (tasks.outcome[:, full, 2, 0] == NOTES.index((1, 3, 0))).all()


def test_some_tasks_may_be_rolled_out() -> None:
    tasks, _ = some("graph")
    batch = rollouts(tasks, None, np.random.default_rng(0), Conditions(2), np.array([1, 5]))
    assert set(batch.task) == {1, 5}
    assert set(batch.table.group.texts()) == {"task 000001", "task 000005"}


def test_recipes_without_states_still_run() -> None:
    assert np.isfinite(GRPO()(some("dense")[1].table).advantage).all()
