"""Groups that do not count, with verl's trainers whose batch is a ``DataProto``.

verl's own methods make the update; a worker's part is done here, as a worker does it.
"""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.tests.train.test_verl_sessions import policy_gradient, proto, sessions
from tests.engines.needs import NEEDS_VERL

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]

ACTOR = "actor_rollout_ref.actor"
TRAINERS = ["OneStepOffTrainer", "FullyAsyncTrainer"]


def made_trainer(name: str, ranks: int, seen: list[Any], *keys: str) -> Any:
    """One of the trainers, without workers; updates are noted."""
    from omegaconf import OmegaConf

    from ascribe.engines.verl import separate
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import tokenizer, verl_config

    cls = getattr(separate, name)
    config = verl_config("ascribe.recipe=gigpo", "+ascribe.state=key", *keys)
    trainer = cls.__new__(cls)
    trainer.config = OmegaConf.create(OmegaConf.to_container(config))
    trainer.steps, trainer.tokenizer = LoopSteps(config), tokenizer()
    trainer.global_steps = trainer.current_param_version = 3
    trainer.metrics, trainer.timing_raw, trainer.reward_extra_infos_dict = {}, {}, {}
    trainer._learned, trainer.use_critic = None, False

    def update_actor(batch: Any) -> Any:
        from tensordict import NonTensorData, TensorDict

        seen.append(batch)
        return TensorDict({"metrics": NonTensorData({"mfu": 0.0})}, [])

    trainer.actor_rollout_wg = SimpleNamespace(
        update_actor=update_actor, _dispatch_info={"actor": list(range(ranks))}
    )
    return trainer


def batch_of(copies: int, dropped: set[str]) -> Any:
    """Groups of two sessions each; the lists of those that are dropped are malformed."""
    from verl.protocol import DataProto

    parts = []
    for copy in range(copies):
        made = sessions()
        for output, uid in zip(made, "aabb", strict=True):
            output.response_logprobs = None
            if f"{uid}{copy}" in dropped:
                output.extra_fields["turn_states"] = ["too short"] * 9
        part = proto(made)
        part.non_tensor_batch["uid"] = np.array([f"{uid}{copy}" for uid in "aabb"], dtype=object)
        part.batch["position_ids"] = part.batch["attention_mask"].cumsum(1)
        part.batch["old_log_probs"] = part.batch["rm_scores"] * 0.0
        part.batch["rollout_log_probs"] = part.batch["rm_scores"] * 0.0
        part.batch["input_ids"] = part.batch["attention_mask"]
        parts.append(part)
    return DataProto.concat(parts)


def minibatches(sent: Any, ranks: int) -> list[Any]:
    """How verl's workers cut an update, each its part of the batch; the parts of a minibatch."""
    from verl.utils import tensordict_utils as tu

    size = tu.get(sent, "mini_batch_size")
    assert size % ranks == 0
    parts = [
        list(tu.make_iterator(part, mini_batch_size=size // ranks, epochs=1))
        for part in tu.chunk_tensordict(sent, ranks)
    ]
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dropped_group_leaves_no_minibatch_empty(name: str, ranks: int) -> None:
    from verl.utils import tensordict_utils as tu

    seen: list[Any] = []
    trainer = made_trainer(name, ranks, seen, f"{ACTOR}.ppo_mini_batch_size=1")
    batch = batch_of(2, {"a0", "b0", "a1"})
    trainer.reward_tensor = batch.batch["rm_scores"]
    found = trainer._fit_compute_advantage(batch)
    assert trainer.metrics["ascribe/dropped/bad_turn_states"] == 3
    assert trainer.metrics["ascribe/rows"] == 2
    trainer._update_actor(found)
    (sent,) = seen
    cut = minibatches(sent, ranks)
    counted = [sum(int(part["loss_mask"].sum()) for part in parts) for parts in cut]
    assert len(cut) == 2  # of four that verl makes of whole groups
    assert min(counted) > 0
    assert tu.get(sent, "global_batch_size") == 1  # row that counts in each minibatch
    # Each row keeps what belongs to it.
    for parts in cut:
        for part in parts:
            assert not part["advantages"][part["loss_mask"] == 0].any()
    assert any(part["advantages"].any() for parts in cut for part in parts)


@pytest.mark.parametrize("name", TRAINERS)
def test_whole_batches_are_verls_own(name: str) -> None:
    from verl.utils import tensordict_utils as tu

    seen: list[Any] = []
    trainer = made_trainer(name, 1, seen, f"{ACTOR}.ppo_mini_batch_size=1")
    batch = batch_of(2, set())
    trainer.reward_tensor = batch.batch["rm_scores"]
    trainer._update_actor(trainer._fit_compute_advantage(batch))
    (sent,) = seen
    sizes = [tu.get(sent, each) for each in ("mini_batch_size", "global_batch_size")]
    assert sizes == [2, 2]
    assert len(minibatches(sent, 1)) == 4


@pytest.mark.parametrize("name", TRAINERS)
def test_a_step_in_which_no_group_counts_makes_no_update(name: str) -> None:
    """verl's correction of rollouts, which takes masks with tokens alone, is not asked."""
    from verl.trainer.ppo.metric_utils import compute_data_metrics

    seen: list[Any] = []
    correction = "algorithm.rollout_correction.rollout_is=token"
    trainer = made_trainer(name, 1, seen, correction, f"{ACTOR}.ppo_mini_batch_size=1")
    batch = batch_of(1, {"a0", "b0"})
    trainer.reward_tensor = batch.batch["rm_scores"]
    found = trainer._fit_compute_advantage(batch)
    assert not found.batch["advantages"].any()
    metrics = compute_data_metrics(found, use_critic=False)
    assert metrics["critic/score/mean"] == 0.4375
    trainer._update_actor(found)
    assert seen == []


def test_a_pass_over_masked_rows_alone_has_no_loss() -> None:
    """``bypass_mode`` is the default of both trainers; verl's own correction refuses the pass."""
    import torch
    from verl.trainer.ppo import rollout_corr_helper

    from ascribe.engines.verl import masked  # noqa: F401 (workers load it)

    correct = rollout_corr_helper.compute_rollout_correction_and_rejection_mask
    old = torch.full((1, 4), -0.5)
    nothing = torch.zeros(1, 4)
    given = {"old_log_prob": old, "rollout_log_prob": old - 0.1}
    options = {"rollout_is": "token", "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}
    with pytest.raises(ValueError, match="at least one valid token"):
        correct.__wrapped__(**given, **options, response_mask=nothing)
    _, mask, metrics = correct(**given, **options, response_mask=nothing)
    assert torch.equal(mask, nothing)
    _, _, others = correct(**given, **options, response_mask=torch.ones(1, 4))
    assert metrics.keys() == others.keys()  # verl's ranks must have the same ones
    gradient = policy_gradient("bypass_mode", "token-sum", torch.ones(1, 4), nothing)
    assert not gradient.any()
    gradient = policy_gradient(
        "bypass_mode", "seq-mean-token-mean", torch.ones(2, 4), torch.eye(2, 4)
    )
    assert gradient.any()
