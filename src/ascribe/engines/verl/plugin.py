"""What verl loads in every process that imports it, by the entry point ``verl.plugins``.

Three names become known: the estimator ``ascribe`` (``algorithm.adv_estimator``), the trainer
``ascribe`` (``trainer.v1.trainer_mode``), and an engine that can hand out hidden states. None of
them does anything in runs that do not name Ascribe.
"""

import os
from importlib import import_module

PARTS = ("engine", "estimator", "trainer")
CPU_PARTS = ("cpu.platform", "cpu.vllm")

for part in (*CPU_PARTS, *PARTS) if os.environ.get("VERL_PLATFORM") == "cpu" else PARTS:
    import_module(f"ascribe.engines.verl.{part}")
