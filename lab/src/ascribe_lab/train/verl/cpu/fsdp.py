"""A reference model on the CPU: verl moves its weights there, and they are there already."""

from importlib import import_module
from typing import Any

from torch.distributed.fsdp import OffloadPolicy


def stay(pin_memory: bool = True) -> Any:  # noqa: ARG001 (memory is pinned for GPUs)
    """In place of FSDP2's policy that moves weights from a GPU to the CPU and back."""
    return OffloadPolicy()


# Not by its package, which has no such attribute while the module is being loaded.
engine: Any = import_module("verl.workers.engine.fsdp.transformer_impl")
engine.CPUOffloadPolicy = stay
