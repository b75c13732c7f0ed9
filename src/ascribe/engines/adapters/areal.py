"""AReaL: an actor whose advantages are those of a recipe.

In a module that the workers can import, and not in the training script itself::

    from areal.engine import FSDPPPOActor
    from ascribe.engines.adapters.areal import CreditedActor

    class Actor(CreditedActor, FSDPPPOActor):
        method = "sbc"

and in the script, before it creates the trainer, ``areal.engine.FSDPPPOActor = Actor``: AReaL's
controller sends the class to the workers by its module and name. A batch is a list of padded tensor
dicts, one for each prompt: its rows are the samples of the prompt, and so a group. A workflow may
add a tensor ``truncated``: whether a limit ended each sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ascribe.engines.adapters import ExampleEpisode, stateless
from ascribe.engines.crediting import credit_steps
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder, Spans, State, from_sequences, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable


@dataclass(frozen=True)
class ArealAdapter:
    """Padded tensor dicts to steps, and advantages where AReaL has them: one token earlier.

    Attributes:
        decode: token ids to text; without it texts are the ids themselves.
        state: what counts as the state of a step.
    """

    decode: Decoder | None = None
    state: State = "observation"

    def steps(self, batch: Sequence[dict[str, Any]]) -> tuple[StepTable, Spans]:
        """One row for each run of ones in a loss mask; call it before AReaL shifts the mask."""
        rows = [
            (number, item, row, int(item["attention_mask"][row].sum()))
            for number, item in enumerate(batch)
            for row in range(len(item["input_ids"]))
        ]
        known = "truncated" in batch[0]
        return from_sequences(
            [item["input_ids"][row, :size] for _, item, row, size in rows],
            [item["loss_mask"][row, :size] for _, item, row, size in rows],
            group=[number for number, *_ in rows],
            reward=[float(item["rewards"][row]) for _, item, row, _ in rows],
            truncated=[bool(item["truncated"][row]) for _, item, row, _ in rows] if known else None,
            decode=self.decode,
            state=self.state,
        )

    def put(self, batch: Sequence[dict[str, Any]], places: Spans, advantages: Floats) -> Any:
        """The batch with ``advantages``; that of a token stands where it is predicted."""
        tokens = iter(spread(advantages, places, like=batch[0]["logprobs"]))
        for item in batch:
            item["advantages"] = torch.zeros_like(item["logprobs"], dtype=torch.float32)
            for row in item["advantages"]:
                values = next(tokens)[1:]
                row[: len(values)] = values
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[dict[str, Any]]:
        """One dict for each group; of a failed episode a workflow returns nothing."""
        from areal.utils.data import concat_padded_tensors

        groups: dict[str, list[dict[str, Any]]] = {}
        for episode in episodes:
            row = {
                "input_ids": torch.tensor([episode.tokens]),
                "loss_mask": torch.tensor([episode.mask]),
                "logprobs": -0.5 * torch.tensor([episode.mask]),
                "attention_mask": torch.ones(1, len(episode.tokens), dtype=torch.bool),
                "rewards": torch.tensor([episode.reward]),
                "truncated": torch.tensor([episode.truncated]),
            }
            groups.setdefault(episode.group, []).extend([] if episode.failed else [row])
        return [concat_padded_tensors(rows) for rows in groups.values()]

    def advantages(self, result: Sequence[dict[str, Any]]) -> list[Sequence[float]]:
        """The advantages on each row, with its padding."""
        return [row.tolist() for item in result for row in item["advantages"]]


class CreditedActor:
    """For the bases of an actor, before AReaL's: its advantages are those of a recipe.

    AReaL still shifts masks and log-probabilities. Its normalisation of rewards and advantages and
    the KL in its rewards have no effect; a config with ``kl_ctl`` other than 0 is refused.
    """

    method: ClassVar[str | Recipe] = DEFAULT
    adapter: ClassVar[ArealAdapter] = ArealAdapter()

    def __init__(self, config: Any) -> None:
        self.recipe = stateless(self.method)
        if config.kl_ctl:
            raise ValueError(
                f"actor.kl_ctl is {config.kl_ctl}: the rewards of {type(self).__name__} would lack "
                "the KL term; set it to 0"
            )
        super().__init__(config)  # type: ignore[call-arg]

    def compute_advantages(self, data: list[dict[str, Any]]) -> Any:
        """The batch with the recipe's advantages."""
        table, spans = self.adapter.steps(data)
        advantage = credit_steps(table, self.recipe).advantage
        data = super().compute_advantages(data)  # type: ignore[misc]
        return self.adapter.put(data, spans, advantage)
