"""What verl loads in every process, by the entry point ``ascribe_lab``: the processor as a device.

It is there if ``VERL_PLATFORM=cpu``. The rest of what a processor needs is in ``cpu.workers``,
which ``actor_rollout_ref.model.external_lib`` names (``arguments.ON_CPU``).
"""

import os
from importlib import import_module

if os.environ.get("VERL_PLATFORM") == "cpu":
    import_module("ascribe_lab.train.verl.cpu.platform")
