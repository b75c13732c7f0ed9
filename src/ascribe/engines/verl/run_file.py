"""The run that a verl process belongs to: the config that ``data.train_files`` names."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from ascribe.engines.load import load_config
from ascribe.engines.train import Run, resolve


@lru_cache(maxsize=8)
def read_run(path: str) -> Run:
    """The run of a config file; a process reads it once."""
    return resolve(load_config(path).config)


def run_of(verl_config: Any) -> Run:
    """The run of verl's whole configuration.

    Raises:
        ValueError: if ``data.train_files`` names no config of Ascribe's.
    """
    return read_run(run_path(verl_config.data.train_files))


def run_path(files: Any) -> str:
    """The one path that ``data.train_files`` names."""
    paths = [files] if isinstance(files, str) else list(files)
    if len(paths) != 1 or Path(paths[0]).suffix not in {".yaml", ".yml"}:
        raise ValueError(
            f"data.train_files must be the YAML file of an Ascribe run, not {', '.join(paths)}"
        )
    return str(paths[0])
