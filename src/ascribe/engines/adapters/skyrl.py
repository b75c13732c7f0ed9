"""SkyRL: a trainer whose advantages are those of a recipe.

::

    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.trainer import RayPPOTrainer
    from ascribe.engines.adapters.skyrl import credited

    class Experiment(BasePPOExp):
        def get_trainer(self, **parts):
            return credited(RayPPOTrainer, "sbc")(**parts)

A batch is a ``TrainingInputBatch``. With ``generator.step_wise_trajectories`` rows up to the next
true ``is_last_step`` are one session; otherwise each row is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import pad

from ascribe.engines.adapters import ExampleEpisode, credit_batch, stateless
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder, Spans, State, from_sequences, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable


@dataclass(frozen=True)
class SkyrlAdapter:
    """Training batches to steps, and advantages onto the tokens of their responses.

    Attributes:
        decode: token ids to text; without it texts are the ids themselves.
        state: what counts as the state of a step.
        step_rewards: whether the rewards of all rows of a session count. By default only those of
            its last row do, as in SkyRL: some generators copy the final reward onto every row.
    """

    decode: Decoder | None = None
    state: State = "observation"
    step_rewards: bool = False

    def steps(self, batch: Any) -> tuple[StepTable, Spans]:
        """One row for each run of ones in a loss mask; rows that fill up the batch have none."""
        rows, width = batch["sequences"].shape
        real = rows - batch.metadata.get("pad_size", 0)
        last = batch.metadata.get("is_last_step") or [True] * rows
        counted = [True] * rows if self.step_rewards else last
        rewards = batch["rewards"] * torch.tensor(counted)[:, None]
        # Tensors of responses lack the columns of the prompts, which are on the left.
        missing = width - rewards.shape[1]
        sessions = list(accumulate(last[:-1], initial=0))
        reasons = dict(zip(sessions, batch.metadata.get("stop_reasons") or (), strict=False))
        return from_sequences(
            batch["sequences"],
            pad(batch["loss_mask"], (missing, 0)),
            group=[*batch.metadata["uids"][:real], *[None] * (rows - real)],
            trajectory=sessions,
            token_rewards=pad(rewards, (missing, 0)),
            truncated=[reasons[name] == "length" for name in sessions] if reasons else None,
            decode=self.decode,
            state=self.state,
            attention_mask=self._observed(batch, last),
            forks=False,
        )

    def _observed(self, batch: Any, last: list[bool]) -> Any:
        """The attention mask without what prompts repeat, so that states are observations."""
        mask = batch["attention_mask"].bool()
        if self.state == "history":
            return mask
        tokens = [ids[real] for ids, real in zip(batch["sequences"], mask, strict=True)]
        mask = mask.clone()
        for row in (row for row, ended in enumerate(last[:-1], 1) if not ended):
            before, size = tokens[row - 1], int(batch["response_mask"][row].sum())
            prompt = tokens[row][: len(tokens[row]) - size]
            # SkyRL appends the next observation to a response; templates may rewrite older turns.
            written = batch["loss_mask"][row - 1].flip(0).nonzero()
            new = int(written[0]) if len(written) else 0
            if not new or not torch.equal(prompt[-new:], before[-new:]):
                repeated = torch.equal(prompt[: len(before)], before)
                new = len(prompt) - len(before) * repeated
            mask[row, : mask.shape[1] - size - new] = False
        return mask

    def put(self, batch: Any, places: Spans, advantages: Floats) -> Any:
        """The batch with ``advantages``; its ``returns``, for a critic, stay SkyRL's."""
        tokens = spread(advantages, places, like=batch["rewards"].new_empty(0))
        batch["advantages"] = tokens[:, -batch["rewards"].shape[1] :].contiguous()
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> Any:
        """One row for each episode; of a rollout that failed a generator returns nothing."""
        from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
        from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

        played = [episode for episode in episodes if not episode.failed]
        tensors = convert_prompts_responses_to_batch_tensors(
            SimpleNamespace(pad_token_id=0),
            [episode.tokens[:1] for episode in played],
            [episode.tokens[1:] for episode in played],
            [[0.0] * (len(each.tokens) - 2) + [each.reward] for each in played],
            [episode.mask[1:] for episode in played],
        )
        names = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
        batch = TrainingInputBatch(dict(zip(names, tensors, strict=False)))
        reasons = ["length" if episode.truncated else "stop" for episode in played]
        batch.metadata = {"uids": [each.group for each in played], "stop_reasons": reasons}
        return batch

    def advantages(self, result: Any) -> list[Sequence[float]]:
        """The advantages on each response."""
        return [row.tolist() for row in result["advantages"]]


def credited(trainer: type, method: str | Recipe = DEFAULT, **options: Any) -> type:
    """A subclass of ``RayPPOTrainer`` or ``FullyAsyncRayPPOTrainer``, by a recipe.

    SkyRL's own estimator still runs, for its metrics and the returns of a critic. Options are those
    of the adapter; texts are decoded with the trainer's tokenizer.
    """
    chosen = stateless(method)

    class CreditedTrainer(trainer):  # type: ignore[misc]
        def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> Any:
            batch = super().convert_to_training_input(generator_output, uids)
            if reasons := generator_output.get("stop_reasons"):
                batch.metadata["stop_reasons"] = reasons + [None] * batch.metadata["pad_size"]
            return batch

        def compute_advantages_and_returns(self, data: Any) -> Any:
            adapter = SkyrlAdapter(**{"decode": self.tokenizer.decode, **options})
            data = super().compute_advantages_and_returns(data)
            data, result = credit_batch(adapter, data, chosen)
            data.metadata.pop("stop_reasons", None)
            values = data["advantages"][data["loss_mask"].bool()]
            self.all_metrics |= {
                "loss/avg_raw_advantages": values.mean().item(),
                "loss/avg_raw_advantages_abs": values.abs().mean().item(),
                "ascribe/signal": float(result.signal.mean()),
                "ascribe/dropped_groups": len(result.dropped),
            }
            return data

    return CreditedTrainer
