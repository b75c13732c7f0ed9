"""verl's three trainers on episodes in Ascribe's own environments.

``python -m ascribe_lab.train.verl.main_ppo`` starts them; ``data.train_files`` is the run's config.
"""

from verl.trainer.ppo.v1 import register_trainer

from ascribe.engines.verl.rows import minibatch_count
from ascribe.engines.verl.trainer import (
    ColocateAsyncTrainer,
    CreditMixin,
    SeparateAsyncTrainer,
    SyncTrainer,
)
from ascribe_lab.train.verl.episodes import EpisodeSteps


class EpisodeMixin(CreditMixin):
    """Credits the steps that came with the rows, and logs to the run's own file too.

    A batch has ``update.minibatches`` minibatches, or as many as its rows fill.
    """

    steps_type = EpisodeSteps

    def on_train_begin(self) -> None:
        """As verl's; from here on the metrics go to the run's own file too."""
        self._log_to_file(self.global_steps - 1)
        super().on_train_begin()

    def on_validate_begin(self) -> None:
        """As verl's; held-out tasks may be played before the first step."""
        self._log_to_file(self.global_steps)
        super().on_validate_begin()

    def _log_to_file(self, done: int) -> None:
        if "ascribe" not in self.logger.logger:
            self.logger.logger["ascribe"] = self.steps.metrics_file(done)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        unit, rows = self._rows_at_once(dp_size), self.steps.minibatch_rows
        # A minibatch has room for so many rows, or for a few more.
        return int(unit * self.steps.minibatches if rows is None else -(-rows // unit) * unit)

    def _minibatches(self, size: int) -> int:
        if self.steps.minibatch_rows is None:
            return super()._minibatches(size)
        return minibatch_count(
            self._learned, size // self._get_required_batch_multiple(self._ranks)
        )


@register_trainer("ascribe_lab_sync")
class EpisodeSyncTrainer(EpisodeMixin, SyncTrainer):
    """verl's synchronous trainer on episodes."""


@register_trainer("ascribe_lab_colocate_async")
class EpisodeColocateAsyncTrainer(EpisodeMixin, ColocateAsyncTrainer):
    """verl's asynchronous trainer on shared GPUs, on episodes."""


@register_trainer("ascribe_lab_separate_async")
class EpisodeSeparateAsyncTrainer(EpisodeMixin, SeparateAsyncTrainer):
    """verl's asynchronous trainer with GPUs of its own for rollouts, on episodes."""
