"""``Tasks``: what verl's data loader draws from, in place of a file of prompts.

Row i is group i of the run: a task and a seed that follow from the run's seed and i alone. So a run
that is resumed goes on with the tasks that an unbroken one would have played.
"""

import json
from typing import Any

from torch.utils.data import Dataset

from ascribe.engines.plan import Seat, task_row
from ascribe.engines.verl.run_file import read_run, run_path

ENDLESS = 2**31
"""Rows of the dataset: dynamic sampling may need many more groups than a run has steps."""


class Tasks(Dataset):  # type: ignore[misc]
    """The groups of a run, one after another.

    Args:
        data_files: the run's config, from ``data.train_files``.
        others: what verl passes besides; prompts come from environments, so none of it is needed.
    """

    def __init__(self, data_files: Any, **others: Any) -> None:  # noqa: ARG002
        self.config = read_run(run_path(data_files)).config

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = task_row(number, self.config.update.seed, "train", self.config.rollout.tasks)
        return {
            "raw_prompt": [{"role": "user", "content": ""}],  # verl counts them
            "data_source": "ascribe",
            "index": number,
            "agent_name": "ascribe",
            # As text: seeds have more bits than a tensor of integers holds.
            "seat": json.dumps({name: row[name] for name in ("group", "seed", "task")}),
        }


def seat_of(text: str, member: int) -> Seat:
    """The episode of a row's member."""
    row = json.loads(text)
    return Seat(row["group"], member, row["seed"], row["task"])
