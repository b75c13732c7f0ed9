"""Loaded by verl in its processes: notes the rows of each step and their advantages.

``VERL_USE_EXTERNAL_MODULES=lab.tests.train.verl_separate_spy``; files go to the folder that ``SPY``
names. verl's own GRPO is noted as ``verl``, and Ascribe's as ``grpo``.
"""

import json
import os
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl: it needs the platform)
from ascribe.engines.verl.loops import LoopSteps

trainer: Any = import_module("verl.experimental.separation.ray_trainer").SeparateRayPPOTrainer
compute_advantage = trainer._fit_compute_advantage


def spied(self: Any, batch: Any) -> Any:
    """verl's own method, which ours calls."""
    if vars(self).get("spying"):
        return compute_advantage(self, batch)
    self.spying = True
    from omegaconf import OmegaConf

    folder = Path(os.environ["SPY"])
    folder.mkdir(exist_ok=True)
    names = ("prompts", "responses", "response_mask", "rm_scores", "attention_mask")
    noted: dict[str, Any] = {name: batch.batch[name].tolist() for name in names}
    noted["uid"] = list(map(str, batch.non_tensor_batch["uid"]))
    noted["metrics"] = {k: float(v) for k, v in self.metrics.items() if k.startswith("ascribe/")}
    given, own, algorithm = deepcopy(batch), self.steps, self.config.algorithm
    result = compute_advantage(self, batch)
    noted["run"] = result.batch["advantages"].tolist()
    algorithm.adv_estimator = "grpo"
    noted["verl"] = compute_advantage(self, deepcopy(given)).batch["advantages"].tolist()
    algorithm.adv_estimator = "ascribe"
    config = self.config.copy()
    OmegaConf.set_struct(config, False)
    config.ascribe = {"recipe": "grpo"}
    kept, self.metrics = self.metrics, {}
    self.steps = LoopSteps(config)
    noted["grpo"] = self._fit_compute_advantage(given).batch["advantages"].tolist()
    self.steps, self.metrics, self.spying = own, kept, False
    (folder / f"rows_{self.global_steps}.json").write_text(json.dumps(noted))
    return result


trainer._fit_compute_advantage = spied
