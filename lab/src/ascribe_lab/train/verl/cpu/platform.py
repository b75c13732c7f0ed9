"""The platform ``cpu``: the processor stands where verl expects an accelerator."""

import importlib.metadata
import os
from contextlib import nullcontext
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


def _always(value: Any) -> Any:
    """A function that gives this value, whatever it is asked."""
    return lambda *_, **__: value


_nothing = _always(None)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Ray is told of logical GPUs (``ray_init.num_gpus``): one for each rank and each server."""

    device_name = vendor_name = "cpu"
    device_module = torch.cpu

    is_available = _always(True)
    current_device = _always("cpu")
    device_count = _always(1)  # for each process
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")  # Ray sets it for logical GPUs
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])  # verl sets it
    is_ipc_supported = _always(False)  # weights travel through shared memory instead
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    # What a processor does not have.
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing
    get_device_capability = _always((None, None))
    nvtx_range = staticmethod(nullcontext)

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002
        """Whether there is nothing better."""
        return not torch.cuda.is_available()

    def rollout_env_vars(self) -> dict[str, str]:
        """Environment of the rollout servers."""
        return {name: os.environ.get(name, value) for name, value in SERVER.items()}


def fill_gaps() -> None:
    """Give ``torch.cpu`` what verl asks of a device's module."""
    memory = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    gaps = {
        **dict.fromkeys(("empty_cache", "ipc_collect", "reset_peak_memory_stats"), _nothing),
        **dict.fromkeys(memory, _always(0)),
        "mem_get_info": _always((0, 0)),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_device_name": _always("CPU"),
    }
    for name, function in gaps.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, function)


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
