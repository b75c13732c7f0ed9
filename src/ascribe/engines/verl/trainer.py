"""``trainer.v1.trainer_mode=ascribe``: verl's synchronous trainer with credit for steps.

verl gives an advantage estimator the rewards and masks of rows, and no states or actions. So the
trainer computes the credit from the steps, and ``algorithm.adv_estimator=ascribe`` spreads it over
the rows' tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from ascribe.engines.crediting import (
    History,
    Iteration,
    LocalRollout,
    credit_iteration,
    has_history,
    load_history,
    save_history,
    write_rollouts,
)
from ascribe.engines.metrics import MetricsFile, iteration_metrics
from ascribe.engines.resolve import Run
from ascribe.engines.verl.engine import FINGERPRINT, LAYER
from ascribe.engines.verl.rows import FIELD, minibatch_count, minibatch_order, unpack
from ascribe.engines.verl.tasks import run_of
from ascribe.fingerprints import FloatMatrix
from ascribe.rollout.episode import RolloutFailedError
from ascribe.rollout.run import Rollout
from ascribe.steps.arrays import Bools, Floats, Ints

_CREDIT: ContextVar[Floats] = ContextVar("credit")


@contextmanager
def credited(advantage: Floats) -> Iterator[None]:
    """Inside, the estimator returns these advantages: one for each row of verl's batch."""
    token = _CREDIT.set(advantage)
    try:
        yield
    finally:
        _CREDIT.reset(token)


@register_adv_est("ascribe")  # type: ignore[untyped-decorator]
def estimate(
    token_level_rewards: Any,  # noqa: ARG001 (verl passes it; rewards come with the steps)
    response_mask: Any,
    **_: Any,
) -> tuple[Any, Any]:
    """Advantages and returns of the tokens: each row's advantage where its mask is 1.

    Raises:
        RuntimeError: under another trainer than Ascribe's.
    """
    advantage = _CREDIT.get(None)
    if advantage is None:
        raise RuntimeError(
            "adv_estimator=ascribe needs the steps of episodes, and verl's own trainer has none: "
            "set trainer.v1.trainer_mode=ascribe as well"
        )
    values = torch.from_numpy(advantage).to(response_mask.device, torch.float32)
    tokens = values[:, None] * response_mask
    return tokens, tokens.clone()


@register_trainer("ascribe")
class VerlTrainer(PPOTrainerSync):  # type: ignore[misc]
    """PPOTrainerSync that credits each step of an episode by a recipe.

    Rows are steps, so every batch has another number of them. Each of the ``update.minibatches``
    has its share of the rows that count. Padding rows, and rows of groups that do not count, have
    no token to learn from and enter no statistic.
    """

    def __init__(self, config: Any) -> None:
        self.run = run_of(config)
        refuse_unsupported(config, self.run)
        self._history: History = None
        self._learned = 0
        with open_dict(config):  # from here on this is the synchronous trainer
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train; metrics go to ``metrics.jsonl`` besides verl's loggers."""
        self.metrics = MetricsFile(self.run.config.output.folder, self.global_steps)
        super().fit(agent_loop_manager)

    # The state that a recipe carries from step to step is part of a checkpoint.

    def _save_checkpoint(self) -> None:
        if has_history(self.run.recipe):  # before the file that completes the checkpoint
            save_history(self._history, self._checkpoint())
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            trainer = self.config.trainer
            from_path = trainer.resume_mode == "resume_path" and trainer.resume_from_path
            self._history = load_history(self.run.recipe, from_path or self._checkpoint())

    def _checkpoint(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    # Before credit: fingerprints come with the log-probabilities.

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self.run.layer is None:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info[LAYER] = self.run.layer
        scored = super()._compute_old_log_prob(batch, metrics)
        for meta in (batch, scored):
            meta.extra_info.pop(LAYER, None)
        return scored

    # Credit.

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        rollout, rows = self._unpack(batch)
        missing = self.run.config.episodes - len(_groups(rollout))
        if self.run.config.rollout.failures.stop:
            if rollout.failed:
                raise RolloutFailedError(rollout.failed[0])
            if missing:
                raise RuntimeError(f"{missing} episodes raised; their errors are printed above")
        iteration = self._credited(rollout, self._fingerprints(batch, rows))
        self._history = iteration.next_history(self._history)
        advantage, counts = np.zeros(len(batch)), np.zeros(len(batch), dtype=np.bool_)
        advantage[rows] = iteration.advantage
        counts[rows] = iteration.counts
        self._mute(batch, ~counts)
        metrics.update(iteration_metrics(iteration))
        metrics["ascribe/rows"] = self._learned = int(counts.sum())
        metrics["ascribe/rows_padded"] = sum(map(_is_padding, batch.tags))
        metrics["ascribe/missing"] = missing
        config = self.run.config
        if config.output.rollouts:
            folder = Path(config.output.folder) / "rollouts"
            write_rollouts(iteration, folder, self.global_steps - 1, config.rollout.states)
        if not counts.any():
            return self._without_advantages(batch)
        with credited(advantage):
            credited_batch = super()._compute_advantage(batch, metrics)
        for tag, count in zip(credited_batch.tags, counts, strict=True):
            tag["is_padding"] = tag.get("is_padding", False) or not count
        # In the order of names, not of arrival: early rows are those of short episodes.
        learned = rows[iteration.counts].tolist()
        minibatches = minibatch_count(self._learned, config.update.minibatches)
        size = len(credited_batch)
        credited_batch.reorder(minibatch_order(learned, size, self._ranks(), minibatches))
        return credited_batch

    def _without_advantages(self, batch: Any) -> Any:
        """An iteration in which no row counts: its rows are logged, and not learned from."""
        mask = self._get(batch, "response_mask")["response_mask"]
        nothing = torch.zeros_like(mask, dtype=torch.float32)
        fields = TensorDict({"advantages": nothing, "returns": nothing}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=fields
        )

    def _ranks(self) -> int:
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1

    def _unpack(self, batch: Any) -> tuple[Rollout, Ints]:
        fields = self._get(batch, "extra_fields")["extra_fields"]
        extra = [getattr(one, "data", one) for one in fields]
        texts = {
            row: one[FIELD]
            for row, (one, tag) in enumerate(zip(extra, batch.tags, strict=True))
            if not _is_padding(tag)
        }
        return unpack(texts, sum(batch.tags[row]["response_len"] for row in texts))

    def _credited(self, rollout: Rollout, vectors: FloatMatrix | None) -> Iteration:
        config = self.run.config.rollout
        return credit_iteration(
            [LocalRollout(_groups(rollout), rollout, vectors)],
            self.run.recipe,
            size=config.size,
            failures=config.failures.policy(),
            states=config.states,
            history=self._history,
        )

    def _fingerprints(self, batch: Any, rows: Any) -> FloatMatrix | None:
        if self.run.layer is None:
            return None
        nested = self._get(batch, FINGERPRINT)[FINGERPRINT]
        vectors: FloatMatrix = torch.stack(list(nested.unbind())).numpy()[rows]
        return vectors

    def _mute(self, batch: Any, rows: Bools) -> None:
        """Mask all tokens of these rows, so that they do not count in any mean either."""
        keys = [key for key, mute in zip(batch.keys, rows, strict=True) if mute]
        if not keys:
            return
        partition = batch.partition_id
        found = transfer_queue.kv_batch_get(
            keys=keys, partition_id=partition, select_fields=["response_mask", "loss_mask"]
        )
        for name in ("response_mask", "loss_mask"):
            found[name] = torch.zeros_like(found[name])
        transfer_queue.kv_batch_put(keys=keys, partition_id=partition, fields=found)

    @staticmethod
    def _get(batch: Any, *names: str) -> Any:
        return transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names)
        )

    # The update.

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Rows are padded so that ranks, minibatches and passes are all of equal size."""
        actor = self.config.actor_rollout_ref.actor
        at_once = 1 if actor.use_dynamic_bsz else int(actor.ppo_micro_batch_size_per_gpu)
        return dp_size * at_once * int(self.run.config.update.minibatches)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """One update for each minibatch."""
        if self._learned == 0:
            return batch
        actor = self.config.actor_rollout_ref.actor
        minibatches = minibatch_count(self._learned, self.run.config.update.minibatches)
        batch.extra_info.update(
            calculate_entropy=bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
            # Means over rows are over the real ones: so many per minibatch, or one more or less.
            global_batch_size=self._learned / minibatches,
            mini_batch_size=len(batch) // minibatches,
            epochs=actor.ppo_epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": actor.shuffle},
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        updated = rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        updated["perf/mfu/actor"] = updated.pop("actor/mfu")
        metrics.update(reduce_metrics(updated))
        return batch

    # Logging.

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        self.metrics.add(global_steps, dict(sorted(metrics.items())))


def _groups(rollout: Rollout) -> tuple[str, ...]:
    """The group of each episode; corrections are not among those that were to be played."""
    episodes: list[Any] = [*rollout.trajectories, *rollout.failed]
    return tuple(one.group for one in episodes if one.corrects is None)


def _is_padding(tag: Any) -> bool:
    return bool(tag.get("is_padding", False))


def refuse_unsupported(config: Any, run: Run) -> None:
    """Refuse settings that would have no effect, or give a wrong update.

    Args:
        config: verl's whole configuration.
        run: the run.

    Raises:
        ValueError: with verl's key, and what to set.
    """
    algorithm, rollout = config.algorithm, config.actor_rollout_ref.rollout
    size = run.config.rollout.size
    wrong = {
        f"algorithm.adv_estimator: {algorithm.adv_estimator}; with trainer_mode=ascribe it must be "
        "ascribe": algorithm.adv_estimator != "ascribe",
        "algorithm.use_kl_in_reward: rewards are the environment's; use actor.use_kl_loss": bool(
            algorithm.use_kl_in_reward
        ),
        f"actor_rollout_ref.rollout.n: {rollout.n}, and rollout.size of the run is {size}": (
            int(rollout.n) != size
        ),
        f"data.train_batch_size: {config.data.train_batch_size}, and rollout.groups of the run is "
        f"{run.config.rollout.groups}": (
            int(config.data.train_batch_size) != run.config.rollout.groups
        ),
        "data.shuffle: the tasks are drawn already, in an order that a resumed run must find "
        "again; set it to False": bool(config.data.shuffle),
        "trainer.test_freq and trainer.val_before_train: there is no validation here; use ascribe "
        "eval on a checkpoint": config.trainer.test_freq > 0 or config.trainer.val_before_train,
        "critic.enable: the baseline is the recipe's; a critic would learn for nothing": bool(
            OmegaConf.select(config, "critic.enable")
        ),
        "ulysses_sequence_parallel_size: fingerprints need whole sequences; set it to 1": (
            run.layer is not None and _sequence_parallel(config) > 1
        ),
        "actor_rollout_ref.rollout.max_model_len: must be given": rollout.max_model_len is None,
        "algorithm.rollout_correction.bypass_mode: fingerprints come from the pass that it leaves "
        "out": run.layer is not None and _bypasses(algorithm),
    }
    problems = [problem for problem, is_wrong in wrong.items() if is_wrong]
    if problems:
        raise ValueError("\n".join(problems))


def _sequence_parallel(config: Any) -> int:
    """Ranks that share a sequence, by verl's key or by its older name."""
    places = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.actor")
    names = [f"{place}.ulysses_sequence_parallel_size" for place in places]
    return max(int(OmegaConf.select(config, name, default=1)) for name in names)


def _bypasses(algorithm: Any) -> bool:
    correction = algorithm.get("rollout_correction", None)
    return bool(correction and correction.get("bypass_mode", False))
