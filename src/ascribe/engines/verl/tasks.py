"""``TaskDataset``: the dataset of verl's data loader, and the run that a verl process belongs to.

Row i is group i of the run: a task and a seed that follow from the run's seed and i alone. So a
resumed run continues with the tasks that an unbroken one would have played.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ascribe.engines.episodes import EpisodeSpec, task_row
from ascribe.engines.load import load_config
from ascribe.engines.resolve import Run, resolve

SUFFIXES = {".yaml", ".yml"}

ENDLESS = 2**31
"""Rows of the dataset: dynamic sampling may need many more groups than a run has steps."""


def names_run(verl_config: Any) -> bool:
    """Whether ``data.train_files`` is the config of a run, and not a dataset."""
    return any(Path(path).suffix in SUFFIXES for path in _paths(verl_config.data.train_files))


def run_of(verl_config: Any) -> Run:
    """The run of verl's whole configuration."""
    return read_run(verl_config.data.train_files)


def read_run(files: Any) -> Run:
    """The run of the one config file that ``data.train_files`` names; a process reads it once.

    Raises:
        ValueError: if it names something else.
    """
    paths = _paths(files)
    if len(paths) != 1 or Path(paths[0]).suffix not in SUFFIXES:
        raise ValueError(
            f"data.train_files must be the YAML file of an Ascribe run, not {', '.join(paths)}"
        )
    return _read_run(str(paths[0]))


def _paths(files: Any) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


@lru_cache(maxsize=8)
def _read_run(path: str) -> Run:
    return resolve(load_config(path).config)


class TaskDataset(Dataset):  # type: ignore[misc]
    """The groups of a run, one after another.

    Args:
        data_files: the run's config, from ``data.train_files``.
        others: verl's other arguments; none is needed, since prompts come from environments.
    """

    def __init__(self, data_files: Any, **others: Any) -> None:  # noqa: ARG002
        self.config = read_run(data_files).config

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = task_row(number, self.config.update.seed, "train", self.config.rollout.tasks)
        return {
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
