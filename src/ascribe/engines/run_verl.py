"""Runs a config with verl, as ``python -m verl.trainer.main_ppo`` with overrides."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ascribe.engines.config import Config
from ascribe.engines.train import MODEL, Chosen
from ascribe.engines.verl_arguments import verl_overrides
from ascribe.rollout.policies import write_smollm2

LATEST = "latest_checkpointed_iteration.txt"
"""Where verl writes the number of the last checkpoint that is whole."""


def run(config: Config, chosen: Chosen, *, resume: bool) -> None:  # noqa: ARG001 (read there anew)
    """Train, and write the model to ``MODEL`` in the output folder.

    Raises:
        ImportError: without verl.
        RuntimeError: if verl ends with an error.
    """
    if find_spec("verl") is None:
        raise ImportError(
            "needs verl: scripts/make_env.sh .venv-verl verl-cpu makes a place for it"
        )
    folder = Path(config.output.folder).absolute()
    cpu = _without_gpu(config)
    overrides = verl_overrides(config, folder / "config.yaml", _model(config, folder), cpu=cpu)
    overrides["trainer.resume_mode"] = "auto" if resume else "disable"
    (folder / "command.txt").write_text("\\\n  ".join(command(overrides)) + "\n", encoding="utf-8")
    # Away from the working directory: a folder there may be taken for a package.
    done = subprocess.run(command(overrides), cwd=folder, env=_environment(cpu), check=False)
    if done.returncode:
        raise RuntimeError(f"verl ended with code {done.returncode}; what it said stands above")
    _publish(folder)


def command(overrides: Mapping[str, Any]) -> list[str]:
    """The command line; values are JSON where text would be read as something else."""
    said = [f"{name}={_value(value)}" for name, value in overrides.items()]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *said]


def _value(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value)


def _without_gpu(config: Config) -> bool:
    device = config.engine.verl.get("trainer.device")
    if device is not None:
        return bool(device == "cpu")
    import torch

    return not torch.cuda.is_available()


def _environment(cpu: bool) -> dict[str, str]:
    found = {"RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1", "HYDRA_FULL_ERROR": "1"}
    if cpu:
        found["VERL_PLATFORM"] = "cpu"
    return found | dict(os.environ)


def _model(config: Config, folder: Path) -> Path:
    """The folder of the model at the start; SmolLM2 is unpacked first."""
    if config.model.path == "smollm2":
        return write_smollm2(folder / "smollm2")
    return Path(config.model.path).absolute()


def _publish(folder: Path) -> None:
    """Copy the last checkpoint's model, with its tokenizer, to where every engine writes it."""
    latest = folder / "checkpoints" / LATEST
    if not latest.exists():
        return
    step = folder / "checkpoints" / f"global_step_{latest.read_text().strip()}"
    shutil.copytree(step / "actor" / "huggingface", folder / MODEL, dirs_exist_ok=True)
