"""``Sampler``: a copy of the model in half precision, for sampling alone.

Reading prompts takes most of an iteration on a CPU, and half precision is several times faster at
it. The model that learns stays as it is; before an iteration its weights are copied over.
"""

from typing import Any

import torch


class Sampler:
    """Makes the copy when it is first needed.

    Args:
        dtype: type of the copy's weights: ``bfloat16`` or ``float16``.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = getattr(torch, dtype)
        self._copy: Any = None

    def of(self, model: Any) -> Any:
        """A copy of the model as it is now.

        Raises:
            ValueError: for a model with adapters, whose weights are not in one piece.
        """
        if hasattr(model, "peft_config"):
            raise ValueError("rollout.dtype: a model with adapters samples with its own weights")
        if self._copy is None:
            config = type(model.config).from_dict(model.config.to_dict())
            config.dtype = self.dtype
            # The fastest at reading, whatever is the fastest at learning.
            self._copy = type(model)._from_config(config, attn_implementation="sdpa")
            # Its buffers, such as the frequencies of positions, keep the precision they need.
            self._copy.to(model.device).eval()
            self._copy.generation_config = model.generation_config
        with torch.no_grad():
            for mine, other in zip(self._copy.parameters(), model.parameters(), strict=True):
                mine.copy_(other)
            for mine, other in zip(self._copy.buffers(), model.buffers(), strict=True):
                mine.copy_(other)
        return self._copy
