"""verl's trainers ``one_step_off_policy`` and ``fully_async_policy``, with credit for steps.

They hold a batch as a ``DataProto``, and each session in one row. verl takes the trainers from no
registry, and gives a registered estimator no tokens: so each is a subclass, which ``runners`` puts
in the place of verl's.
"""

from typing import Any

from verl.experimental.fully_async_policy import fully_async_trainer
from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

from ascribe.engines.inputs import critic_targets, of_steps
from ascribe.engines.verl.batch import proto_rows
from ascribe.engines.verl.loops import LoopSteps
from ascribe.engines.verl.names import check_verl, class_of
from ascribe.engines.verl.trainer import credited, wrap_updates
from ascribe.sessions import spread

_FullyAsync: Any = class_of(fully_async_trainer.FullyAsyncTrainer)


class SeparateMixin(SeparateRayPPOTrainer):  # type: ignore[misc]
    """Credits each step of a session by a recipe, in place of verl's advantage.

    Raises:
        ValueError: for recipes that need what these trainers do not give.
    """

    def __init__(self, *given: Any, config: Any, **options: Any) -> None:
        check_verl()
        self.steps = LoopSteps(config)
        recipe = self.steps.recipe
        wrong = {
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
            raise ValueError("\n".join(problem for problem in wrong if wrong[problem]))
        self._learned: int | None = None
        super().__init__(*given, config=config, **options)

    @property
    def _version(self) -> int:
        """The version of the weights that were last sent to the servers."""
        raise NotImplementedError

    def _fit_compute_advantage(self, batch: Any) -> Any:
        rows, metrics = proto_rows(batch), self.metrics
        tokens = {}
        if "value" in self.steps.recipe.columns:
            tokens["value"] = list(batch.batch["values"].float().numpy())
        credit, spans = self.steps.credit_rows(
            rows, self.tokenizer, None, metrics, version=self._version, tokens=tokens
        )
        returns = None
        if tokens:
            returns = critic_targets(credit, of_steps("value", tokens["value"], spans))
        mask = batch.batch["response_mask"]
        counted = spread(credit.learned.astype(float), spans.pad(mask.shape[1]), like=mask)
        batch.batch["response_mask"] = mask * counted.to(mask.dtype)
        if self._learned is None:
            wrap_updates(self, lambda update, batch: update(batch))
        self._learned = int(credit.learned.sum())
        self.steps.write(credit, self.global_steps - 1)
        with credited(credit.advantage, spans, returns):
            return super()._fit_compute_advantage(batch)


class OneStepOffTrainer(SeparateMixin, OneStepOffRayTrainer):  # type: ignore[misc]
    """verl's trainer that samples the next batch while it trains on this one."""

    @property
    def _version(self) -> int:
        return int(self.global_steps)


class FullyAsyncTrainer(SeparateMixin, _FullyAsync):  # type: ignore[misc]
    """verl's trainer on samples from a queue, which servers fill without a pause."""

    @property
    def _version(self) -> int:
        return int(self.current_param_version)
