"""Loaded by verl in its processes: writes down what each update is given.

``VERL_USE_EXTERNAL_MODULES=lab.tests.train.verl_spy``; files go to the folder that ``SPY`` names.
With ``SPY_SLOW`` every update begins with a pause of so many seconds, so that a run can be killed
there.
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
