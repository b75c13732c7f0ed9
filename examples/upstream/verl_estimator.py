"""With ``verl.patch``: credit for each turn by verl's registry, without a trainer of our own.

``algorithm.adv_estimator=ascribe_gigpo`` then serves all of verl's trainers.
"""

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from ascribe import recipe
from ascribe.sessions import from_sequences, spread


@register_adv_est("ascribe_gigpo", needs=("prompts", "responses", "keys"))
def gigpo(
    *,
    token_level_rewards: Any,
    response_mask: Any,
    index: Any,
    prompts: Any,
    responses: Any,
    keys: Any,
    **_: Any,
) -> tuple[Any, Any]:
    """Advantages on the tokens of each turn; rows of a session are one trajectory."""
    names = [key.rsplit("_", 2) for key in keys]
    order = sorted(range(len(names)), key=lambda row: int(names[row][2]))
    masks = [torch.cat([torch.zeros(len(prompts[i])), response_mask[i].cpu()]) for i in order]
    tokens = [torch.cat([prompts[i], responses[i]]).cpu() for i in order]
    table, spans = from_sequences(
        tokens,
        [mask[: len(ids)] for mask, ids in zip(masks, tokens, strict=True)],
        group=[index[i] for i in order],
        trajectory=[names[i][1] for i in order],
        reward=token_level_rewards.sum(-1)[order],  # verl gives that of a session to all its rows
    )
    advantages = torch.zeros_like(token_level_rewards)
    credit = spread(recipe("gigpo")(table), spans, like=advantages)
    for i, values in zip(order, credit, strict=True):
        advantages[i, : len(responses[i])] = values[len(prompts[i]) :]
    return advantages, advantages
