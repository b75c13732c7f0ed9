"""verl's correction of rollouts, for rows without a token to learn from.

Rows of groups that do not count are masked. Where ``rollout_correction.bypass_mode`` corrects in
the loss, verl refuses a pass over such rows alone, and the run would end.
"""

from functools import wraps
from typing import Any

import torch
from verl.trainer.ppo import rollout_corr_helper


def with_masked_rows(correct: Any) -> Any:
    """The function that gives weights, the mask and metrics; a mask without tokens stays as it is.

    The metrics are then those over all tokens: verl's ranks must have the same ones.
    """

    @wraps(correct)
    def corrected(*given: Any, response_mask: Any, **options: Any) -> Any:
        if response_mask.any():
            return correct(*given, response_mask=response_mask, **options)
        every = torch.ones_like(response_mask)
        weights, _, metrics = correct(*given, response_mask=every, **options)
        return weights, response_mask, metrics

    return corrected


rollout_corr_helper.compute_rollout_correction_and_rejection_mask = with_masked_rows(
    rollout_corr_helper.compute_rollout_correction_and_rejection_mask
)
