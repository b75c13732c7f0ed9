"""``algorithm.adv_estimator=ascribe``: the credit of rows, laid on their tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from ascribe.steps.arrays import Floats

_CREDIT: ContextVar[Floats] = ContextVar("credit")


@contextmanager
def credited(advantage: Floats) -> Iterator[None]:
    """Inside, the estimator hands out these advantages: one for each row of verl's batch."""
    token = _CREDIT.set(advantage)
    try:
        yield
    finally:
        _CREDIT.reset(token)


@register_adv_est("ascribe")  # type: ignore[untyped-decorator]
def estimate(
    token_level_rewards: Any,  # noqa: ARG001 (verl passes it; rewards come with the steps)
    response_mask: Any,
    **_: Any,
) -> tuple[Any, Any]:
    """Advantages and returns of the tokens: each row's advantage where its mask is 1.

    verl hands an estimator the rewards and masks of rows, and no states or actions. So the trainer
    computes the credit from the steps, and this function finds it there.

    Raises:
        RuntimeError: under another trainer than Ascribe's.
    """
    advantage = _CREDIT.get(None)
    if advantage is None:
        raise RuntimeError(
            "adv_estimator=ascribe needs the steps of episodes, and verl's own trainer has none: "
            "set trainer.v1.trainer_mode=ascribe as well"
        )
    values = torch.from_numpy(advantage).to(response_mask.device, torch.float32)
    tokens = values[:, None] * response_mask
    return tokens, tokens.clone()
