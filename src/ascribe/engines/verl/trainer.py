"""``trainer.v1.trainer_mode=ascribe``: verl's synchronous trainer with credit for steps."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from ascribe.engines.crediting import Iteration, Played, credit_iteration
from ascribe.engines.dump import dump
from ascribe.engines.history import History, load_history, remembers, save_history
from ascribe.engines.metrics import Metrics
from ascribe.engines.numbers import iteration_numbers
from ascribe.engines.verl.engine import FINGERPRINT, LAYER
from ascribe.engines.verl.estimator import credited
from ascribe.engines.verl.parts import dealt, parts_of
from ascribe.engines.verl.refusals import refuse
from ascribe.engines.verl.run_file import run_of
from ascribe.engines.verl.travel import FIELD, Arrived, unpack
from ascribe.fingerprints import FloatMatrix
from ascribe.rollout.failures import RolloutFailed
from ascribe.steps.arrays import Bools


@register_trainer("ascribe")
class AscribeTrainer(PPOTrainerSync):  # type: ignore[misc]
    """PPOTrainerSync that credits each step of an episode by a recipe.

    Rows are steps, so a batch has another number of them each time. They are learned from in
    ``update.minibatches`` parts, each with its share of the rows that count. Rows that verl adds to
    make the parts equally long, and rows of groups that do not count, have no token to learn from
    and enter no statistic.
    """

    def __init__(self, config: Any) -> None:
        self.run = run_of(config)
        refuse(config, self.run)
        self._history: History = None
        self._learned = 0
        with open_dict(config):  # from here on this is the synchronous trainer
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train; numbers go to ``metrics.jsonl`` besides verl's loggers."""
        self.metrics = Metrics(self.run.config.output.folder, self.global_steps)
        super().fit(agent_loop_manager)

    # What a recipe hands from step to step is part of a checkpoint.

    def _save_checkpoint(self) -> None:
        if remembers(self.run.recipe):  # first this, then what makes the checkpoint whole
            save_history(self._history, self._checkpoint())
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            trainer = self.config.trainer
            given = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
            self._history = load_history(
                self.run.recipe, Path(given) if given else self._checkpoint()
            )

    def _checkpoint(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    # Before credit: fingerprints come with the log-probabilities.

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self.run.layer is None:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info[LAYER] = self.run.layer
        found = super()._compute_old_log_prob(batch, metrics)
        for meta in (batch, found):
            meta.extra_info.pop(LAYER, None)
        return found

    # Credit.

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        arrived = self._arrived(batch)
        missing = self._missing(arrived)
        if self.run.config.rollout.failures.stop:
            if arrived.given_up:
                raise RolloutFailed(arrived.given_up[0])
            if missing:
                raise RuntimeError(f"{missing} episodes raised; what they said stands above")
        iteration = self._credited(batch, arrived)
        self._history = iteration.handed_on(self._history)
        advantage, counts = np.zeros(len(batch)), np.zeros(len(batch), dtype=np.bool_)
        advantage[arrived.rows] = iteration.advantage
        counts[arrived.rows] = iteration.counts
        self._mute(batch, ~counts)
        metrics.update(iteration_numbers(iteration))
        metrics["ascribe/rows"] = self._learned = int(counts.sum())
        metrics["ascribe/rows_padded"] = sum(map(_is_padding, batch.tags))
        metrics["ascribe/missing"] = missing
        config = self.run.config
        if config.output.rollouts:
            folder = Path(config.output.folder) / "rollouts"
            dump(iteration, folder, self.global_steps - 1, config.rollout.states)
        if not counts.any():
            return self._without_advantages(batch)
        with credited(advantage):
            found = super()._compute_advantage(batch, metrics)
        for tag, count in zip(found.tags, counts, strict=True):
            tag["is_padding"] = tag.get("is_padding", False) or not count
        parts = parts_of(self._learned, config.update.minibatches)
        # Dealt in the order of names, not of arrival: early rows are those of short episodes.
        learned = arrived.rows[iteration.counts].tolist()
        found.reorder(dealt(learned, len(found), self._ranks(), parts))
        return found

    def _without_advantages(self, batch: Any) -> Any:
        """An iteration of which no row counts: its rows are told of, and not learned from."""
        mask = self._get(batch, "response_mask")["response_mask"]
        nothing = torch.zeros_like(mask, dtype=torch.float32)
        fields = TensorDict({"advantages": nothing, "returns": nothing}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=fields
        )

    def _missing(self, arrived: Arrived) -> int:
        """Episodes of which verl has no row, since they raised."""
        rollout = self.run.config.rollout
        played = sum(one.corrects is None for one in arrived.trajectories)
        lost = sum(one.corrects is None for one in arrived.given_up)
        return rollout.groups * rollout.size - played - lost

    def _ranks(self) -> int:
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1

    def _arrived(self, batch: Any) -> Arrived:
        fields = self._get(batch, "extra_fields")["extra_fields"]
        extra = [getattr(one, "data", one) for one in fields]
        texts = {
            row: one[FIELD]
            for row, (one, tag) in enumerate(zip(extra, batch.tags, strict=True))
            if not _is_padding(tag)
        }
        return unpack(texts)

    def _credited(self, batch: Any, arrived: Arrived) -> Iteration:
        rollout = self.run.config.rollout
        # Corrections are no groups that were to be played.
        groups = [one.group for one in arrived.trajectories if one.corrects is None]
        groups += [lost.group for lost in arrived.given_up if lost.corrects is None]
        tokens = sum(tag["response_len"] for tag in batch.tags if not _is_padding(tag))
        played = Played(
            tuple(groups),
            arrived.trajectories,
            arrived.given_up,
            arrived.retries,
            tokens,
            self._fingerprints(batch, arrived.rows),
        )
        return credit_iteration(
            [played],
            self.run.recipe,
            size=rollout.size,
            failures=rollout.failures.policy(),
            states=rollout.states,
            history=self._history,
        )

    def _fingerprints(self, batch: Any, rows: Any) -> FloatMatrix | None:
        if self.run.layer is None:
            return None
        found = self._get(batch, FINGERPRINT)[FINGERPRINT]
        vectors: FloatMatrix = torch.stack(list(found.unbind())).numpy()[rows]
        return vectors

    def _mute(self, batch: Any, rows: Bools) -> None:
        """Leave these rows no token to learn from: they do not count in any mean either."""
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
        """Rows are filled up so that ranks, parts and passes are all equal."""
        actor = self.config.actor_rollout_ref.actor
        at_once = 1 if actor.use_dynamic_bsz else int(actor.ppo_micro_batch_size_per_gpu)
        return dp_size * at_once * int(self.run.config.update.minibatches)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """One update for each part of the rows."""
        if self._learned == 0:
            return batch
        actor = self.config.actor_rollout_ref.actor
        parts = parts_of(self._learned, self.run.config.update.minibatches)
        batch.extra_info.update(
            calculate_entropy=bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
            # Means over rows are over the real ones: so many are in a part, or one more or less.
            global_batch_size=self._learned / parts,
            mini_batch_size=len(batch) // parts,
            epochs=actor.ppo_epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": actor.shuffle},
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        told = rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        told["perf/mfu/actor"] = told.pop("actor/mfu")
        metrics.update(reduce_metrics(told))
        return batch

    # What is told of it.

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        self.metrics.add(global_steps, dict(sorted(metrics.items())))


def _is_padding(tag: Any) -> bool:
    return bool(tag.get("is_padding", False))
