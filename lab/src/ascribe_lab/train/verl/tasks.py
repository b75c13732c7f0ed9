"""``TaskDataset``: the dataset of verl's data loader, and the run that a verl process belongs to.

Row i is group i of the run: a task and a seed that follow from the run's seed and i alone. So a
resumed run continues with the tasks that an unbroken one would have played.
"""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ascribe.steps.errors import InputError
from ascribe_lab.train.episodes import EpisodeSpec, task_row
from ascribe_lab.train.load import load_config
from ascribe_lab.train.resolve import Run, resolve

SUFFIXES = {".yaml", ".yml"}

HELD_OUT = "held_out"
"""What ``data.val_files`` has after the run's config; and whether a row is a held-out task."""

ENDLESS = 2**31
"""Rows of the dataset: dynamic sampling may need many more groups than a run has steps."""


def read_run(files: Any, *, held_out: bool = False) -> Run:
    """The run of the one config file that ``data.train_files`` names; a process reads it once.

    ``held_out``: in the environment of its held-out tasks.

    Raises:
        ValueError: if it names something else.
    """
    paths = _paths(files)
    if len(paths) != 1 or Path(paths[0]).suffix not in SUFFIXES:
        raise InputError(
            f"data.train_files must be the YAML file of an Ascribe run, not {', '.join(paths)}"
        )
    return _read_run(str(paths[0]), held_out)


def _paths(files: Any) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


@lru_cache(maxsize=8)
def _read_run(path: str, held_out: bool) -> Run:
    config = load_config(path).config
    return resolve(replace(config, environment=config.held_out) if held_out else config)


class TaskDataset(Dataset):  # type: ignore[misc]
    """The groups of a run, one after another, or its held-out tasks.

    Args:
        data_files: the run's config, from ``data.train_files``; with the word ``held_out`` after
            it, from ``data.val_files``, the held-out tasks.
        others: verl's other arguments; none is needed, since prompts come from environments.
    """

    def __init__(self, data_files: Any, **others: Any) -> None:  # noqa: ARG002
        files = _paths(data_files)
        self.held_out = files[1:] == [HELD_OUT]
        self.config = read_run(files[:1] if self.held_out else files).config

    def __len__(self) -> int:
        return len(self.config.evaluation.tasks) if self.held_out else ENDLESS

    def __getitem__(self, number: int) -> dict[str, Any]:
        config = self.config
        name, tasks = "train", config.rollout.tasks
        if self.held_out:
            if number >= len(self):
                raise IndexError(number)
            name, tasks = "eval", config.evaluation.tasks
        row = task_row(number, config.update.seed, name, tasks)
        return {
            HELD_OUT: self.held_out,
            "raw_prompt": [{"role": "user", "content": ""}],  # verl counts them
            "data_source": "ascribe",
            "reward_model": {"ground_truth": ""},  # trainer.rollout_data_dir asks for it
            "index": number,
            "agent_name": "ascribe",
            # As text: seeds have more bits than a tensor of integers holds.
            "episode": json.dumps({name: row[name] for name in ("group", "seed", "task")}),
        }


def spec_of(text: str, member: int) -> EpisodeSpec:
    """The episode of a member of a row's group."""
    return EpisodeSpec(member=member, **json.loads(text))
