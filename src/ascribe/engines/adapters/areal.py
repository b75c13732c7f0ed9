"""AReaL: an actor whose advantages are those of a recipe.

::

    from areal.trainer.ppo import actor
    from ascribe.engines.adapters.areal import actor_with

    actor.PPOActor = actor_with("sbc", decode=tokenizer.decode)

in a script that one of AReaL's launchers starts, before it creates the engine. A batch is a list of
padded tensor dicts, one for each prompt: its rows are the samples of the prompt, and so a group. A
workflow may add a tensor ``truncated``: whether a limit ended each sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def actor_with(method: str | Recipe = DEFAULT, **options: Any) -> type:
    """A subclass of AReaL's ``PPOActor``; options are those of the adapter.

    AReaL still shifts masks and log-probabilities. Its normalisation of rewards and advantages and
    the KL in its rewards have no effect; an actor with ``kl_ctl`` other than 0 is refused.
    So is AReaL's default mode.
    """
    from areal.trainer.ppo.actor import PPOActor
    from areal.utils.environ import is_single_controller

    if is_single_controller():
        raise ValueError(
            "AReaL's default mode creates actors in worker processes, which import its own class; "
            "start the script with one of AReaL's launchers, which set AREAL_SPMD_MODE"
        )
    adapter = ArealAdapter(**options)
    chosen = stateless(method)

    class AscribeActor(PPOActor):  # type: ignore[misc]
        def __init__(self, config: Any, engine: Any) -> None:
            super().__init__(config, engine)
            if config.kl_ctl:
                raise ValueError("rewards would lack the KL term; set actor.kl_ctl to 0")

        def compute_advantages(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
            table, spans = adapter.steps(data)
            advantage = credit_steps(table, chosen).advantage
            return adapter.put(super().compute_advantages(data), spans, advantage)  # type: ignore[no-any-return]

    return AscribeActor
