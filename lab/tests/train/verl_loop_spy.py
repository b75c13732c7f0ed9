"""Loaded by verl in its processes: credits each batch by several recipes, and notes the tokens.

``VERL_USE_EXTERNAL_MODULES=lab.tests.train.verl_loop_spy``; files go to the folder that ``SPY``
names. verl's own GRPO is among the recipes as ``verl``.
"""

import json
import os
from pathlib import Path
from typing import Any

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl: it needs the platform)
from ascribe.engines.verl import vectors
from ascribe.engines.verl.batch import extra_fields, fetch, is_padding
from ascribe.engines.verl.loops import LoopSteps
from ascribe.engines.verl.trainer import CreditMixin, PPOTrainerSync

RECIPES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "gigpo": {},
    "sbc": {"fingerprints": -1, "scale": "paper"},  # the form that tasks can credit by groups
}
CHOICES = {
    1: {"state": "tool", "rewards": "tool_rewards"},
    2: {"state": "key", "rewards": "turn_rewards"},
    3: {"state": "observation"},
}
"""How turns become steps: of verl's ToolAgentLoop in step 1, of a user's loops in steps 2 and 3."""

compute_advantage = CreditMixin._compute_advantage
update_actor = CreditMixin._update_actor


def spied(self: CreditMixin, batch: Any, metrics: dict[str, Any]) -> Any:
    from omegaconf import OmegaConf

    folder = Path(os.environ["SPY"])
    folder.mkdir(exist_ok=True)
    names = ("prompts", "responses", "response_mask", "rm_scores", "fingerprint")
    fields, extra = fetch(batch, *names), extra_fields(batch)
    rows = [
        {"key": key, **{name: fields[name][row].tolist() for name in names}}
        | {name: extra[row].get(name) for name in ("turn_states", "turn_rewards", "truncated")}
        | {"padding": is_padding(batch.tags[row])}
        for row, key in enumerate(batch.keys)
    ]
    algorithm, own = self.config.algorithm, self.steps

    def note(name: str) -> None:
        tokens = fetch(batch, "advantages")["advantages"]
        for row, noted in enumerate(rows):
            noted[name] = tokens[row].tolist()

    algorithm.adv_estimator = "grpo"
    PPOTrainerSync._compute_advantage(self, batch, {})
    note("verl")
    algorithm.adv_estimator = "ascribe"

    def credit(recipe: str, **keys: Any) -> None:
        config = self.config.copy()
        OmegaConf.set_struct(config, False)
        config.ascribe = {"recipe": recipe, **CHOICES[self.global_steps], **RECIPES[recipe], **keys}
        self.steps = LoopSteps(config)
        compute_advantage(self, batch, {})

    for recipe in RECIPES:
        credit(recipe, dump=str(folder / recipe))
        note(recipe)
    limits = vectors.TRAINER_BYTES, vectors.TASK_BYTES
    vectors.TRAINER_BYTES, vectors.TASK_BYTES = 0, 1  # a task for each group
    credit("sbc")
    note("tasks")
    vectors.TRAINER_BYTES, vectors.TASK_BYTES = limits
    if self.global_steps == 1:
        remember(self, batch, folder / "memory")
    self.steps = own
    result = compute_advantage(self, batch, metrics)
    note("run")
    (folder / f"rows_{self.global_steps}.json").write_text(json.dumps(rows))
    return result


def remember(self: CreditMixin, batch: Any, folder: Path) -> None:
    """Credit one rollout of each task after another, as if each were an iteration."""
    from omegaconf import OmegaConf

    config = self.config.copy()
    OmegaConf.set_struct(config, False)
    config.actor_rollout_ref.rollout.n = 1
    config.ascribe = {"recipe": "returns", "memory": 0.8, "dump": str(folder)}
    steps, history = LoopSteps(config), None
    mine = [row for row, tag in enumerate(batch.tags) if not is_padding(tag)]
    for session in range(8):
        rows = [row for row in mine if batch.keys[row].rsplit("_", 2)[1] == str(session)]
        part = type(batch)(
            keys=[batch.keys[row] for row in rows],
            tags=[batch.tags[row] for row in rows],
            partition_id=batch.partition_id,
        )
        credit, _ = steps.credit(part, self.tokenizer, history, {}, version=0)
        history = credit.next_history(history)
        steps.write(credit, session)


def updated(self: CreditMixin, batch: Any, metrics: dict[str, Any]) -> Any:
    """Notes how many rows an update takes."""
    found = update_actor(self, batch, metrics)
    sizes = {"rows": len(batch), "minibatch": found.extra_info["mini_batch_size"]}
    folder = Path(os.environ["SPY"])
    (folder / f"update_{self.global_steps}.json").write_text(
        json.dumps({**sizes, **_plain(metrics)})
    )
    return found


def _plain(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if name.startswith("ascribe/")}


CreditMixin._compute_advantage = spied
CreditMixin._update_actor = updated
