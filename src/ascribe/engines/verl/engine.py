"""An engine that hands out hidden states from the pass that computes log-probabilities.

BiPACE's fingerprint of a state is the hidden state of the last prompt token. verl runs the model
over prompt and response anyway; a hook on one decoder block takes the vector of the token before
each turn of a row, in half precision before they travel.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from verl.utils import tensordict_utils
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

from ascribe.engines.capture import capture, packed, padded
from ascribe.engines.verl.vectors import FINGERPRINT
from ascribe.sessions.spans import turn_starts
from ascribe.steps.arrays import Ints

LAYER = "fingerprint_layer"
"""Where the trainer says which decoder block to watch; without it nothing is watched."""


class FingerprintEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's engine of FSDP; where the batch names a layer, fingerprints come out besides."""

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """As verl's, watched if asked for."""
        layer = tensordict_utils.get_non_tensor_data(data=micro_batch, key=LAYER, default=None)
        if layer is None or not forward_only:
            return super().forward_step(micro_batch, loss_function, forward_only)
        with capture(self.module, int(layer), dtype=torch.float16) as hidden:
            rows, prompts = decisions(micro_batch)
            hidden.expect(partial(take, micro_batch, rows, prompts))
            loss, output = super().forward_step(micro_batch, loss_function, forward_only)
        vectors = hidden.fingerprints()
        bounds = vectors.shape[1] * np.cumsum(np.append(0, np.bincount(rows)))
        output["model_output"][FINGERPRINT] = torch.nested.nested_tensor_from_jagged(
            vectors.flatten(), torch.from_numpy(bounds).to(vectors.device)
        )
        return loss, output


def decisions(micro_batch: Any) -> tuple[Ints, Ints]:
    """The row of each turn, and how many tokens of the row come before it; rows rise.

    A row without a turn (padding, or an episode that failed) counts as one that begins after its
    prompt, so that every row has one at least.
    """
    lengths = micro_batch["prompts"].offsets().diff().cpu().numpy()
    masks = micro_batch["response_mask"]
    written = np.split(masks.values().cpu().numpy(), masks.offsets().cpu().numpy()[1:-1])
    begins = [turn_starts(mask) if mask.any() else np.zeros(1, np.int64) for mask in written]
    rows = np.repeat(np.arange(lengths.size), [each.size for each in begins])
    return rows, lengths[rows] + np.concatenate(begins)


def take(micro_batch: Any, rows: Ints, prompts: Ints, states: Any) -> Any:
    """The hidden states where the prompts of turns end, in the layout that verl gives to the model.

    Args:
        micro_batch: verl's, with nested ``input_ids``.
        rows: of the turns.
        prompts: tokens of the row before each turn.
        states: of all tokens; verl may append padding to packed ones.
    """
    bounds = micro_batch["input_ids"].offsets()
    together = tensordict_utils.get_non_tensor_data(
        data=micro_batch, key="use_remove_padding", default=True
    )
    if together:
        return packed(bounds, prompts, states.shape[1], rows)(states)
    lengths = bounds.diff()
    columns = torch.arange(int(lengths.max()), device=lengths.device)
    return padded(columns < lengths[:, None], prompts, rows)(states)


EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cuda", vendor="nvidia")(
    FingerprintEngine
)  # in place of verl's own
