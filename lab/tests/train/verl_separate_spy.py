"""Loaded by verl in its processes: notes the rows of each step and their advantages.

``VERL_USE_EXTERNAL_MODULES=lab.tests.train.verl_separate_spy``; files go to the folder that ``SPY``
names. verl's own GRPO is noted as ``verl``, and Ascribe's as ``grpo``.
"""

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl: it needs the platform)
from ascribe.engines.verl.loops import LoopSteps
from ascribe.engines.verl.separate import SeparateMixin

compute_advantage = SeparateMixin._fit_compute_advantage


def spied(self: SeparateMixin, batch: Any) -> Any:
    from omegaconf import OmegaConf
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    folder = Path(os.environ["SPY"])
    folder.mkdir(exist_ok=True)
    names = ("prompts", "responses", "response_mask", "rm_scores", "attention_mask")
    noted: dict[str, Any] = {name: batch.batch[name].tolist() for name in names}
    noted["uid"] = list(map(str, batch.non_tensor_batch["uid"]))
    noted["last_version"] = [int(one) for one in batch.non_tensor_batch["max_global_steps"]]
    own, algorithm = self.steps, self.config.algorithm
    algorithm.adv_estimator = "grpo"
    theirs = SeparateRayPPOTrainer._fit_compute_advantage(self, deepcopy(batch))
    noted["verl"] = theirs.batch["advantages"].tolist()
    algorithm.adv_estimator = "ascribe"
    config = self.config.copy()
    OmegaConf.set_struct(config, False)
    config.ascribe = {"recipe": "grpo"}
    self.steps = LoopSteps(config)
    noted["grpo"] = compute_advantage(self, deepcopy(batch)).batch["advantages"].tolist()
    self.steps = own
    result = compute_advantage(self, batch)
    noted["run"] = result.batch["advantages"].tolist()
    noted["mask"] = result.batch["response_mask"].tolist()
    noted["metrics"] = {k: float(v) for k, v in self.metrics.items() if k.startswith("ascribe/")}
    (folder / f"rows_{self.global_steps}.json").write_text(json.dumps(noted))
    return result


SeparateMixin._fit_compute_advantage = spied
