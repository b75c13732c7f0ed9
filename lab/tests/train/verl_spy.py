"""Loaded by verl in its processes: writes down what each update is given.

``VERL_USE_EXTERNAL_MODULES=lab.tests.train.verl_spy``; files go to the folder that ``SPY`` names.
With ``SPY_SLOW`` every update begins with a pause of so many seconds, so that a run can be killed
there. With ``SPY_GRADIENT`` the gradients of the actor are written too, before they are clipped.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl: it needs the platform)
from ascribe.engines.verl.batch import fetch
from ascribe.engines.verl.trainer import CreditMixin

update = CreditMixin._update_actor


def spied(self: CreditMixin, batch: Any, metrics: dict[str, Any]) -> Any:
    folder = Path(os.environ["SPY"])
    folder.mkdir(exist_ok=True)
    names = (
        "prompts",
        "responses",
        "advantages",
        "response_mask",
        "loss_mask",
        "rollout_log_probs",
    )
    found = fetch(batch, *names)
    rows = [
        {name: found[name][row].tolist() for name in names}
        | {"padding": bool(tag.get("is_padding", False))}
        for row, tag in enumerate(batch.tags)
    ]
    (folder / f"begun_{self.global_steps:05d}.json").write_text(json.dumps(rows))
    time.sleep(float(os.environ.get("SPY_SLOW", "0")))
    return update(self, batch, metrics)


CreditMixin._update_actor = spied


def spy_gradients() -> None:
    """Let the engines of FSDP write their gradients."""
    import torch
    from verl.workers.engine import FSDPEngineWithLMHead

    learn = FSDPEngineWithLMHead.optimizer_step

    def noted(self: Any) -> Any:
        folder = Path(os.environ["SPY"])
        number = len(list(folder.glob("gradient_*.pt"))) + 1
        named = self.module.named_parameters()
        whole = {name: each.grad.full_tensor() for name, each in named}  # fsdp2 shards them
        torch.save(whole, folder / f"gradient_{number:05d}.pt")
        return learn(self)

    FSDPEngineWithLMHead.optimizer_step = noted


if "SPY_GRADIENT" in os.environ:
    spy_gradients()
