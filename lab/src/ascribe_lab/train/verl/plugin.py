"""What verl loads besides, by the entry point ``ascribe_lab``: trainers on episodes, and a CPU.

Where ``VERL_PLATFORM=cpu``, verl runs without a GPU.
"""

import os
from importlib import import_module

from ascribe.engines.verl.plugin import install

PARTS = {"ascribe.engines.verl.trainer": "ascribe_lab.train.verl.episode_trainer"}
"""As the library's, for it is the library's modules that these add to."""

CPU_PARTS = {
    "ascribe.engines.verl.engine": "ascribe_lab.train.verl.cpu.engine",
    "verl.workers.rollout.replica": "ascribe_lab.train.verl.cpu.vllm",
    "verl.workers.engine.fsdp.transformer_impl": "ascribe_lab.train.verl.cpu.fsdp",
}

if os.environ.get("VERL_PLATFORM") == "cpu":
    import_module("ascribe_lab.train.verl.cpu.platform")
    install(PARTS | CPU_PARTS)
else:
    install(PARTS)
