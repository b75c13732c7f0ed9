"""An engine that hands out hidden states from the pass that computes log-probabilities.

BiPACE's fingerprint of a state is the hidden state of the last prompt token. verl runs the model
over prompt and response anyway; a hook on one decoder block takes that one vector of each row, in
half precision before it travels.
"""

from typing import Any

import torch
from verl.utils import tensordict_utils
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

from ascribe.fingerprints.capture import Places, capture, packed, padded

LAYER = "fingerprint_layer"
"""Where the trainer says which decoder block to watch; without it nothing is watched."""
FINGERPRINT = "fingerprint"
"""The output, one vector for each row."""


class FingerprintEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's engine of FSDP; where the batch names a layer, fingerprints come out besides."""

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """As verl's, watched if asked for."""
        layer = tensordict_utils.get_non_tensor_data(data=micro_batch, key=LAYER, default=None)
        if layer is None or not forward_only:
            return super().forward_step(micro_batch, loss_function, forward_only)
        if self.use_ulysses_sp:
            raise ValueError(
                "fingerprints need whole sequences: set ulysses_sequence_parallel_size=1"
            )
        with capture(self.module, int(layer), dtype=torch.float16) as hidden:
            hidden.expect(last_prompt_tokens(micro_batch, self._get_packed_pad_size))
            loss, output = super().forward_step(micro_batch, loss_function, forward_only)
        output["model_output"][FINGERPRINT] = hidden.fingerprints()
        return loss, output


def last_prompt_tokens(micro_batch: Any, padding: Any) -> Places:
    """Where the prompts of a micro-batch end, in the layout that verl gives to the model.

    Args:
        micro_batch: verl's, with nested ``input_ids`` and ``prompts``.
        padding: tokens that verl appends to so many packed ones.
    """
    prompts = micro_batch["prompts"].offsets().diff()
    bounds = micro_batch["input_ids"].offsets()
    together = tensordict_utils.get_non_tensor_data(
        data=micro_batch, key="use_remove_padding", default=True
    )
    if together:
        tokens = int(bounds[-1])
        return packed(bounds, prompts, tokens + padding(tokens))
    lengths = bounds.diff()
    columns = torch.arange(int(lengths.max()), device=lengths.device)
    return padded(columns < lengths[:, None], prompts)


def _register() -> None:
    """Stand in for verl's own engine on the CPU, which has none, and on NVIDIA's GPUs."""
    backends = ["fsdp", "fsdp2"]
    EngineRegistry.register("language_model", backends, device="cpu")(FingerprintEngine)
    EngineRegistry.register("language_model", backends, device="cuda", vendor="nvidia")(
        FingerprintEngine
    )


_register()
