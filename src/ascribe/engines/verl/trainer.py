"""verl's three trainers of ``main_ppo``, with an advantage for each step.

``CreditMixin`` stands over any of them. verl gives a registered advantage estimator the rewards and
masks of rows, and no tokens, sessions or extra fields. So the trainer computes the credit from the
steps, which ``loops`` reads from the tokens of any agent loop, and
``algorithm.adv_estimator=ascribe`` puts it on the rows' tokens. Private names of verl:
``names.PRIVATE``.
"""

import logging
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import transfer_queue
from omegaconf import open_dict
from tensordict import NonTensorData, TensorDict
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import (
    PPOTrainer,
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    PPOTrainerSync,
    register_trainer,
)

from ascribe.engines.crediting import History, load_history, save_history
from ascribe.engines.inputs import critic_targets, of_steps
from ascribe.engines.verl.batch import fetch, is_padding, mute
from ascribe.engines.verl.engine import LAYER
from ascribe.engines.verl.loops import LoopSteps
from ascribe.engines.verl.names import check_verl
from ascribe.engines.verl.rows import minibatch_count, minibatch_order
from ascribe.sessions import Spans, spread
from ascribe.steps.arrays import Floats

TOKENS = {"entropy": "entropy", "value": "values"}
"""Columns of the step table that come from tokens, and verl's fields with them."""

CREDIT: list[tuple[Floats, Floats | None, Spans]] = []
"""What the estimator takes when verl calls it next: for each step its advantage, what a critic
learns to expect (None: the advantage), and where its tokens are."""


@register_adv_est("ascribe")  # type: ignore[untyped-decorator]
def estimate(
    token_level_rewards: Any,  # noqa: ARG001 (verl passes it; rewards come with the steps)
    response_mask: Any,
    **_: Any,
) -> tuple[Any, Any]:
    """Advantages and returns of the tokens: each step's advantage where the mask is 1.

    Raises:
        RuntimeError: under another trainer than Ascribe's.
    """
    if not CREDIT:
        raise RuntimeError(
            "adv_estimator=ascribe needs the steps of sessions, and verl's own trainer has none: "
            "start the run by python -m ascribe.engines.verl.main_ppo"
        )
    advantage, returns, spans = CREDIT.pop()
    spans = spans.pad(response_mask.shape[1])
    advantages = spread(advantage, spans, like=response_mask) * response_mask
    if returns is None:
        return advantages, advantages
    return advantages, spread(returns, spans, like=response_mask) * response_mask


class CreditMixin(PPOTrainer):  # type: ignore[misc]
    """Credits each step of an episode by a recipe, in place of verl's advantage.

    Padding rows, and rows of groups that do not count, have no token to learn from and enter no
    statistic.
    """

    mode: ClassVar[str]
    """verl's own name of the trainer below."""
    steps_type: ClassVar[Any] = LoopSteps
    """Reads the steps of a batch, and credits them."""

    def __init__(self, config: Any) -> None:
        check_verl()
        self.steps = self.steps_type(config)
        self._history: History = None
        self._learned, self._ranks = 0, 1
        with open_dict(config):  # from here on this is verl's own trainer
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)

    # Runs and checkpoints. The state that a recipe carries from step to step is part of a
    # checkpoint.

    def init(self) -> None:
        """As verl's; from here on calls of the workers are changed on their way."""
        super().init()
        if self.steps.layer is not None:
            wrap(self.actor_rollout_wg, "compute_log_prob", self._ask_fingerprints)
        wrap_updates(self, self._update)

    def fit(self, agent_loop_manager: Any) -> None:
        """As verl's."""
        if self.global_steps > 0:
            trainer = self.config.trainer
            from_path = trainer.resume_mode == "resume_path" and trainer.resume_from_path
            self._history = load_history(self.steps.recipe, from_path or self._checkpoint())
        super().fit(agent_loop_manager)

    def _save_checkpoint(self) -> None:
        if self.steps.recipe.has_history:  # before the file that completes the checkpoint
            save_history(self._history, self._checkpoint())
        super()._save_checkpoint()

    def _checkpoint(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    # Before credit: fingerprints come with the log-probabilities.

    def _ask_fingerprints(self, score: Any, batch: Any) -> Any:
        if "no_lora_adapter" in batch.extra_info:  # the reference policy
            return score(batch)
        batch.extra_info[LAYER] = self.steps.layer
        scored = score(batch)
        for meta in (batch, scored):
            meta.extra_info.pop(LAYER, None)
        return scored

    # Credit.

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        tokens = {
            name: [one.float().numpy() for one in fetch(batch, field)[field].unbind()]
            for name, field in TOKENS.items()
            if name in self.steps.recipe.columns
        }
        version = self.global_steps - 1  # that many updates of the servers' weights
        credit, spans = self.steps.credit(
            batch, self.tokenizer, self._history, metrics, version=version, tokens=tokens
        )
        returns = None
        if "value" in tokens:
            returns = critic_targets(credit, of_steps("value", tokens["value"], spans))
        self._history = credit.next_history(self._history)
        # In the order of names, not of arrival: early rows are those of short episodes.
        rows = dict.fromkeys(spans.sequence[credit.learned].tolist())
        left = mute(batch, spans, credit.learned)
        learned = [row for row in rows if left[row]]
        metrics["ascribe/rows"] = self._learned = len(learned)
        metrics["ascribe/rows_padded"] = sum(map(is_padding, batch.tags))
        updates = self.parameter_sync_step  # several in each step of the separate trainer
        self.steps.write(credit, (self.global_steps - 1) * updates + self.local_trigger_step)
        if not learned:
            return self._without_advantages(batch)
        weights = self.steps.loss_weights(credit, spans, learned)
        CREDIT.append((credit.advantage * weights[spans.sequence], returns, spans))
        credited_batch = super()._compute_advantage(batch, metrics)
        counted = set(learned)
        for row, tag in enumerate(credited_batch.tags):
            tag["is_padding"] = is_padding(tag) or row not in counted
        if self.steps.minibatches is not None:
            size = len(credited_batch)
            count = self._minibatches(size)
            credited_batch.reorder(minibatch_order(learned, size, self._ranks, count))
        return credited_batch

    def _without_advantages(self, batch: Any) -> Any:
        """An iteration in which no row counts: its rows are logged, and not learned from."""
        mask = fetch(batch, "response_mask")["response_mask"]
        nothing = torch.zeros_like(mask, dtype=torch.float32)
        fields = TensorDict({"advantages": nothing, "returns": nothing}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=fields
        )

    # The update. Where an episode may be any number of rows, every batch has another number of
    # them, and each minibatch has its share of those that count.

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Rows are padded so that ranks, minibatches and passes are all of equal size."""
        own = int(super()._get_required_batch_multiple(dp_size))
        return math.lcm(own, self._rows_at_once(dp_size) * self.steps.updates)

    def _rows_at_once(self, dp_size: int) -> int:
        """Rows in one pass over all ranks; minibatches are a multiple of it."""
        self._ranks = dp_size
        actor = self.config.actor_rollout_ref.actor
        return dp_size * (1 if actor.use_dynamic_bsz else int(actor.ppo_micro_batch_size_per_gpu))

    def _minibatches(self, size: int) -> int:  # noqa: ARG002 (not every trainer needs it)
        """How many minibatches there are, in a batch of so many rows, padding included."""
        return minibatch_count(self._learned, self.steps.minibatches)

    def _update(self, update: Any, batch: Any) -> Any:
        """An update of the actor or the critic, by minibatches of our size."""
        if self.steps.minibatches is not None:
            minibatches = self._minibatches(len(batch))
            batch.extra_info.update(
                # Means over rows are over the real ones: so many per minibatch, or one more or less
                global_batch_size=self._learned / minibatches,
                mini_batch_size=len(batch) // minibatches,
            )
        return update(batch)


def wrap(workers: Any, name: str, around: Any) -> None:
    """Let a call of a group of workers go through ``around``, which makes it."""
    setattr(workers, name, partial(around, getattr(workers, name)))


def wrap_updates(trainer: Any, around: Any) -> None:
    """Let the updates go through ``around``; where no row counts, none is made.

    The trainer has the attribute ``_learned``, the number of rows that count.
    """
    answer = TensorDict({"metrics": NonTensorData({"mfu": 0.0})}, [])

    def update_actor(update: Any, batch: Any) -> Any:
        return around(update, batch) if trainer._learned else answer

    def update_critic(update: Any, batch: Any) -> Any:
        return around(update, batch) if trainer._learned else SimpleNamespace(get=lambda: answer)

    wrap(trainer.actor_rollout_wg, "update_actor", update_actor)
    if trainer.use_critic:
        wrap(trainer.critic_wg, "train_mini_batch", update_critic)


@register_trainer("ascribe_sync")
class SyncTrainer(CreditMixin, PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer with credit for steps."""

    mode = "sync"


@register_trainer("ascribe_colocate_async")
class ColocateAsyncTrainer(CreditMixin, PPOTrainerColocateAsync):  # type: ignore[misc]
    """verl's asynchronous trainer on shared GPUs, with credit for steps."""

    mode = "colocate_async"


@register_trainer("ascribe_separate_async")
class SeparateAsyncTrainer(CreditMixin, PPOTrainerSeparateAsync):  # type: ignore[misc]
    """verl's asynchronous trainer with GPUs of its own for rollouts, with credit for steps."""

    mode = "separate_async"

    def __init__(self, config: Any) -> None:
        # verl 0.9.1 passes an argument to its logger that loggers do not take, where it tells that
        # no rollout server shares the trainer's GPUs.
        logging.getLogger(PPOTrainerSeparateAsync.__module__).setLevel(logging.WARNING)
        super().__init__(config)
