"""With ``trl.patch``: credit for each turn by TRL's public names alone, in one process.

An environment's ``turn_info`` holds ``reward_so_far`` and ``state_key``, before each of its turns.
"""

from pathlib import Path
from typing import Any

import numpy as np
from trl import GRPOTrainer

from ascribe.engines import training_recipe
from ascribe.engines.crediting import credit_steps, write_steps
from ascribe.sessions import from_sequences, spread


class TurnTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantages are those of a recipe, one for each turn."""

    def __init__(self, *arguments: Any, recipe: str, dump_dir: Path, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recipe, self.dump_dir, self.iteration = training_recipe(recipe), dump_dir, 0

    def compute_advantages(
        self,
        advantages: Any,
        *,
        rewards: Any,
        completion_ids: Any,
        completion_mask: Any,
        turns: Any,
        **_: Any,
    ) -> Any:
        """The advantage of each turn on its tokens."""
        if not self.model.training:
            return advantages
        earned, keys = [], []
        for own, reward in zip(turns, rewards.tolist(), strict=True):
            so_far = [turn["info"]["reward_so_far"] for turn in own]
            earned.append(np.diff(so_far, append=reward).tolist())
            keys.append([turn["info"]["state_key"] for turn in own])
            earned[-1][0] += so_far[0]
        lengths = [len(ids) for ids in completion_ids]
        numbers = range(len(lengths))
        table, spans = from_sequences(
            completion_ids,
            [row[:size] for row, size in zip(completion_mask.tolist(), lengths, strict=True)],
            group=[f"{self.iteration}/{n // self.num_generations}" for n in numbers],
            trajectory=[n % self.num_generations for n in numbers],
            turn_rewards=earned,
            decode=self.processing_class.decode,
            state="key",
            keys=keys,
        )
        credited = credit_steps(table, self.recipe)
        write_steps(credited, self.dump_dir, self.iteration)
        self.iteration += 1
        values = completion_mask.new_zeros(completion_mask.shape, dtype=advantages.dtype)
        for row, own in enumerate(spread(credited.advantage, spans)):
            values[row, : len(own)] = values.new_tensor(own)
        return values
