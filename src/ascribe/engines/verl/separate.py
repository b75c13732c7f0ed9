"""verl's trainers ``one_step_off_policy`` and ``fully_async_policy``, with credit for steps.

They hold a batch as a ``DataProto``, and each session in one row. verl takes the trainers from no
registry, and gives a registered estimator no tokens: so each is a subclass, which ``runners`` puts
in the place of verl's.
"""

from typing import Any, ClassVar

import torch
from omegaconf import OmegaConf
from verl.experimental.fully_async_policy import fully_async_trainer
from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer
from verl.utils import tensordict_utils

from ascribe.engines.inputs import critic_targets, of_steps
from ascribe.engines.verl.batch import proto_rows
from ascribe.engines.verl.loops import LoopSteps
from ascribe.engines.verl.names import check_verl, class_of
from ascribe.engines.verl.rows import minibatch_count, minibatch_order
from ascribe.engines.verl.trainer import CREDIT, wrap_updates
from ascribe.sessions import spread
from ascribe.steps.errors import InputError

MINIBATCH = "mini_batch_size"
"""verl's name, in a batch on its way to the workers."""

_FullyAsync: Any = class_of(fully_async_trainer.FullyAsyncTrainer)


class SeparateMixin(SeparateRayPPOTrainer):  # type: ignore[misc]
    """Credits each step of a session by a recipe, in place of verl's advantage.

    Raises:
        ValueError: for recipes that need what these trainers do not give.
    """

    version_name: ClassVar[str]
    """verl's name of the version of the weights that were last sent to the servers."""

    def __init__(self, *given: Any, config: Any, **options: Any) -> None:
        check_verl()
        self.steps = LoopSteps(config)
        recipe = self.steps.recipe
        filters = OmegaConf.select(config, "algorithm.filter_groups.enable", default=False)
        wrong = {
            "algorithm.filter_groups.enable: main_ppo alone filters groups; set it to False": (
                bool(filters)
            ),
            "ascribe.fingerprints: hidden states are captured by main_ppo alone": (
                self.steps.layer is not None
            ),
            f"ascribe.recipe: {recipe.name} needs entropies, which main_ppo alone keeps": (
                "entropy" in recipe.columns
            ),
            f"ascribe.recipe: {recipe.name} carries state from step to step (running statistics, "
            "or a memory), which main_ppo alone saves in checkpoints": recipe.has_history,
        }
        if any(wrong.values()):
            raise InputError("\n".join(problem for problem in wrong if wrong[problem]))
        self._rows: list[int] = []
        self._learned: int | None = None
        super().__init__(*given, config=config, **options)

    def _fit_compute_advantage(self, batch: Any) -> Any:
        rows, metrics = proto_rows(batch), self.metrics
        tokens = {}
        if "value" in self.steps.recipe.columns:
            tokens["value"] = list(batch.batch["values"].float().numpy())
        version = int(getattr(self, self.version_name))
        credit, spans = self.steps.credit_rows(
            rows, self.tokenizer, None, metrics, version=version, tokens=tokens
        )
        returns = None
        if tokens:
            returns = critic_targets(credit, of_steps("value", tokens["value"], spans))
        if self._learned is None:
            wrap_updates(self, self._update)
        mask = batch.batch["response_mask"]
        counted = spread(credit.learned.astype(float), spans.pad(mask.shape[1]), like=mask)
        learned = mask * counted.to(mask.dtype)
        self._rows = torch.nonzero(learned.any(dim=1)).flatten().tolist()
        metrics["ascribe/rows"] = self._learned = len(self._rows)
        self.steps.write(credit, self.global_steps - 1)
        if not self._rows:
            return self._without_advantages(batch)
        batch.batch["response_mask"] = learned
        CREDIT.append((credit.advantage, returns, spans))
        return super()._fit_compute_advantage(batch)

    def _without_advantages(self, batch: Any) -> Any:
        """A step in which no row counts: its rows are logged, and not learned from."""
        tensors = batch.batch
        tensors["token_level_scores"] = tensors["token_level_rewards"] = self.reward_tensor
        nothing = torch.zeros_like(self.reward_tensor, dtype=torch.float32)
        tensors["advantages"] = tensors["returns"] = nothing
        return batch

    def _update(self, update: Any, batch: Any) -> Any:
        """An update in which each minibatch has its share of the rows that count."""
        if self.steps.minibatches is not None:
            size = len(batch)
            count = minibatch_count(len(self._rows), size // tensordict_utils.get(batch, MINIBATCH))
            ranks = self._get_dp_size(self.actor_rollout_wg, "actor")
            order = minibatch_order(self._rows, size, ranks, count)
            batch = tensordict_utils.index_select_tensor_dict(batch, torch.tensor(order))
            sizes = {MINIBATCH: size // count, "global_batch_size": len(self._rows) / count}
            tensordict_utils.assign_non_tensor(batch, **sizes)
        return update(batch)


class OneStepOffTrainer(SeparateMixin, OneStepOffRayTrainer):  # type: ignore[misc]
    """verl's trainer that samples the next batch while it trains on this one."""

    version_name = "global_steps"


class FullyAsyncTrainer(SeparateMixin, _FullyAsync):  # type: ignore[misc]
    """verl's trainer on samples from a queue, which servers fill without a pause."""

    version_name = "current_param_version"
