"""The platform ``cpu``: the processor stands where verl expects an accelerator."""

import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

SERVER = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Environment of the rollout servers, unless it says otherwise already."""


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Ray is told of logical GPUs (``ray_init.num_gpus``): one for each rank and each server."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self) -> bool:
        """It always is."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002
        """Whether there is nothing better."""
        return not torch.cuda.is_available()

    def current_device(self) -> Any:
        """The one there is."""
        return "cpu"

    def device_count(self) -> int:
        """One for each process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to choose."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing runs ahead."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """There are none."""

    def empty_cache(self) -> None:
        """There is none."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:  # noqa: ARG002
        """None, in the sense of CUDA."""
        return None, None

    def communication_backend_name(self) -> str:
        """Between processes."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """What Ray sets for logical GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        """No profiler listens."""
        yield

    def profiler_start(self) -> None:
        """No profiler."""

    def profiler_stop(self) -> None:
        """No profiler."""

    def ray_resource_name(self) -> str:
        """Logical GPUs."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """So that Ray leaves the variable to verl."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Weights travel through shared memory instead."""
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        """Environment of the rollout servers."""
        return {name: os.environ.get(name, value) for name, value in SERVER.items()}

    def cudart(self) -> None:
        """There is none."""


def fill_gaps() -> None:
    """Give ``torch.cpu`` what verl asks of a device's module."""
    gaps = {
        "empty_cache": _nothing,
        "ipc_collect": _nothing,
        "reset_peak_memory_stats": _nothing,
        "memory_allocated": _zero,
        "memory_reserved": _zero,
        "max_memory_allocated": _zero,
        "max_memory_reserved": _zero,
        "mem_get_info": lambda *_: (0, 0),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_device_name": lambda *_: "CPU",
    }
    for name, function in gaps.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, function)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _zero(*_: Any, **__: Any) -> int:
    return 0


def name_backends_once() -> None:
    """Let verl's ``cpu:gloo,cpu:gloo`` mean ``cpu:gloo``: torch takes a device once."""
    begin = torch.distributed.init_process_group

    @wraps(begin)
    def once(backend: Any = None, *given: Any, **options: Any) -> Any:
        if isinstance(backend, str):
            backend = ",".join(dict.fromkeys(backend.split(",")))
        return begin(backend, *given, **options)

    torch.distributed.init_process_group = once


def call_vllm_by_its_name() -> None:
    """Let ``vllm-cpu`` be found as ``vllm``, with ``cpu`` in its version, as vLLM wants it."""
    ask = importlib.metadata.version

    @wraps(ask)
    def version(name: str) -> str:
        try:
            return ask(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return f"{ask('vllm-cpu')}+cpu"

    setattr(importlib.metadata, "version", version)  # noqa: B010 (mypy refuses the other way)


fill_gaps()
name_backends_once()
call_vllm_by_its_name()
