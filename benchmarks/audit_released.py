"""Released code in the audit: verl's own advantage functions, beside Ascribe's recipes.

Each function of verl that needs no critic and no log-probabilities is called as verl's trainer does
for whole conversations: a trajectory is one sequence, here with one token for each step, and a
step's advantage is that of its token. With this folder on the path, ``ascribe audit`` scores one of
them with ``--recipe audit_released:verl_rloo``.

TRL computes advantages inside a long method of its trainer, so there is no function to call; by its
source it is ``grpo`` with ``std_epsilon=1e-4``. Needs the environment of verl.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from common import Figures
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from ascribe.steps.arrays import Floats
from ascribe.steps.check import arrange
from ascribe.steps.table import StepTable
from ascribe_lab.audit import QUICK, WORLDS, audit, scored_recipe
from ascribe_lab.audit.report import json_lines

ESTIMATORS = (
    *("grpo", "rloo", "opo", "gpg", "grpo_passk"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline"),
)
"""Names under which verl registers its functions."""

BESIDE = ("grpo", "rloo", "reinforce_pp", "returns", "gigpo", "sbc")
"""Ascribe's recipes in the same run."""

SETTINGS = replace(QUICK, seed=2216, blocks=6, batches=4, plain=True)


@dataclass(frozen=True)
class Advantages:
    """The advantage of every row, as a credit has it."""

    advantage: Floats


def of_verl(name: str, table: StepTable) -> Advantages:
    """What verl's function of this name computes, one token for each step."""
    steps = arrange(table)
    shape = (steps.trajectory_count, int(steps.step.max()) + 1)
    rewards, mask = torch.zeros(shape), torch.zeros(shape)
    place = (torch.from_numpy(steps.trajectory), torch.from_numpy(steps.step))
    rewards[place] = torch.from_numpy(steps.reward).float()
    mask[place] = 1.0
    advantages, _ = get_adv_estimator_fn(name)(
        token_level_rewards=rewards,
        response_mask=mask,
        index=steps.group_of_trajectory,
        config=AlgoConfig(gamma=1.0),
    )
    values = advantages[place].double().numpy()
    return Advantages(np.asarray(steps.to_table_order(values, len(table), 0.0)))


def __getattr__(name: str) -> Any:
    if name.startswith("verl_"):
        return partial(of_verl, name.removeprefix("verl_"))
    raise AttributeError(name)


def main() -> None:
    """Score verl's functions and ours on the same rollouts."""
    with Figures("audit_released") as figures:
        settings = SETTINGS
        names: tuple[str, ...] = ESTIMATORS
        if figures.quick:
            settings = replace(
                settings, worlds={"graph": WORLDS["graph"]}, blocks=2, batches=2, updates=2
            )
            names = ESTIMATORS[:2]
        recipes = {f"verl {name}": partial(of_verl, name) for name in names}
        recipes |= {name: scored_recipe(name) for name in BESIDE}
        for line in json_lines(audit(recipes, settings)):
            if line["metric"] in ("learning_auc", "update_cosine", "gradient_cosine"):
                values = (line["value"], line["low"], line["high"])
                figures.emit_interval(line["case"], line["metric"], values, "1", line["better"])


if __name__ == "__main__":
    main()
